// SPDX-License-Identifier: Apache-2.0
// The enforcer's passes: which processes hold memory under no lease, by the driver's list.
#include "enforcer/enforcer.h"

#include "base/text.h"
#include "enforcer/ancestry.h"
#include "machine/account.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace sublet::enforcer {
namespace {

// A process that is listed no more is forgotten after this number of intervals, since its memory may come back.
constexpr int intervals_until_gone = 3;
constexpr Duration shortest_pass = std::chrono::seconds(1);

}  // namespace

void Enforcer::measured(Time) {
  Bytes unleased;
  Time newest;
  for (const auto& [uuid, device] : engine_.state().devices.by_uuid) {
    unleased += device.unleased;
    if (device.read_at) newest = std::max(newest, *device.read_at);
  }
  drop_ = drop_ || unleased > unleased_before_ + core::reading_slack;
  unleased_before_ = unleased;
  last_reading_ = newest;
  news_ = true;
}

Time Enforcer::due(Time now) {
  if (drop_ && now - listed_at_ >= shortest_pass) next_pass_ = std::min(next_pass_, now);
  if (now >= next_pass_) {
    if (last_reading_ <= std::max(listed_at_, signalled_at_)) {
      engine_.observer().take_snapshot();  // measured() and another call follow
      next_pass_ = now + shortest_pass;
      return next_pass_;
    }
    next_pass_ = now + options_.interval;
    drop_ = false;
    unleased_.open_sources(options_.accounting);
    for (const auto& [process, id] : std::map(waiting_)) take_up(id, now);
    pass(now);
  }
  std::vector<std::uint64_t> woken = verdict_rows_.due(now);
  if (std::exchange(news_, false)) woken = largest_first();
  for (const std::uint64_t id : woken) {
    const auto found = verdicts_.find(id);
    if (found == verdicts_.end() || !found->second.open()) continue;
    act(found->second, now);  // may close it, and remove closed ones
    const auto still = verdicts_.find(id);
    if (still != verdicts_.end() && still->second.signalled() && still->second.act_at > now)
      verdict_rows_.wake(id, still->second.act_at);
  }
  return std::min(next_pass_, verdict_rows_.next());
}

// The open verdicts. A process that holds much is acted on before those that hold little, then the oldest.
std::vector<std::uint64_t> Enforcer::largest_first() const {
  std::vector<std::pair<std::int64_t, std::uint64_t>> open;
  for (const auto& [process, id] : open_) {
    std::int64_t used = 0;
    if (const auto found = listed_.find(process); found != listed_.end())
      for (const auto& [device, bytes] : found->second.used) used += bytes.count;
    open.emplace_back(-used, id);
  }
  std::ranges::sort(open);
  std::vector<std::uint64_t> order;
  for (const auto& [used, id] : open) order.push_back(id);
  return order;
}

// The listed processes without a lease. `known`: all devices were read well; else nothing is concluded.
Enforcer::Listed Enforcer::list(bool& known, std::set<ProcessRef>& leased) const {
  Listed listed;
  known = !engine_.state().devices.by_uuid.empty() && engine_.machine().probe->problem().empty();
  for (const auto& [uuid, device] : engine_.state().devices.by_uuid) {
    if (!device.problem.empty() || device.lost || !device.read_at || *device.read_at <= listed_at_) {
      known = false;
      continue;
    }
    for (const core::ProcessUse& use : device.reading.processes) {
      if (use.lease) leased.insert(use.process);
      if (use.lease || use.process.start_ticks == 0 || use.used.value_or(Bytes{}) == Bytes{}) continue;
      Found& found = listed[use.process];
      found.used[uuid] = *use.used;
      found.draws = found.draws && use.graphics_only;
    }
  }
  for (const ProcessRef process : leased) listed.erase(process);
  return listed;
}

void Enforcer::pass(Time now) {
  bool known = false;
  std::set<ProcessRef> leased;
  Listed listed = list(known, leased);
  if (!known) return;
  listed_at_ = last_reading_;
  listed_ = std::move(listed);
  std::erase_if(approved_, [this](const auto& entry) { return !listed_.contains(entry.first); });
  for (const auto& [process, found] : listed_) see(process, found, now);
  std::vector<std::uint64_t> open;
  for (const auto& [process, id] : open_)
    if (!listed_.contains(process)) open.push_back(id);
  for (const std::uint64_t id : open) missed(verdicts_.at(id), leased, now);
}

void Enforcer::see(ProcessRef process, const Found& found, Time now) {
  if (waiting_.contains(process)) return;
  const auto known = open_.find(process);
  auto record = unleased_.describe(process);
  if (!record) return;  // it has just ended
  const auto name = machine::find_account_name(record->uid);
  const std::string user = name.value_or(fmt::format("{}", record->uid));
  if (const Rule* approval = enforcer::approval_of(rules_, {*record, user}, now)) {
    approved_.insert_or_assign(process, approval->id);
    if (known != open_.end())
      close(verdicts_.at(known->second), Outcome::approved, now, fmt::format("approval {}", approval->id));
    return;
  }
  approved_.erase(process);
  if (known == open_.end()) {
    const auto inode = unleased_.hold(process, 0);
    if (!inode) return;
    Verdict verdict;
    verdict.id = ++last_verdict_;
    verdict.record.process = process;
    verdict.inode = *inode;
    verdict.opened_at = now;
    open_.emplace(process, verdict.id);
    verdicts_.emplace(verdict.id, std::move(verdict));
  }
  Verdict& verdict = verdicts_.at(open_.at(process));
  // Facts that a process may change about itself count as they are now.
  see_ancestry(verdict, *record);
  verdict.record = std::move(*record);
  verdict.user = user;
  verdict.unnamed = !name;
  const bool first = verdict.sightings == 0;
  if (first || now - verdict.last_seen >= options_.interval / 2) {
    ++verdict.sightings;
    verdict.last_seen = now;
  }
  verdict.hold_all(now, found.used);
  const bool drew = std::exchange(verdict.draws, found.draws);
  if (drew && !verdict.draws && verdict.policy != Policy::enforce)  // as long as it only drew, it was none to be ended
    verdict.count_anew(now, "computes", "it does not only draw any more");
  const bool other = take_policy(verdict, now) || drew != verdict.draws;
  if (first) verdict.note(now, "seen", fmt::format("it holds {} under no lease", format_size(verdict.used())));
  if (verdict.sightings <= sightings_needed || other) changed(verdict, first);
}

// Parents that have ended stay in the record. The sources are asked when the parents by the process table change.
void Enforcer::see_ancestry(Verdict& verdict, proc::ProcessRecord& record) {
  std::vector<ProcessRef> shown;
  for (const proc::Ancestor& each : record.ancestry) shown.push_back(each.process);
  record.ancestry = keep_ancestry(verdict.record.ancestry, record.ancestry);
  if (record.ancestry != verdict.record.ancestry) changed(verdict, false);
  record.missing = std::move(verdict.record.missing);
  if (verdict.shown == shown) return;
  verdict.shown = std::move(shown);
  unleased_.trace(record.process, [this, id = verdict.id](const machine::Parents& parents) { traced(id, parents); });
}

void Enforcer::traced(std::uint64_t id, const machine::Parents& parents) {
  const auto found = verdicts_.find(id);
  if (found == verdicts_.end()) return;
  Verdict& verdict = found->second;
  if (!parents.asked) {
    verdict.shown.reset();  // the next pass asks again
    return;
  }
  bool taken = false;
  proc::ProcessRecord& record = verdict.record;
  Ancestry merged = merge_ancestry(record.ancestry, parents.ancestry, taken);
  if (!taken || (merged == record.ancestry && parents.missing == record.missing)) return;
  record.ancestry = std::move(merged);
  record.missing = parents.missing;
  changed(verdict, false);
}

void Enforcer::missed(Verdict& verdict, const std::set<ProcessRef>& leased, Time now) {
  const ProcessRef process = verdict.record.process;
  if (leased.contains(process)) return close(verdict, Outcome::leased, now);
  if (unleased_.lives(process)) {
    // It lives and holds nothing: after some time nothing is to be explained, and nobody is to be ended.
    const Time since = std::max(verdict.last_seen, engine_.clock().undisturbed_since());
    if (now - since >= intervals_until_gone * options_.interval) close(verdict, Outcome::gone, now);
    return;
  }
  if (!verdict.signalled()) return close(verdict, Outcome::gone, now);
  if (verdict.stage != Stage::terminating || verdict.descendants == 0) close(verdict, Outcome::ended, now);
}

}  // namespace sublet::enforcer
