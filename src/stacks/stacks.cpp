// SPDX-License-Identifier: Apache-2.0
// The requests of callers, and the stored rows.
#include "stacks/stacks.h"

#include "base/log.h"
#include "base/text.h"
#include "engine/like_devices.h"
#include "stacks/steps.h"
#include "state/reconfigured.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>

namespace sublet::stacks {
namespace {

constexpr Duration pull_timeout = std::chrono::hours(6);  // images with models are large

// `uid`: of the caller.
Error in_use(const Stack& stack, std::uint32_t uid) {
  const std::string name = printable(stack.name);
  if (stack.phase == Phase::stopping)
    return {Code::InUse, fmt::format("stack {} is being brought down", name),
            "wait a moment, or acquire it with --wait"};
  const Use& use = stack.use;
  std::string until = use.expires_at ? " until " + format_rfc3339(*use.expires_at) : "";
  return {Code::InUse,
          fmt::format("stack {} is {}: user {}{} has acquired it{}", name, to_string(stack.phase), use.user,
                      use.owner.empty() ? "" : fmt::format(" ({})", printable(use.owner)), until),
          use.uid == uid
              ? fmt::format("sublet stack renew {0} keeps it, and sublet stack release {0} gives it back", name)
              : "wait until it is released: sublet stack acquire --wait"};
}

}  // namespace

std::string tag_of(std::string_view stack) { return "stack-" + std::string(stack); }

bool Entry::runs() const {
  return seen && std::ranges::any_of(seen->containers, [](const auto& each) { return each.status == "running"; });
}

std::string_view Entry::state() const { return stack.phase == Phase::down && runs() ? "up" : to_string(stack.phase); }

Stacks::Stacks(engine::Engine& engine, compose::Worker& worker, Options options)
    : engine_(engine),
      worker_(worker),
      options_(std::move(options)),
      rows_(engine, "stack_changed",
            [this](const std::string& name) {
              const Entry* entry = find(name);
              return entry == nullptr || entry->stack.blank() ? store::CapabilityRow{"stack", name, ""}
                                                              : to_row(entry->stack);
            }),
      reclaimable_(engine, core::PauseCauseKind::released) {
  worker_.on_observation([this](const compose::Observation& seen) { observed(seen); });
  worker_.on_engine([this](const compose::Engine& now) { engine_changed(now); });
}

// -------------------------------------------------------------------------------- reading

const Entry* Stacks::find(std::string_view name) const {
  const auto found = entries_.find(name);
  return found == entries_.end() ? nullptr : &found->second;
}

const Entry* Stacks::find(LeaseId lease) const {
  const auto found = by_lease_.find(lease);
  return found == by_lease_.end() ? nullptr : find(found->second);
}

Entry* Stacks::mutable_find(std::string_view name) {
  const auto found = entries_.find(name);
  return found == entries_.end() ? nullptr : &found->second;
}

Result<Rule> Stacks::rule(const Entry& entry) const {
  if (!entry.found)
    return not_found(fmt::format("the Compose file of stack {} was not found", printable(entry.stack.name)),
                     "sublet stack ls shows where stacks are found");
  if (entry.found->error) return *entry.found->error;
  return rule_of(*entry.found, options_.label);
}

std::optional<Health> Stacks::label_fault(const Entry& entry) const {
  if (!entry.found || entry.found->error || rule_of(*entry.found, options_.label)) return {};
  const bool any = std::ranges::any_of(entry.found->services, [&](const compose::Service& each) {
    const auto label = each.labels.find(options_.label.key);
    return label != each.labels.end() && label->second == options_.label.value;
  });
  return any ? Health::many_labels : Health::no_label;
}

Result<Size> Stacks::size(const Entry& entry) const {
  const auto file = parse_extension(entry.stack.name, entry.found ? entry.found->extension : "");
  if (!file) return file.error();
  std::vector<std::string> like;
  if (file->gpu_spec) {
    const auto devices = engine::like_devices(engine_, *file->gpu_spec, {}, 1);
    if (!devices) return devices.error();
    like = *devices;
  }
  std::vector<Bytes> capacities;
  for (const auto& [uuid, device] : engine_.state().devices.by_uuid)
    if (device.read_at && (like.empty() || std::ranges::count(like, uuid) > 0))
      capacities.push_back(core::usable_of(device, engine_.rules()));
  const Size size = choose_size(entry.stack.set, *file, entry.stack.peak, std::move(capacities));
  if (size.vram > Bytes{}) return size;
  return unavailable(fmt::format("the size of stack {} is not known: the daemon has not read any GPU yet",
                                 printable(entry.stack.name)),
                     "sublet gpus shows the devices; or set a size (sublet stack set --vram)");
}

Status Stacks::known() const {
  if (looked_) return {};
  return unavailable(
      "the Compose files of the stacks are being read" + (worker_problem_.empty() ? "" : ": " + worker_problem_),
      "try again in a moment");
}

Status Stacks::available() const {
  if (!worker_problem_.empty())
    return unavailable("stacks cannot be started: " + worker_problem_,
                       "leases and queue stay as they are; try again later");
  if (container_engine_ && !container_engine_->reachable)
    return unavailable("the container engine cannot be reached: " + container_engine_->why,
                       "start the engine, or name its socket in stacks.engine; leases and queue stay as they are");
  if (container_engine_ && container_engine_->program.empty())
    return unavailable("no Compose program was found: " + container_engine_->why,
                       "install Docker Compose, or name its program by stacks.compose");
  return {};
}

// -------------------------------------------------------------------------------- settings

Status Stacks::set(std::string_view name, const Settings& changes) {
  Entry* entry = mutable_find(name);
  if (entry == nullptr) return not_found(fmt::format("there is no stack '{}'", printable(name)));
  entry->stack.set = changes;
  changed(*entry);
  return {};
}

Status Stacks::remove(std::string_view name) {
  Entry* entry = mutable_find(name);
  if (entry == nullptr) return not_found(fmt::format("there is no stack '{}'", printable(name)));
  if (entry->stack.is_up() || entry->stack.acquired()) {
    return Error{Code::InUse, fmt::format("stack {} is {}", printable(name), to_string(entry->stack.phase)),
                 fmt::format("bring it down first: sublet stack release {} --down", printable(name))};
  }
  if (entry->stack.adopted.empty() && entry->found) {
    return bad_request(fmt::format("stack {} was not adopted: it is found in {}", printable(name), entry->found->file),
                       "move its Compose file to another place");
  }
  entries_.erase(entries_.find(name));
  rows_.change(std::string(name));
  watch(false);
  return {};
}

// -------------------------------------------------------------------------------- acquiring

Result<core::Submit> Stacks::request(std::string_view name, const Wish& wish) const {
  const Entry* entry = find(name);
  if (entry == nullptr) return not_found(fmt::format("there is no stack '{}'", printable(name)));
  if (const Status may = available(); !may) return may.error();
  if (const auto good = rule(*entry); !good) return good.error();
  const Stack& stack = entry->stack;
  if (stack.acquired() || stack.phase == Phase::stopping) return in_use(stack, wish.uid);
  if (const Status own = check_containers(*entry, entry->found->directory); !own) return own.error();
  const auto size = this->size(*entry);
  if (!size) return size.error();
  core::Submit submit;
  core::Lease& lease = submit.lease;
  lease.pausable = size->pausable ? core::Pausable::automatic : core::Pausable::no;
  lease.uid = wish.uid;
  lease.user = wish.user;
  lease.tenant = wish.tenant;
  lease.consumer = lease.tag = tag_of(stack.name);
  lease.tier = size->tier;
  lease.priority = wish.priority;
  lease.vram = size->vram;
  lease.device_count = size->devices;
  lease.share = size->share;
  if (!size->gpu_spec.empty()) {
    auto devices = engine::like_devices(engine_, size->gpu_spec, {}, size->devices);
    if (!devices) return devices.error();
    lease.wanted_devices = std::move(*devices);
  }
  lease.owner.kind = core::OwnerKind::token;
  lease.token = wish.token_hash;
  submit.held = true;
  return submit;
}

void Stacks::submitted(std::string_view name, const Wish& wish, const core::Lease& lease) {
  Entry& entry = *mutable_find(name);
  acquire(entry.stack,
          {.uid = wish.uid,
           .user = wish.user,
           .owner = wish.owner,
           .token_hash = wish.token_hash,
           .lease = lease.id,
           .ttl = wish.ttl.value_or(options_.ttl),
           .tier = lease.tier},
          engine_.now());
  by_lease_[lease.id] = entry.stack.name;
  entry.booked.clear();
  entry.last_lines.clear();
  entry.last_health.reset();
  entry.last_state.clear();
  entry.lines_done = false;
  entry.lines_by = {};
  if (lease.state == core::LeaseState::active) granted(entry.stack, engine_.now());
  entry.devices = lease.devices;
  changed(entry);
}

Status Stacks::claim(std::string_view name) {
  const Entry* entry = find(name);
  const core::Lease* lease = entry != nullptr ? engine_.find(entry->stack.use.lease) : nullptr;
  if (lease == nullptr || lease->state != core::LeaseState::offered) return {};
  const auto done = engine_.decide(core::Claim{lease->id});
  return done ? Status() : Status(done.error());
}

Status Stacks::take_over(std::string_view name, const Wish& wish) {
  Entry* entry = mutable_find(name);
  if (entry == nullptr || entry->stack.phase != Phase::released)
    return Error{Code::Stale, fmt::format("stack {} is not released any more", printable(name)), "acquire it again"};
  if (const std::string why = why_of_no_use(*entry); !why.empty()) {
    fail(entry->stack, "it was not ready any more: " + why, engine_.now());
    changed(*entry);
    return in_use(entry->stack, wish.uid);
  }
  const auto size = this->size(*entry);
  const bool may_pause = !size || size->pausable;
  const Stack before = entry->stack;
  stacks::take_over(entry->stack,
                    {.uid = wish.uid,
                     .user = wish.user,
                     .owner = wish.owner,
                     .token_hash = wish.token_hash,
                     .ttl = wish.ttl.value_or(options_.ttl),
                     .tier = size ? size->tier : before.use.tier},
                    is_usable(*entry), is_away(*entry) ? "its lease is paused, and waits for its memory" : "",
                    options_.ready_timeout, engine_.now());
  changed(*entry);
  const auto done = engine_.decide(core::Amend{.lease = entry->stack.use.lease,
                                               .tier = entry->stack.use.tier,
                                               .priority = wish.priority,
                                               .pausable = may_pause ? core::Pausable::automatic : core::Pausable::no,
                                               .charged = core::Charged{wish.uid, wish.user, wish.tenant}});
  const Status resumed = done ? resume(*entry) : Status(done.error());
  if (resumed) return {};
  entry->stack = before;
  changed(*entry);
  return resumed.error();
}

bool Stacks::is_away(const Entry& entry) const {
  const core::Lease* lease = engine_.find(entry.stack.use.lease);
  return lease != nullptr && lease->parking.has_value();
}

// Why a released stack is of no use to anybody; "": it is, or will be.
std::string Stacks::why_of_no_use(const Entry& entry) const {
  const core::Lease* lease = engine_.find(entry.stack.use.lease);
  if (lease != nullptr && lease->state == core::LeaseState::poisoned) return "its program can never run again";
  if (!entry.seen || !is_final(entry.readiness.health)) return {};
  return is_away(entry) && entry.readiness.health == Health::unhealthy ? "" : entry.readiness.text;
}

bool Stacks::is_usable(const Entry& entry) const {
  return !is_away(entry) && (!entry.seen || entry.readiness.health == Health::ready);
}

Status Stacks::resume(const Entry& entry) {
  const LeaseId id = entry.stack.use.lease;
  engine_.observer().touch(id);
  if (!is_away(entry)) return {};
  const auto done = engine_.decide(core::Resume{id});
  return done ? Status() : Status(done.error());
}

Result<Entry*> Stacks::of_use(std::string_view name) {
  Entry* entry = mutable_find(name);
  if (entry == nullptr) return not_found(fmt::format("there is no stack '{}'", printable(name)));
  if (entry->stack.acquired()) return entry;
  return Error{Code::Stale, fmt::format("stack {} is {}, and nobody has acquired it", printable(name), entry->state()),
               fmt::format("acquire it: sublet stack acquire {}", printable(name))};
}

Status Stacks::renew(std::string_view name, std::optional<Duration> ttl) {
  const auto found = of_use(name);
  if (!found) return found.error();
  if (const Status back = resume(**found); !back) return back;
  Use& use = (*found)->stack.use;
  use.ttl = ttl.value_or(use.ttl);
  if (use.expires_at) use.expires_at = parked_since((*found)->stack).value_or(engine_.now()) + use.ttl;
  changed(**found);
  return {};
}

Status Stacks::restart(std::string_view name) {
  const auto found = of_use(name);
  if (!found) return found.error();
  Entry& entry = **found;
  const Phase phase = entry.stack.phase;
  if (phase != Phase::ready && phase != Phase::starting)
    return Error{Code::InUse, fmt::format("stack {} is {}", printable(name), to_string(phase)),
                 "wait until it is ready: sublet stack status shows its state"};
  if (is_away(entry))
    return Error{Code::InUse, fmt::format("the lease of stack {} is paused", printable(name)),
                 fmt::format("resume it first: sublet stack renew {}", printable(name))};
  if (const auto good = rule(entry); !good) return good.error();
  if (const Status may = available(); !may) return may;
  stacks::restart(entry.stack, engine_.now());
  entry.booked.clear();
  changed(entry);
  return {};
}

void Stacks::pull(std::string_view name, std::function<void(Status)> done) {
  const Entry* entry = find(name);
  if (entry == nullptr) return done(not_found(fmt::format("there is no stack '{}'", printable(name))));
  if (const auto good = rule(*entry); !good) return done(good.error());
  worker_.pull({.name = entry->stack.name,
                .project = entry->found->project,
                .directory = entry->found->directory,
                .resolved = entry->found->resolved,
                .overlay = {},
                .timeout = pull_timeout},
               std::move(done));
}

Status Stacks::release(std::string_view name, After after, bool revoke) {
  Entry* entry = mutable_find(name);
  const bool idle = entry != nullptr && after == After::down && entry->stack.phase == Phase::released;
  if (!idle) {
    const auto found = of_use(name);
    if (!found) return found.error();
  }
  Stack& stack = entry->stack;
  const Stack before = stack;
  stacks::release(stack, after, "", engine_.now());
  changed(*entry);
  if (before.phase == Phase::queued) {
    by_lease_.erase(before.use.lease);
    const auto done = engine_.decide(core::Release{.lease = before.use.lease, .force = true, .revoke = revoke});
    if (!done && engine_.find(before.use.lease) != nullptr) {
      by_lease_[before.use.lease] = stack.name;
      stack = before;
      changed(*entry);
      return done.error();
    }
  } else if (stack.phase == Phase::released) {
    make_spot(*entry);
  }
  return {};
}

// From here on, the core ends the lease when a lease of a higher tier needs its memory. drive() repeats what failed.
void Stacks::make_spot(Entry& entry) {
  const core::Lease* lease = engine_.find(entry.stack.use.lease);
  if (lease == nullptr || lease->ended()) return;
  if (lease->tier == core::Tier::spot && lease->pausable == core::Pausable::no) return entry.trouble.clear();
  const auto done = engine_.decide(
      core::Amend{.lease = lease->id, .tier = core::Tier::spot, .priority = 0, .pausable = core::Pausable::no});
  if (!done) try_again(entry, "its lease could not become a spot lease: " + done.error().detail);
}

// -------------------------------------------------------------------------------- rows

void Stacks::loaded(const store::Loaded& rows, Time now) {
  by_lease_.clear(), rows_.clear(), reclaimable_.loaded();
  forgiven_ = engine_.clock().time_asleep();
  for (auto& [name, entry] : entries_) {
    Entry fresh;
    fresh.stack.name = name;
    fresh.found = std::move(entry.found);
    fresh.seen = std::move(entry.seen);
    fresh.readiness = std::move(entry.readiness);
    fresh.call = entry.call;  // the worker still works on it, and another call waits for it
    entry = std::move(fresh);
  }
  for (const store::CapabilityRow& row : rows.rows) {
    if (row.kind != "stack") continue;
    auto stack = from_row(row);
    if (!stack) {
      log::error("{}", stack.error().detail);
      continue;
    }
    Entry& entry = entries_[row.key];
    entry.stack = std::move(*stack);
    entry.told = {entry.stack.phase, entry.stack.why};
    if (!parked_since(entry.stack)) forgive(entry.stack, engine_.rules().reconnect, now);
    if (entry.stack.use.lease) by_lease_[entry.stack.use.lease] = row.key;
  }
  describe_at_ = now;
  look_at_all();
}

void Stacks::changed(Entry& entry) {
  Stack& stack = entry.stack;
  rows_.change(stack.name);
  if (entry.told == std::pair(stack.phase, stack.why)) return;
  if (entry.told.first != stack.phase) {
    entry.retry_at = {};
    entry.trouble.clear();
  }
  entry.told = {stack.phase, stack.why};
  const nlohmann::json data{{"type", "stack"},        {"at", format_rfc3339(engine_.now())},
                            {"stack", stack.name},    {"state", to_string(stack.phase)},
                            {"user", stack.use.user}, {"lease", stack.use.lease ? to_string(stack.use.lease) : ""},
                            {"text", stack.why}};
  engine_.tell({"stack", data.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)});
  log::info({.lease = stack.use.lease, .program = {}}, "stack {}: {}{}{}", printable(stack.name),
            to_string(stack.phase), stack.why.empty() ? "" : ": ",
            printable(stack.why.substr(0, stack.why.find('\n'))));
}

std::vector<engine::Warning> Stacks::warnings(Time now) const {
  if (const Status may = available(); !may) return {{"stacks", may.error().detail, may.error().hint, now}};
  return {};
}

}  // namespace sublet::stacks
