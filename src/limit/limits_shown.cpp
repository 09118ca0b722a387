// SPDX-License-Identifier: Apache-2.0
// Processes of leases that their limit does not hold, and all that is told of limits.
#include "limit/limits.h"

#include "base/json_text.h"
#include "base/text.h"
#include "limit/process_look.h"
#include "state/format.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

namespace sublet::limit {
namespace {

constexpr std::size_t most_shown = 8;  // codes of errors
// So long the readings have to agree that a living process holds nothing.
constexpr Duration time_unseen = std::chrono::seconds(2);

std::string phrase(Escape why) {
  switch (why) {
    case Escape::never_asked: return "never asked for its limit";
    case Escape::other_user: return "belongs to another user, and never asked for its limit";
    case Escape::mps: return "is a server of MPS, which allocates for other processes";
    case Escape::debugger: return "is under a debugger, and never asked for its limit";
    case Escape::bypassed: return "has the interposer's library, and memory that no limit covers";
    case Escape::uncovered: return "calls a driver that the interposer does not know";
    case Escape::beyond_credit: break;
  }
  return "holds more than it may charge";
}

std::string hint(Escape why, const std::string& lease) {
  switch (why) {
    case Escape::never_asked:
      return "start the program with sublet run --interposer; static programs, and programs without LD_PRELOAD, have "
             "no limit";
    case Escape::other_user: return "start the program as the user of the lease";
    case Escape::mps: return "end the server of MPS";
    case Escape::debugger: return "start the debugger, too, with sublet run --interposer";
    case Escape::bypassed:
      return "the program has the interposer's library: look for dlmopen and RTLD_DEEPBIND in it; if it began while no "
             "daemon ran, start it again";
    case Escape::uncovered: return "update Sublet, and look for a second copy of libcuda.so.1 in the program";
    case Escape::beyond_credit: break;
  }
  return fmt::format("enlarge the lease: sublet resize {} SIZE", lease);
}

// The most frequent errors by code, the others as a sum.
void write_counts(JsonText& out, const credit::Counts& counts) {
  std::vector<std::pair<std::uint32_t, std::int64_t>> errors(counts.errors.begin(), counts.errors.end());
  std::ranges::stable_sort(errors, std::greater{}, [](const auto& error) { return error.second; });
  credit::Counts rest{.other_errors = counts.other_errors};
  out.begin_object()
      .field("launches", counts.launches)
      .field("copied_bytes", counts.copied)
      .field("allocated_bytes", counts.allocated)
      .key("errors")
      .begin_array();
  for (std::size_t i = 0; i < errors.size(); ++i) {
    const auto& [code, number] = errors[i];
    if (i < most_shown) out.begin_object().field("code", std::int64_t{code}).field("count", number).end_object();
    else rest.add({.other_errors = number});
  }
  out.end_array().field("other_errors", rest.other_errors).end_object();
}

}  // namespace

// In a control group of the lease, the users of processes do not count.
bool Limits::is_others(const core::Lease& lease, ProcessRef process) const {
  const auto now = engine_.programs().root().read(process.pid);
  return now && now->ref == process && now->uid != lease.uid &&
         engine_.programs().lease_of_group(process.pid) != lease.id;
}

// Unset: the card does not tell its bytes.
std::optional<Seen> Limits::seen_of(const core::Lease& lease, const std::string& uuid,
                                    const core::ProcessUse& use) const {
  if (!use.used || use.graphics_only) return std::nullopt;
  Seen seen{.used = *use.used};
  const auto process = processes_.find(use.process);
  if (process == processes_.end()) {
    seen.is_others = seen.used > unlimited_slack && is_others(lease, use.process);
    seen.name = engine_.programs().name(use.process);
    return seen;
  }
  const LeaseLimit& limit = limits_.at(process->second.lease);
  const auto at = static_cast<std::size_t>(std::ranges::find(limit.devices, uuid) - limit.devices.begin());
  if (at == limit.devices.size()) return seen;
  seen.credit = limit.desk.ledger(at).credit_of(use.process);
  seen.is_uncovered = limit.desk.is_uncovered(use.process);
  if (!process->second.given.empty()) seen.context = process->second.given[at];
  return seen;
}

// The list of a process's mappings is long, and it is read once for a reason that stays.
void Limits::look_closer(ProcessRef process, Seen& seen, const Escaped* before) const {
  const auto why = judge(seen);
  if (why != Escape::never_asked && why != Escape::beyond_credit) return;
  const proc::ProcRoot& root = engine_.programs().root();
  seen.is_traced = is_traced(root, process);
  if (seen.is_traced && !seen.credit) return;
  if (before != nullptr && (before->why == Escape::bypassed || before->why == why)) {
    seen.is_bypassing = before->why == Escape::bypassed;
    return;
  }
  const Mapped mapped = mapped_by(root, process);
  seen.is_bypassing = seen.credit ? mapped.drivers > 1 : mapped.has_interposer && mapped.drivers > 0;
}

void Limits::look_at(const core::Lease& lease, const core::Device& device, const std::map<Place, Escaped>& before) {
  Bytes outside;
  for (const core::ProcessUse& use : device.reading.processes) {
    if (use.lease != lease.id) continue;
    auto seen = seen_of(lease, device.reading.uuid, use);
    const Place place{lease.id, device.reading.uuid, use.process};
    const auto last = before.find(place);
    if (seen) look_closer(use.process, *seen, last != before.end() ? &last->second : nullptr);
    const auto why = seen ? judge(*seen) : std::nullopt;
    if (!why) continue;
    const bool is_certain = last != before.end();  // whatever the reason was: a debugger may come and go
    escaped_[place] = {*why, engine_.programs().name(use.process), seen->used, is_certain};
    if (is_certain) outside += std::max(seen->used - seen->credit.value_or(Bytes{}), Bytes{});
  }
  const auto limit = limits_.find(lease.id);
  if (limit == limits_.end()) return;
  const auto at = std::ranges::find(limit->second.devices, device.reading.uuid) - limit->second.devices.begin();
  if (at == std::ssize(limit->second.devices)) return;
  (void)store_changes(limit->second, [&] { limit->second.desk.set_outside(static_cast<std::size_t>(at), outside); });
}

// A process that has executed a program without CUDA holds nothing, and does not say so. A process that is wrongly
// taken for one asks for its credit again.
void Limits::take_back_unseen(LeaseLimit& limit, Time now) {
  const core::Lease* lease = core::find(engine_.state(), limit.lease);
  const bool may = lease != nullptr && lease->state == core::LeaseState::active && limit.being_stored.empty();
  for (const ProcessRef ref : limit.members) {
    Process& process = processes_.at(ref);
    const bool was_seen = std::ranges::any_of(process.last, [](const auto& last) { return last.has_value(); });
    if (!may || process.ended || !was_seen || !is_gone(limit, ref, Time{})) process.unseen.reset();
    else if (!process.unseen) process.unseen = now;
    else if (now - *process.unseen >= time_unseen && is_gone(limit, ref, *process.unseen)) {
      (void)store_changes(limit, [&] { limit.desk.restore(ref, {}); });
      process.last.assign(limit.devices.size(), std::nullopt);
    }
  }
}

// Two readings have to agree, because a process may end or begin in the middle of one.
void Limits::look_for_escapes() {
  const auto before = std::exchange(escaped_, {});
  for (const auto& [id, lease] : engine_.state().leases.by_id) {
    if (lease.state != core::LeaseState::active) continue;
    const auto limit = limits_.find(id);
    if (!options_.required && lease.share == 0 && (limit == limits_.end() || limit->second.members.empty())) continue;
    for (const std::string& uuid : lease.devices) {
      const core::Device* device = core::find_device(engine_.state(), uuid);
      if (device != nullptr && device->problem.empty() && !device->lost) look_at(lease, *device, before);
    }
  }
}

std::vector<engine::Warning> Limits::warnings(Time now) const {
  std::vector<engine::Warning> all;
  for (const auto& [place, escaped] : escaped_) {
    const core::Lease* lease = core::find(engine_.state(), place.lease);
    if (!escaped.is_certain || lease == nullptr) continue;
    all.push_back(
        {"uncontrolled",
         fmt::format("process {} ({}) of {} {} on {}", place.process.pid, visible(escaped.name), core::name_of(*lease),
                     phrase(escaped.why), core::device_names(engine_.state(), {place.uuid}).front()),
         hint(escaped.why, to_string(place.lease)), now});
  }
  return all;
}

std::string Limits::lease_field(std::string_view name, const core::Lease& lease) const {
  if (name != "interposer") return {};
  const auto known = limits_.find(lease.id);
  const LeaseLimit* limit = known == limits_.end() ? nullptr : &known->second;
  const auto lives = [&](ProcessRef process) { return !processes_.at(process).ended; };
  const auto count = limit == nullptr ? 0 : std::ranges::count_if(limit->members, lives);
  const auto first = escaped_.lower_bound(Place{lease.id, {}, {}});
  const auto is_of_lease = [&](auto each) { return each != escaped_.end() && each->first.lease == lease.id; };
  bool is_uncontrolled = false;
  for (auto each = first; is_of_lease(each); ++each) is_uncontrolled |= each->second.is_certain;
  const credit::Counts* counts = counts_of(lease.id);
  if (count == 0 && !is_uncontrolled && counts == nullptr) return {};
  JsonText out;
  out.begin_object().field("processes", count).key("devices").begin_array();
  for (std::size_t device = 0; limit != nullptr && device < limit->devices.size(); ++device)
    out.begin_object()
        .field("uuid", limit->devices[device])
        .field("limit_bytes", limit->desk.devices()[device].limit.count)
        .field("credit_bytes", limit->desk.ledger(device).given().count)
        .field("charged_bytes", limit->desk.charged(device).count)
        .end_object();
  out.end_array().key("counts");
  if (counts == nullptr) out.value(nullptr);
  else write_counts(out, *counts);
  out.key("uncontrolled").begin_array();
  for (auto each = first; is_of_lease(each); ++each) {
    if (!each->second.is_certain) continue;
    out.begin_object()
        .field("code", to_string(each->second.why))
        .field("pid", each->first.process.pid)
        .field("name", each->second.name)
        .field("uuid", each->first.uuid)
        .field("used_bytes", each->second.used.count)
        .end_object();
  }
  return out.end_array().end_object().take();
}

}  // namespace sublet::limit
