// SPDX-License-Identifier: Apache-2.0
#include "sessions/rules.h"

#include "base/size_bounds.h"

#include <algorithm>

namespace sublet::sessions {
namespace {

using namespace std::chrono_literals;

constexpr double earliest = 0.6, latest = 0.8;
constexpr std::uint64_t parts = 101;
constexpr int looks = 20;  // in a time to live, from the renewal on, while there is no activity
constexpr Duration shortest_look = 50ms;

Duration part_of(Duration duration, double part) {
  return Duration(static_cast<std::int64_t>(static_cast<double>(duration.count()) * part));
}

}  // namespace

double renewal_part(std::uint64_t number) {
  const std::uint64_t mixed = number * 0x9e3779b97f4a7c15ULL;
  return earliest + (latest - earliest) * static_cast<double>((mixed >> 32) % parts) / static_cast<double>(parts - 1);
}

Duration margin_of(Duration ttl) { return std::min<Duration>(5s, ttl / 10); }

Verdict judge(const Life& life, double part) {
  const Time renew_at = life.expires_at - part_of(life.ttl, 1 - part);
  const Time end_at = life.expires_at - margin_of(life.ttl);
  if (life.now < renew_at) return {Verdict::Act::wait, renew_at};
  if (life.last_activity > life.renewed_at) return {Verdict::Act::renew, Time::never()};
  if (life.now >= end_at) return {Verdict::Act::expire, Time::never()};
  return {Verdict::Act::wait, std::min(life.now + std::max<Duration>(life.ttl / looks, shortest_look), end_at)};
}

Duration break_of(Duration max_continuous) { return std::min<Duration>(1min, max_continuous / 5); }

End end_of(core::EndReason reason, bool by_user) {
  using core::EndReason;
  switch (reason) {
    case EndReason::none: return End::lost;
    case EndReason::released: return by_user ? End::closed : End::exited;
    case EndReason::expired: return End::expired;
    case EndReason::revoked: return End::revoked;
    case EndReason::over_limit: return End::over_limit;
    case EndReason::failed:
    case EndReason::rejected: return End::failed;
    case EndReason::cancelled: return End::closed;
    case EndReason::owner_gone:
    case EndReason::unclaimed:
    case EndReason::lost: return End::lost;
  }
  return End::lost;
}

Code code_of(End end) {
  switch (end) {
    case End::exited:
    case End::failed:
    case End::lost: return Code::Disconnected;
    case End::over_limit: return Code::Overcommit;
    default: return Code::LeaseExpired;
  }
}

void enter(Session& session, State state, std::string why, Time now) {
  Progress& progress = session.progress;
  if (progress.state != state) progress.since = now;
  progress.state = state;
  progress.why = std::move(why);
  if (state != State::ending && state != State::parked && state != State::closed) progress.detail.clear();
  if (state != State::parked) progress.kept_until.reset();
  if (state != State::ending) progress.step = Step::none;
}

std::int32_t main_pid(const core::Lease& lease) {
  if (lease.owner.process) return lease.owner.process.pid;
  for (const core::Booked& booked : lease.booked)
    if (booked.process) return booked.process.pid;
  return 0;
}

bool has_given_back(const Session& session, const core::Lease& lease) {
  return session.progress.wanted > Bytes{} && lease.vram <= least_lease;
}

void begin_end(Session& session, End end, bool park, bool runs, std::string why, Time now) {
  Progress& progress = session.progress;
  enter(session, State::ending, std::move(why), now);
  progress.end = end;
  progress.park = park;
  progress.parking_tried = progress.checkpoint_tried = false;
  progress.saves_or_stays = false;
  progress.failures = 0;
  progress.step = park ? Step::parking : next_step(session, runs);
}

bool must_stay(const Session& session, const core::Lease& lease) {
  const Progress& progress = session.progress;
  const bool is_unsaved = progress.checkpoint_tried && progress.failures > 0;
  return progress.saves_or_stays && is_unsaved && lease.owner.keeper && lease.state == core::LeaseState::active &&
         !lease.stop_requested;
}

Step next_step(const Session& session, bool runs) {
  const Progress& progress = session.progress;
  const bool has_checkpoint = !session.request.checkpoint.empty();
  if (runs && has_checkpoint && !progress.checkpoint_tried) return Step::checkpoint;
  // Its work is not saved: the program is kept where possible.
  const bool unsaved = progress.checkpoint_tried && progress.failures == 1;
  if (runs && unsaved && !progress.parking_tried) return Step::parking;
  return Step::releasing;
}

}  // namespace sublet::sessions
