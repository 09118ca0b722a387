// SPDX-License-Identifier: Apache-2.0
// The stored rows, and the records of closed sessions.
#include "sessions/sessions.h"

#include "base/log.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

namespace sublet::sessions {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t most_closed = 100;  // records of closed sessions of one user
constexpr Duration closed_for = 30 * 24h;
constexpr Duration closed_look = 24h;

}  // namespace

void Sessions::loaded(const store::Loaded& rows, Time now) {
  entries_.clear(), by_lease_.clear(), rows_.clear(), reclaimable_.loaded();
  forgiven_ = engine_.clock().lost_time();
  for (const store::CapabilityRow& row : rows.rows) {
    if (row.kind != row_kind) continue;
    auto session = from_row(row);
    if (!session) {
      log::error("{}", session.error().detail);
      continue;
    }
    Entry& entry = entries_[session->number];
    entry.session = std::move(*session);
    Progress& progress = entry.session.progress;
    entry.told = {progress.state, progress.why};
    if (progress.lease && progress.state != State::closed && progress.state != State::starting)
      by_lease_[progress.lease] = entry.session.number;
    // The keeper of the earlier order may live, and is refused from now on.
    if (progress.state == State::starting) {
      ++progress.start;
      rows_.change(entry.session.number);
    }
    // So may the keeper of a checkpoint command, and its report is taken.
    if (progress.checkpoint.running) entry.hook = {.start = progress.checkpoint.number, .ordered = true};
    if (progress.kept_until) progress.kept_until = std::max(*progress.kept_until, now + engine_.rules().reconnect);
    const Time report_by = now + engine_.rules().reconnect;
    if (progress.checkpoint.running && checkpoint_deadline(entry.session) < report_by)
      progress.checkpoint.started = progress.checkpoint.started + (report_by - checkpoint_deadline(entry.session));
    rows_.wake(entry.session.number, entry.session.is_closed() ? now + closed_look : now);
  }
}

// Forgets the oldest closed sessions of the user, and old ones. The newest record of all stays, so that its number is
// not used again.
void Sessions::prune(std::uint32_t uid, Time now) {
  std::vector<std::uint64_t> closed, gone;
  for (const auto& [number, entry] : entries_)
    if (entry.session.uid == uid && entry.session.is_closed()) closed.push_back(number);
  std::size_t left = closed.size();
  for (const std::uint64_t number : closed) {
    const bool old = now - entries_.at(number).session.progress.since >= closed_for;
    if ((!old && left <= most_closed) || number == entries_.rbegin()->first) continue;
    gone.push_back(number);
    --left;
  }
  for (const std::uint64_t number : gone) erase(number);
}

void Sessions::erase(std::uint64_t number) {
  Entry& entry = entries_.at(number);
  const std::string log = log_path(entry.session);
  std::error_code ignored;
  if (entry.session.has_command()) {
    for (const std::string& path : {log, log + ".lock"}) std::filesystem::remove(path, ignored);
    for (int i = 1; i <= options_.runs.log_keep; ++i) std::filesystem::remove(fmt::format("{}.{}", log, i), ignored);
  }
  entries_.erase(number);
  rows_.change(number);
}

}  // namespace sublet::sessions
