// SPDX-License-Identifier: Apache-2.0
// Observes programs during a pause: their progress, whether their processes live, and whether their host memory stays
// in memory.
#include "engine/engine.h"

#include <algorithm>

namespace sublet::engine {
namespace {

// Less than one in this many parts may be noise of other work.
constexpr std::int64_t noise = 50;

}  // namespace

// --- progress

void Engine::begin_moving(LeaseId lease) {
  resident_before_.insert_or_assign(lease, host_.use(programs_.tree(lease)).resident);
  copying_since_.erase(lease);
}

// All processes are locked and measured. Earlier changes of their memory do not belong to the move.
void Engine::begin_copying(LeaseId lease) {
  begin_moving(lease);
  copying_since_.insert_or_assign(lease, now());
}

bool Engine::any_moves() const {
  return std::any_of(state_.away().begin(), state_.away().end(), [this](LeaseId id) {
    const core::Lease* lease = state_.find(id);
    return lease != nullptr && !lease->parked();
  });
}

// The driver reports no progress. The estimate uses bytes on the device and on the host, and earlier moves.
std::optional<Engine::Progress> Engine::progress(const core::Lease& lease) const {
  const auto moving = state_.moving(lease.id);
  if (!moving || moving->bytes <= Bytes{}) return std::nullopt;
  Progress progress;
  progress.move = moving->move;
  progress.total = moving->bytes;
  const Duration passed = std::max<Duration>(now() - moving->since, std::chrono::milliseconds(1));
  progress.late = state_.stuck(lease.id) || passed > moving->takes.at_most;
  if (moving->move == core::Move::settle) {
    progress.moved = moving->bytes;
    progress.left = std::max(moving->takes.likely - passed, Duration{});
    progress.measured = true;
    return progress;
  }
  const bool out = moving->move == core::Move::pause;
  const auto copying = copying_since_.find(lease.id);
  if (out && lease.parking->method == core::PauseMethod::driver && copying == copying_since_.end()) {
    progress.left = moving->takes.likely;  // counts from the lock; before it, the driver waits for submitted work
    return progress;
  }
  const Duration moved_for = out && copying != copying_since_.end() ? now() - copying->second : passed;
  const Bytes used = state_.use(lease.id).used;
  Bytes seen = out ? moving->bytes - used : used;
  if (const auto before = resident_before_.find(lease.id); before != resident_before_.end()) {
    const Bytes resident = host_.use(programs_.tree(lease.id)).resident;
    if (resident > Bytes{}) seen = std::max(seen, out ? resident - before->second : before->second - resident);
  }
  const auto seconds = [](Duration d) { return std::chrono::duration<double>(d).count(); };
  const auto rate = [&](Bytes bytes, Duration took) {
    return Bytes{static_cast<std::int64_t>(static_cast<double>(bytes.count) / std::max(seconds(took), 1e-3))};
  };
  progress.measured = seen.count > moving->bytes.count / noise;
  if (progress.measured) {
    progress.moved = std::min(seen, moving->bytes);
    progress.per_second = rate(progress.moved, moved_for);
    const double left = static_cast<double>((progress.total - progress.moved).count) /
                        std::max(static_cast<double>(progress.per_second.count), 1.0);
    progress.left = Duration(static_cast<std::int64_t>(std::min(left, 1e6) * 1e9));
    return progress;
  }
  if (progress.late) return progress;
  progress.left = std::max(moving->takes.likely - moved_for, Duration{});
  progress.per_second = rate(moving->bytes, std::max(moving->takes.likely, moved_for));
  const double part = std::min(seconds(moved_for) / std::max(seconds(moving->takes.likely), 1e-3), 0.99);
  progress.moved = Bytes{static_cast<std::int64_t>(static_cast<double>(moving->bytes.count) * part)};
  return progress;
}

// --- stopped programs

void Engine::watch_stopped() {
  std::map<LeaseId, Stopped> seen;
  for (const auto& [lease, by_debugger] : programs_.stopped_programs()) {
    const auto before = stopped_.find(lease);
    seen.emplace(lease, Stopped{before == stopped_.end() ? now() : before->second.since, by_debugger});
  }
  stopped_ = std::move(seen);
}

// --- while a lease is paused

void Engine::watch_away() {
  const std::vector<LeaseId> away(state_.away().begin(), state_.away().end());
  const auto is_back = [this](const auto& entry) { return !state_.away().contains(entry.first); };
  std::erase_if(resident_before_, is_back);
  std::erase_if(copying_since_, is_back);
  std::erase_if(swapped_, is_back);
  for (const LeaseId id : away) {
    const core::Lease* lease = state_.find(id);
    if (lease == nullptr || !lease->parking) continue;
    watch_swap(*lease);
    if (lease->owner.kind != core::OwnerKind::token) continue;
    const bool told = lease->cooperation && lease->cooperation->process && programs_.lives(lease->cooperation->process);
    const bool lives = told || programs_.inhabited(id);
    if (state_.inhabited(id) != lives) tick(core::LivenessReport{id, lives});
  }
}

// Reported whatever ledger.allow_swap says: a program on a swap device resumes slowly.
void Engine::watch_swap(const core::Lease& lease) {
  const Bytes swapped = lease.parked() ? host_.use(programs_.tree(lease.id)).swapped : Bytes{};
  if (swapped > Bytes{}) swapped_[lease.id] = swapped;
  else swapped_.erase(lease.id);
}

}  // namespace sublet::engine
