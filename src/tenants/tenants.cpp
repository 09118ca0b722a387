// SPDX-License-Identifier: Apache-2.0
#include "tenants/tenants.h"

#include "base/json_text.h"
#include "base/log.h"
#include "state/format.h"
#include "state/tenant_text.h"
#include "tenants/rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace sublet::tenants {
namespace {

// So many waiters are looked at: those within their guarantee are first in the queue.
constexpr std::size_t most_waiters = 1000;
// An event names so many tenants of each kind, and counts all.
constexpr std::size_t most_names = 20;

const core::TenantMemory* held_by(const core::State& state, const std::string& name) {
  const auto id = state.tenants.ids.find(name);
  return id == state.tenants.ids.end() ? nullptr : &core::account(state, id->second).held;
}

std::string event_text(const std::vector<Change>& changes, const std::string& by, Time now) {
  JsonText text;
  text.begin_object().field("type", "tenants").field("at", format_rfc3339(now)).field("by", by);
  for (const Change::Kind kind : {Change::Kind::added, Change::Kind::changed, Change::Kind::removed}) {
    std::size_t count = 0;
    text.key(to_string(kind)).begin_array();
    for (const Change& change : changes)
      if (change.kind == kind && ++count <= most_names) text.value(change.tenant);
    text.end_array().field(fmt::format("{}_count", to_string(kind)), count);
  }
  return text.end_object().take();
}

}  // namespace

Tenants::Tenants(engine::Engine& engine)
    : engine_(engine),
      rows_(engine, "tenants_changed",
            [this](const std::string& name) {
              const Tenant* tenant = tree_.find(name);
              return tenant == nullptr ? store::CapabilityRow{std::string(row_kind), name, {}} : to_row(*tenant);
            }),
      uses_(engine, "", [this](const std::string& name) {
        const core::TenantMemory* held = held_by(engine_.state(), name);
        return to_row(StoredUse{core::tenant_use(engine_.state(), engine_.rules(), name, engine_.now()),
                                held == nullptr ? core::TenantMemory() : *held, core::window_of(engine_.rules()).slot});
      }) {}

void Tenants::set(Tree tree, const std::string& by) {
  const std::vector<Change> changed = changes(tree_, tree);
  if (changed.empty()) return;
  for (const Change& change : changed) rows_.store(change.tenant);
  tree_ = std::move(tree);
  guaranteed_ = tree_.guaranteed();
  put_in_force(/*anew=*/true);
  log::info("{} tenants were changed by {}", changed.size(), by);
  engine_.tell({"tenants", event_text(changed, by, engine_.now())});
}

std::optional<Tenants::Memory> Tenants::memory(bool lost_too) const {
  Memory memory;
  for (const auto& [uuid, device] : engine_.state().devices.by_uuid) {
    if ((device.lost && !lost_too) || !device.read_at) continue;
    memory.bytes += core::capacity_of(device, engine_.rules());
    memory.thousandths += 1000;
  }
  return memory.thousandths == 0 ? std::nullopt : std::optional(memory);
}

// The guarantees of a machine that has lost a device are cut, so that each tenant has its part of what is left.
Tree Tenants::cut_to_memory() const {
  const auto has = memory();
  return has ? tree_.scaled_to(has->bytes, has->thousandths) : tree_;
}

void Tenants::put_in_force(bool anew) {
  Tree wanted = cut_to_memory();
  if (!anew && wanted.entries() == in_force_.entries()) return;
  in_force_ = std::move(wanted);
  is_cut_ = in_force_.entries() != tree_.entries();
  if (const auto done = engine_.decide(core::SetTenants{in_force_.list()}); !done)
    log::error("the tree of tenants is not in force: {}", done.error().detail);
}

// ------------------------------------------------------------------------------------ capability

// A tenant has held its memory while the daemon did not run, as far as its leases are still there.
core::TenantUse Tenants::use_until(Time now, StoredUse stored) const {
  const core::TenantMemory* present = held_by(engine_.state(), stored.use.tenant);
  const core::TenantMemory held = present == nullptr ? core::TenantMemory() : *present;
  stored.held = {std::min(stored.held.bytes, held.bytes), std::min(stored.held.thousandths, held.thousandths)};
  return up_to(now, stored, core::window_of(engine_.rules()));
}

void Tenants::loaded(const store::Loaded& rows, Time now) {
  rows_.clear(), uses_.clear(), loaded_.clear(), held_.clear(), unserved_.clear();
  std::vector<Tenant> entries;
  for (const store::CapabilityRow& row : rows.rows) {
    if (row.kind == use_row_kind) {
      if (auto use = use_from(row)) loaded_.push_back(use_until(now, std::move(*use)));
      else log::error("{}", use.error().detail);
    }
    if (row.kind != row_kind) continue;
    if (auto entry = tenant_from(row)) entries.push_back(std::move(*entry));
    else log::error("{}", entry.error().detail);
  }
  auto tree = Tree::from(entries);
  if (!tree) log::error("the stored tree of tenants is not valid, and not in force: {}", tree.error().detail);
  tree_ = tree ? std::move(*tree) : Tree();
  guaranteed_ = tree_.guaranteed();
  in_force_ = cut_to_memory();
  is_cut_ = in_force_.entries() != tree_.entries();
}

std::vector<core::Fact> Tenants::first_facts() const {
  std::vector<core::Fact> facts;
  if (!tree_.entries().empty() || !loaded_.empty()) facts.emplace_back(core::SetTenants{in_force_.list(), loaded_});
  return facts;
}

void Tenants::happened(const core::Plan& plan, Time) {
  const auto look = [this](const std::string& name) {
    const core::TenantMemory* now = held_by(engine_.state(), name);
    const core::TenantMemory held = now == nullptr ? core::TenantMemory() : *now;
    const auto [before, is_new] = held_.try_emplace(name, held);
    if (!is_new && before->second == held) return;
    before->second = held;
    uses_.store(name);
  };
  for (const core::Lease& lease : plan.changed) {
    const std::string& tenant = lease.tenant.empty() ? lease.user : lease.tenant;
    for (const std::string& name : in_force_.path(tenant)) look(name);
    look(fmt::format("{} {}", tenant, lease.uid));
  }
}

void Tenants::measured(Time now) {
  if (const auto has = memory(); has != memory_) memory_ = has, memory_changed_ = true;
  look_at_waiters(now);
}

// Waiters within their guarantee are the first of the queue.
void Tenants::look_at_waiters(Time now) {
  std::map<LeaseId, Time> waiting;
  if (guaranteed_.stated()) {
    std::vector<core::QueueKey> first;
    engine_.state().queue.all().first(most_waiters, first);
    for (const core::QueueKey& key : first) {
      if (!key.guaranteed || key.limited) break;
      const auto known = unserved_.find(key.lease);
      waiting.emplace(key.lease, known == unserved_.end() ? now : known->second);
    }
  }
  unserved_ = std::move(waiting);
}

Time Tenants::due(Time now) {
  // Use that has left the window need not be stored any more.
  for (const core::TenantUse& use : std::exchange(loaded_, {}))
    if (core::tenant_use(engine_.state(), engine_.rules(), use.tenant, now).bytes.empty()) uses_.store(use.tenant);
  if (std::exchange(memory_changed_, false) && guaranteed_.stated()) put_in_force(/*anew=*/false);
  return Time::never();
}

std::vector<engine::Warning> Tenants::warnings(Time now) const {
  std::vector<engine::Warning> all;
  if (const auto has = memory(); has && is_cut_) {
    const TenantAmount present{guaranteed_.bytes ? std::optional(has->bytes) : std::nullopt,
                               guaranteed_.thousandths ? std::optional(has->thousandths) : std::nullopt};
    all.push_back({"quotas-cut",
                   fmt::format("the quotas of the tenants add up to {}, and the present devices have {}: each quota is "
                               "cut by the same part",
                               core::format_amount(guaranteed_), core::format_amount(present)),
                   "bring the lost device back, or lower the quotas: sublet tenant ls", now});
  }
  for (const auto& [id, since] : unserved_) {
    const core::Lease* lease = core::find(engine_.state(), id);
    if (lease == nullptr || now - since < served_within) continue;
    all.push_back({"guarantee-not-served",
                   fmt::format("{} waits for memory within the guarantee of tenant {} for more than {}",
                               core::name_of(*lease), lease->tenant, format_duration(served_within)),
                   fmt::format("sublet why {} tells what it waits for", to_string(id)), since});
  }
  return all;
}

}  // namespace sublet::tenants
