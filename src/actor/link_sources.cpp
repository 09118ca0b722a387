// SPDX-License-Identifier: Apache-2.0
#include "actor/link_sources.h"

#include "base/clock.h"
#include "base/text.h"
#include "proc/ended_members.h"

#include <fmt/format.h>

#include <unistd.h>
#include <algorithm>
#include <unordered_set>

namespace sublet::actor {
namespace {

using proc::ParentSource;
using Kind = proc::ProcessEvent::Kind;

constexpr std::size_t most_ancestors = 128;
constexpr std::size_t names_at_once = 64;  // a drain reads no more processes
constexpr std::size_t accounting_records = 65536;
constexpr std::int64_t second_ns = 1'000'000'000;
constexpr std::int64_t patience_ns = 600 * second_ns;  // between two tries to open the connector
constexpr std::int64_t silence_ns = 60 * second_ns;    // of the accounting file, while processes end
constexpr std::int64_t tick_ns = 10'000'000;           // of start times
// A start is older than the report about it, and accounting has whole seconds.
constexpr std::int64_t slack_ns = 3 * second_ns;

// When a process of /proc was started, as CLOCK_MONOTONIC in ns.
std::int64_t started_ns(std::uint64_t ticks) { return static_cast<std::int64_t>(ticks) * tick_ns - slept_ns(); }
std::uint64_t ticks_at(std::int64_t monotonic) {
  return static_cast<std::uint64_t>(std::max<std::int64_t>(monotonic + slept_ns(), 0) / tick_ns);
}
Time wall_at(std::int64_t monotonic) { return {wall_time().ns - (monotonic_ns() - monotonic)}; }
std::int64_t monotonic_at(Time wall) { return monotonic_ns() - (wall_time().ns - wall.ns); }

}  // namespace

// A process of the chain, with the time at which it certainly lived.
struct LinkSources::Node {
  proc::Ancestor about;
  std::int64_t at_ns = 0;  // CLOCK_MONOTONIC in ns
};

LinkSources::LinkSources(const proc::ProcRoot& root, Opener opener) : root_(root), opener_(std::move(opener)) {}

std::string LinkSources::since() const { return format_rfc3339(wall_at(records_.complete_since_ns())); }

LinkSources::Condition LinkSources::listen() {
  if (source_ == nullptr) {
    // A refusal lasts, and a kernel that does not answer costs time.
    if (!refusal_.empty() && monotonic_ns() < try_again_ns_) return {false, refusal_};
    auto opened = opener_();
    if (!opened) {
      refusal_ = opened.error().detail;
      if (was_open_) refusal_ += "; restart sublet-actor, which can open it only at its start";
      try_again_ns_ = monotonic_ns() + patience_ns;
      return {false, refusal_};
    }
    source_ = std::move(*opened);
    was_open_ = true;
    records_.begin(monotonic_ns());
  }
  drain();
  if (source_ == nullptr) return {false, "the process connector was lost"};
  return {true, fmt::format("complete since {}", since())};
}

// The last record tells whether accounting works. All records are read only when a parent is looked for.
LinkSources::Condition LinkSources::account(const std::string& path) {
  if (path != path_) forget_accounting();
  path_ = path;
  if (path_.empty()) return {false, "enforcer.accounting names no file"};
  const auto read = proc::read_accounting(path_, ::geteuid(), 1);
  if (!read) return {false, read.error().detail};
  if (read->empty()) return {false, fmt::format("{} has no records: is accounting on?", printable(path_))};
  const Time last = read->back().ended;
  // The kernel stops to write on a full file system, and when somebody turns the accounting off.
  if (last_end_ns_ != 0 && wall_at(last_end_ns_).ns - last.ns > silence_ns)
    return {false, fmt::format("{} has no record since {}, and processes have ended: is accounting on?",
                               printable(path_), format_rfc3339(last))};
  return {true, fmt::format("the last record is of {}", format_rfc3339(last))};
}

void LinkSources::forget_accounting() {
  accounting_.clear();
  with_pid_.clear();
  accounting_read_ns_ = 0;
}

void LinkSources::read_accounting() {
  forget_accounting();
  accounting_read_ns_ = monotonic_ns();
  auto read = proc::read_accounting(path_, ::geteuid(), accounting_records);
  if (!read) return;  // the next account() tells why
  accounting_ = std::move(*read);
  for (std::size_t i = 0; i < accounting_.size(); ++i) with_pid_[accounting_[i].pid].push_back(i);
}

void LinkSources::drain() {
  if (source_ == nullptr) return;
  std::vector<proc::ProcessEvent> events;
  const auto reading = source_->read(events);
  for (const proc::ProcessEvent& event : events) {
    records_.take(event);
    if (event.kind == Kind::exit) last_end_ns_ = event.at_ns;
  }
  if (reading == EventSource::Reading::overrun) records_.begin(monotonic_ns());
  if (reading == EventSource::Reading::failed) source_.reset();
  read_names(events);
}

// The reports have no names. Processes that live a moment can be read.
void LinkSources::read_names(const std::vector<proc::ProcessEvent>& events) {
  std::unordered_set<std::int32_t> ended, asked;
  for (auto event = events.rbegin(); event != events.rend() && asked.size() < names_at_once; ++event) {
    if (event->kind == Kind::exit) ended.insert(event->pid);
    else if (event->kind != Kind::acknowledged && !ended.contains(event->pid)) asked.insert(event->pid);
  }
  for (const std::int32_t pid : asked)
    if (const auto now = root_.read(pid)) records_.describe(now->ref, now->uid, now->comm);
}

// -------------------------------------------------------------------------------- ancestry

Traced LinkSources::trace(ProcessRef process) {
  drain();
  Traced traced;
  Node at{{.process = process}, started_ns(process.start_ticks)};
  std::unordered_set<std::int32_t> seen{process.pid};
  while (traced.ancestry.size() < most_ancestors) {
    auto parent = parent_of(at, traced.missing);
    // A pid that comes twice is of two processes, or the records are torn.
    if (!parent || !seen.insert(parent->about.process.pid).second) break;
    traced.ancestry.push_back(parent->about);
    at = std::move(*parent);
  }
  return traced;
}

LinkSources::Walk::Walk(LinkSources& links, Wanted is_wanted) : links_(links), is_wanted_(std::move(is_wanted)) {
  links_.drain();
}

LinkSources::Walk::Key LinkSources::Walk::key_of(const Node& node) {
  const ProcessRef process = node.about.process;
  return {process, process.start_ticks == 0 ? node.at_ns : 0};
}

bool LinkSources::Walk::finds(ProcessRef process) {
  std::vector<Key> passed;
  std::unordered_set<std::int32_t> seen;
  std::string missing;
  bool found = false, whole = false;
  for (Node at{{.process = process}, started_ns(process.start_ticks)}; passed.size() <= most_ancestors;) {
    const auto known = judged_.find(key_of(at));
    whole = known != judged_.end();
    if (whole) found = known->second;
    if (whole || !seen.insert(at.about.process.pid).second) break;
    passed.push_back(key_of(at));
    found = is_wanted_(at.about);
    if (found) break;
    ++steps_;
    auto parent = links_.parent_of(at, missing);
    whole = !parent;
    if (whole) break;
    at = std::move(*parent);
  }
  // A walk that was cut short says nothing about the processes on its way.
  if (!found && !whole) passed.resize(1);
  for (const Key& key : passed) judged_.emplace(key, found);
  return found;
}

const ForkRecord* LinkSources::record_of(const Node& node) const {
  const ForkRecord* found = records_.find(node.about.process.pid, node.at_ns + slack_ns);
  if (found == nullptr || (found->ended_ns != 0 && found->ended_ns + slack_ns < node.at_ns)) return nullptr;
  const std::uint64_t known = node.about.process.start_ticks;
  const std::uint64_t its = found->forked_ns != 0 ? ticks_at(found->forked_ns) : 0;
  return proc::may_be_same(node.about.process, {node.about.process.pid, known == 0 ? 0 : its}) ? found : nullptr;
}

std::optional<LinkSources::Node> LinkSources::parent_of(const Node& child, std::string& missing) {
  const std::int32_t pid = child.about.process.pid;
  if (pid <= 1) return {};
  auto now = root_.read(pid);
  const bool lives = now && now->ref == child.about.process;
  const ForkRecord* record = record_of(child);
  if (record != nullptr && record->parent > 0 && !(lives && now->ppid == record->parent)) {
    const bool forked = record->forked_ns != 0;
    return identify(record->parent, forked ? record->forked_ns : record->ended_ns, ParentSource::connector, forked);
  }
  if (lives) {
    if (now->ppid <= 0) return {};
    auto parent = root_.read(now->ppid);
    const bool torn = parent && parent->ref.start_ticks > now->ref.start_ticks;
    const std::optional<proc::ProcessInfo> above = parent && !torn ? std::optional(*parent) : std::nullopt;
    if (record == nullptr)
      if (auto leader = reaped(*now, above, missing)) return leader;
    if (!above) return {};
    return Node{{.process = above->ref, .uid = above->uid, .name = above->comm, .dead = above->dead()}, child.at_ns};
  }
  if (const proc::AccountingRecord* told = accounting_of(pid, child.at_ns); told != nullptr && told->parent > 0)
    return identify(told->parent, std::min(monotonic_at(told->ended) + slack_ns, monotonic_ns()),
                    ParentSource::accounting, false);
  missing = source_ == nullptr
                ? fmt::format("the parent of process {} is not known: process {} has ended; no record", pid, pid)
                : fmt::format("the parent of process {} ended before {}; no record", pid, since());
  return {};
}

// A process whose parent is outside of its session may have got this parent when the first one ended. The process group
// and the session tell a process above it that it came from.
std::optional<LinkSources::Node> LinkSources::reaped(const proc::ProcessInfo& child,
                                                     const std::optional<proc::ProcessInfo>& parent,
                                                     std::string& missing) {
  if (parent && parent->session == child.session) return {};
  const bool complete = source_ != nullptr && started_ns(child.ref.start_ticks) > records_.complete_since_ns();
  if (complete) return {};  // a fork by its present parent would be recorded; this reading is older than the report
  for (const std::int32_t leader : {child.pgrp, child.session}) {
    if (leader <= 1 || leader == child.ref.pid || (parent && leader == parent->ref.pid)) continue;
    Node found = identify(leader, started_ns(child.ref.start_ticks), ParentSource::leader, false);
    if (!found.about.dead || !found.about.name.empty() || found.about.process.start_ticks != 0) return found;
    missing = fmt::format("process {}, which led the session or process group of process {}, has ended; no record",
                          leader, child.ref.pid);
  }
  if (missing.empty() && parent && parent->ref.pid == 1)
    missing = fmt::format("process {} may have had another parent that ended before {}; no record", child.ref.pid,
                          source_ == nullptr ? "now" : since());
  return {};
}

// Finds the process that had this pid at this time.
LinkSources::Node LinkSources::identify(std::int32_t pid, std::int64_t at_ns, ParentSource source, bool certain) {
  Node node{{.process = {pid, 0}, .uid = proc::unknown_uid, .source = source, .certain = certain}, at_ns};
  proc::Ancestor& about = node.about;
  if (const auto now = root_.read(pid); now && started_ns(now->ref.start_ticks) <= at_ns + tick_ns) {
    about.process = now->ref;
    about.uid = now->uid;
    about.name = now->comm;
    about.dead = now->dead();
    return node;
  }
  about.dead = true;
  if (const ForkRecord* record = record_of(node)) {
    about.process.start_ticks = record->start_ticks != 0 ? record->start_ticks
                                : record->forked_ns != 0 ? ticks_at(record->forked_ns)
                                                         : 0;
    if (record->start_ticks != 0) about.uid = record->uid;
    about.name = record->name;
    if (record->ended_ns != 0) about.ended = wall_at(record->ended_ns);
  }
  if (const proc::AccountingRecord* told = accounting_of(pid, at_ns)) {
    if (about.process.start_ticks == 0) about.process.start_ticks = ticks_at(monotonic_at(told->started));
    if (about.uid == proc::unknown_uid) about.uid = told->uid;
    if (about.name.empty()) about.name = told->name;
    if (about.ended == Time{}) about.ended = told->ended;
  }
  return node;
}

// The newest record about a process that had this pid at this time.
const proc::AccountingRecord* LinkSources::accounting_of(std::int32_t pid, std::int64_t at_ns) {
  if (path_.empty()) return nullptr;
  if (monotonic_ns() - accounting_read_ns_ > second_ns) read_accounting();
  const auto places = with_pid_.find(pid);
  if (places == with_pid_.end()) return nullptr;
  const Time at = wall_at(at_ns);
  const auto fits = [&](std::size_t place) {
    const proc::AccountingRecord& record = accounting_[place];
    return record.started.ns <= at.ns + slack_ns && record.ended.ns + slack_ns >= at.ns;
  };
  const auto found = std::find_if(places->second.rbegin(), places->second.rend(), fits);
  return found == places->second.rend() ? nullptr : &accounting_[*found];
}

}  // namespace sublet::actor
