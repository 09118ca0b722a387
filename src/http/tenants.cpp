// SPDX-License-Identifier: Apache-2.0
// The tree of tenants: read by those it concerns, changed by admins.
#include "tenants/tenants.h"

#include "base/text.h"
#include "http/query.h"
#include "http/routes.h"
#include "http/stored.h"
#include "http/tenant_fields.h"
#include "state/rotation.h"
#include "state/tenant_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>

namespace sublet::http {
namespace {

using core::Tenant;
using tenants::Tree;

using Names = std::set<std::string, std::less<>>;

Result<tenants::Tenants*> capability(const Call& call) {
  if (call.capabilities.tenants != nullptr) return call.capabilities.tenants;
  return unavailable("there are no tenants here", "restart the daemon");
}

// ------------------------------------------------------------------------------------ reading

// The tenants that leases are charged to now; with `uid` those of this user's leases.
Names charged(const core::State& state, std::optional<std::uint32_t> uid) {
  Names names;
  for (const auto& [id, lease] : state.leases.by_id)
    if (!lease.ended() && (!uid || lease.uid == *uid)) names.insert(lease.tenant);
  return names;
}

// An admin sees all. Others see the tenants that they may charge, those of their leases, and all above these.
Names visible_names(const Call& call, const Tree& tree) {
  const engine::Peer& peer = call.request.peer;
  const bool is_admin = peer.role == Role::admin;
  Names names = charged(call.engine.state(), is_admin ? std::nullopt : std::optional(peer.uid));
  if (is_admin) {
    for (const auto& [name, entry] : tree.entries()) names.insert(name);
    return names;
  }
  for (std::string& name : engine::tenants_of(call.engine.options().tenants, peer).names) names.insert(std::move(name));
  Names all;
  for (const std::string& name : names)
    for (std::string& above : tree.path(name)) all.insert(std::move(above));
  return all;
}

json seconds_of(const std::vector<std::pair<std::int64_t, core::Integral>>& slots, double unit) {
  double sum = 0;
  for (const auto& [slot, use] : slots) sum += static_cast<double>(use);
  return sum / unit;
}

json render_row(const engine::Engine& engine, const tenants::Tenants& all, const std::string& name) {
  const Tenant* entry = all.tree().find(name);
  const Tenant* in_force = all.in_force().find(name);
  json row = render_tenant(entry != nullptr ? *entry : Tenant{.name = name});
  row["entry"] = entry != nullptr;
  const core::TenantAmount quota = in_force != nullptr ? in_force->quota : core::TenantAmount{};
  row["served_quota_bytes"] = quota.bytes ? json(quota.bytes->count) : json(nullptr);
  row["served_quota_devices"] = quota.thousandths ? json(*quota.thousandths / 1000.0) : json(nullptr);
  const core::TenantStanding standing = core::tenant_standing(engine.state(), name);
  row["held_bytes"] = standing.bytes.count;
  row["held_devices"] = standing.thousandths / 1000.0;
  row["borrowed_bytes"] = standing.borrowed.count;
  row["leases"] = standing.live;
  row["waiting"] = standing.queued;
  row["parked_bytes"] = standing.parked.count;
  const core::TenantUse use = core::tenant_use(engine.state(), engine.rules(), name, engine.now());
  row["used_byte_seconds"] = seconds_of(use.bytes, 1e9);
  row["used_device_seconds"] = seconds_of(use.devices, 1e12);
  return row;
}

// The rotations in which leases of the tenant, or of one below it, take part.
json render_rotations(const engine::Engine& engine, const std::string& name) {
  json rows = json::array();
  for (const core::Rotation& rotation : engine.state().preemption.rotations) {
    const double part = core::part_of_time(engine.state(), rotation, name);
    if (part <= 0) continue;
    const double slice = static_cast<double>(rotation.slice.count()) / 1e9;
    rows.push_back({{"devices", rotation.devices},
                    {"tier", core::to_string(rotation.tier)},
                    {"leases", rotation.leases.size()},
                    {"slice_seconds", slice},
                    {"turns", 1 / part},
                    {"period_seconds", slice / part},
                    {"share", part}});
  }
  return rows;
}

// The window in which use counts.
json render_window(const core::Rules& rules) {
  const auto seconds = [](Duration duration) { return duration / std::chrono::seconds(1); };
  return {{"seconds", seconds(rules.tenant_window)},
          {"slot_seconds", seconds(rules.tenant_slot)},
          {"half_life_seconds", rules.tenant_half_life ? json(seconds(*rules.tenant_half_life)) : json(nullptr)}};
}

Reply get_tenants(Call& call) {
  const auto all = capability(call);
  if (!all) return problem(all.error());
  const Names names = visible_names(call, (*all)->tree());
  json rows = json::array();
  Names shown;
  for (const Tenant& entry : (*all)->tree().list())
    if (names.contains(entry.name)) {
      rows.push_back(render_row(call.engine, **all, entry.name));
      shown.insert(entry.name);
    }
  for (const std::string& name : names)
    if (!shown.contains(name)) rows.push_back(render_row(call.engine, **all, name));
  return Response{200, {{"tenants", std::move(rows)}, {"window", render_window(call.engine.rules())}}, {}};
}

Error unknown(const std::string& name, const Names& names) {
  const std::vector<std::string_view> known(names.begin(), names.end());
  return not_found(fmt::format("there is no tenant '{}'{}", printable(name), did_you_mean(name, known)),
                   "sublet tenant ls lists the tenants");
}

Reply get_tenant(Call& call) {
  const auto all = capability(call);
  if (!all) return problem(all.error());
  const Names names = visible_names(call, (*all)->tree());
  const std::string& name = call.args[0];
  if (!names.contains(name)) return problem(unknown(name, names));
  json row = render_row(call.engine, **all, name);
  const auto children = (*all)->tree().children();
  json below = json::array();
  if (const auto found = children.find(name); found != children.end())
    for (const std::string& child : found->second)
      if (names.contains(child)) below.push_back(child);
  row["children"] = std::move(below);
  row["window"] = render_window(call.engine.rules());
  row["rotations"] = render_rotations(call.engine, name);
  return Response{200, std::move(row), {}};
}

// ------------------------------------------------------------------------------------ changing

// Quotas beyond the memory of all devices that were ever read can never be served.
Status check_memory(const tenants::Tenants& all, const Tree& tree) {
  const auto has = all.memory(/*lost_too=*/true);
  if (!has) return {};
  const auto [bytes, thousandths] = *has;
  return tree.check_memory(bytes, thousandths);
}

json render_changes(const std::vector<tenants::Change>& changes) {
  json rows = json::array();
  for (const tenants::Change& change : changes) {
    json fields = json::array();
    for (const auto& field : change.fields)
      fields.push_back({{"field", field.name},
                        {"before", field.before.empty() ? json(nullptr) : json(field.before)},
                        {"after", field.after.empty() ? json(nullptr) : json(field.after)}});
    rows.push_back(
        {{"tenant", change.tenant}, {"change", tenants::to_string(change.kind)}, {"fields", std::move(fields)}});
  }
  return rows;
}

json render_effects(const engine::Engine& engine, const std::vector<tenants::Effect>& effects) {
  json rows = json::array();
  for (const tenants::Effect& effect : effects) {
    const core::Lease* lease = core::find(engine.state(), effect.lease);
    rows.push_back({{"lease", to_string(effect.lease)},
                    {"tag", lease == nullptr ? json("") : json(lease->tag)},
                    {"user", lease == nullptr ? json("") : json(lease->user)},
                    {"tenant", effect.tenant},
                    {"effect", tenants::to_string(effect.kind)},
                    {"text", effect.text}});
  }
  return rows;
}

// Puts the tree in force, unless it is a dry run, and answers with what that changes.
Reply change_to(Call& call, tenants::Tenants& all, Tree tree, bool dry_run) {
  if (const Status fits = check_memory(all, tree); !fits) return problem(fits.error());
  json told = {{"dry_run", dry_run},
               {"changes", render_changes(tenants::changes(all.tree(), tree))},
               {"effects", render_effects(call.engine,
                                          tenants::effects(all.tree(), tree, tenants::charges(call.engine.state())))}};
  if (dry_run) return Response{200, std::move(told), {}};
  if (const Status may = call.engine.may_decide(); !may) return problem(may.error());
  all.set(std::move(tree), call.request.peer.user);
  return stored(call.engine, call.remember, "tenants_changed", 200, [&] { return told; });
}

Reply change_to(Call& call, tenants::Tenants& all, const std::vector<Tenant>& entries, bool dry_run) {
  auto tree = Tree::from(entries);
  if (!tree) return problem(tree.error());
  return change_to(call, all, std::move(*tree), dry_run);
}

Reply post_tenants(Call& call) {
  const auto all = capability(call);
  if (!all) return problem(all.error());
  Body body(call.request.body);
  const json* list = body.list("tenants");
  const bool dry_run = body.boolean("dry_run").value_or(false);
  if (const Status finished = body.finish(); !finished) return problem(finished.error());
  if (list == nullptr)
    return problem(bad_request("the field tenants is missing", "send all entries; an empty list removes all"));
  std::vector<Tenant> entries;
  for (const json& each : *list) {
    auto entry = read_tenant(each, fmt::format("tenants[{}].", entries.size()));
    if (!entry) {
      Error error = entry.error();
      error.numbers[tenants::entry_number] = static_cast<std::int64_t>(entries.size());
      return problem(error);
    }
    entries.push_back(std::move(*entry));
  }
  return change_to(call, **all, entries, dry_run);
}

Reply post_tenant(Call& call) {
  const auto all = capability(call);
  if (!all) return problem(all.error());
  const std::string& name = call.args[0];
  const Tenant* known = (*all)->tree().find(name);
  auto entry = change_tenant(call.request.body, known != nullptr ? *known : Tenant{.name = name});
  if (!entry) return problem(entry.error());
  std::vector<Tenant> entries = (*all)->tree().list();
  const auto place = std::ranges::find(entries, name, &Tenant::name);
  if (place == entries.end()) entries.push_back(std::move(entry->tenant));
  else *place = std::move(entry->tenant);
  return change_to(call, **all, entries, entry->dry_run);
}

Reply delete_tenant(Call& call) {
  const auto all = capability(call);
  if (!all) return problem(all.error());
  const auto recursive = query_flag(call.request, "recursive"), dry_run = query_flag(call.request, "dry_run");
  if (!recursive) return problem(recursive.error());
  if (!dry_run) return problem(dry_run.error());
  const std::vector<std::string> gone = (*all)->tree().below(call.args[0]);
  if (gone.empty()) {
    Names names;
    for (const auto& [name, entry] : (*all)->tree().entries()) names.insert(name);
    return problem(unknown(call.args[0], names));
  }
  if (gone.size() > 1 && !recursive->value_or(false))
    return problem(
        Error{Code::InUse,
              fmt::format("tenant {} has {} tenants below it, for example {}", gone[0], gone.size() - 1, gone[1]),
              "remove these first, or all at once: sublet tenant rm --recursive",
              {{"tenants", static_cast<std::int64_t>(gone.size() - 1)}}});
  const Names removed(gone.begin(), gone.end());
  std::vector<Tenant> entries = (*all)->tree().list();
  std::erase_if(entries, [&](const Tenant& entry) { return removed.contains(entry.name); });
  return change_to(call, **all, entries, dry_run->value_or(false));
}

constexpr Route table[] = {
    Route{Method::get, "/v1/tenants", Role::user, Scope::read, get_tenants},
    Route{Method::post, "/v1/tenants", Role::admin, Scope::admin, post_tenants, "tenants,dry_run", "TenantChanges"}
        .granting(Grants::to_waiters),
    Route{Method::get, "/v1/tenants/{name}", Role::user, Scope::read, get_tenant, "", "TenantShown"},
    Route{Method::post, "/v1/tenants/{name}", Role::admin, Scope::admin, post_tenant, "TenantChange", "TenantChanges"}
        .granting(Grants::to_waiters),
    Route{Method::del, "/v1/tenants/{name}", Role::admin, Scope::admin, delete_tenant, "recursive,dry_run",
          "TenantChanges"},
};

}  // namespace

const std::span<const Route> tenant_routes = table;

}  // namespace sublet::http
