// SPDX-License-Identifier: Apache-2.0
// Sessions whose programs use no GPU, such as a notebook server between two trainings. The end of such a session would
// cost its work and free nothing: it rests instead. Its program runs on, and its lease keeps the least size, so that
// others have the memory. The lease grows again once the program uses a GPU, or its user wants the memory.
#include "sessions/sessions.h"

#include "base/size_bounds.h"
#include "sessions/rules.h"

#include <fmt/format.h>

#include <algorithm>

namespace sublet::sessions {
namespace {

using namespace std::chrono_literals;
using core::Lease;
using core::LeaseState;

constexpr Duration ask_again = 1min;  // after a refusal of its memory

}  // namespace

// As far as the last readings tell.
bool Sessions::uses_gpu(const Lease& lease) const {
  return std::ranges::any_of(lease.devices, [&](const std::string& uuid) {
    const core::Charge& charge = core::charge_on(engine_.state(), lease.id, uuid);
    return charge.used > Bytes{} || charge.untold || charge.processes > 0;
  });
}

// It has given its memory back, and has not got it again yet.
bool Sessions::rests(const Session& session) const {
  if (session.progress.state == State::resting) return true;
  const Lease* lease = lease_of(session);
  return session.progress.state == State::queued && lease != nullptr && lease->state == LeaseState::active &&
         has_given_back(session, *lease);
}

bool Sessions::may_rest(const Session& session) const {
  const Lease* lease = lease_of(session);
  return session.progress.state == State::active && lease != nullptr && lease->state == LeaseState::active &&
         lease->vram > least_lease && engine_.programs().inhabited(lease->id) && !uses_gpu(*lease);
}

// no: there is no program, or it uses the memory. later: the core refuses it for now, for example until the next
// reading.
Sessions::Rest Sessions::rest(Entry& entry, const std::string& why, Time now) {
  Progress& progress = entry.session.progress;
  if (rests(entry.session)) return Rest::yes;
  if (!may_rest(entry.session)) return Rest::no;
  const Lease* lease = lease_of(entry.session);
  const Progress before = progress;
  progress.wanted = lease->resize ? lease->resize->vram : lease->vram;
  enter(
      entry.session, State::resting,
      fmt::format("{}; its program uses no GPU and runs on, and its memory of {} is for others until the program uses "
                  "a GPU, or a touch or resume",
                  why, format_size_down(progress.wanted)),
      now);
  if (engine_.decide(core::Resize{lease->id, 0, least_lease})) {
    changed(entry);
    return Rest::yes;
  }
  progress = before;
  return Rest::later;
}

void Sessions::want_back(Entry& entry, std::string why, Time now) {
  entry.grow_at = {};
  move(entry, State::queued,
       fmt::format("{}: it waits for {} if they are not free", why, format_size_down(entry.session.progress.wanted)),
       now);
}

Time Sessions::look_at_resting(Entry& entry, Time now) {
  const Lease* lease = lease_of(entry.session);
  if (lease == nullptr || lease->ended()) {
    end(entry, End::lost, false, "its lease is gone", now);
    return now;
  }
  if (lease->state != LeaseState::active) return now + 1s;
  if (!has_given_back(entry.session, *lease)) {  // its user made it larger
    became_active(entry, *lease, now);
    return now;
  }
  (void)runs_.watch_keeper(run_of(entry.session), *lease, now);
  if (uses_gpu(*lease)) {
    want_back(entry, "its program uses a GPU again", now);
    return now;
  }
  const Time next = keep_alive(entry.session, *lease, now);
  return std::min(next, heed_notice(entry, *lease, now));  // the lease may end by it
}

// Its lease has the least size, and waits to grow.
Time Sessions::wait_for_size(Entry& entry, const Lease& lease, Time now) {
  Progress& progress = entry.session.progress;
  (void)runs_.watch_keeper(run_of(entry.session), lease, now);
  if (!lease.resize && now >= entry.grow_at) {
    entry.grow_at = now + ask_again;
    const LeaseId id = lease.id;
    const auto asked = engine_.decide(core::Resize{id, 0, progress.wanted, true});
    if (!asked) move(entry, State::queued, "its memory cannot be had now: " + asked.error().detail, now);
    return now;
  }
  const Time next = keep_alive(entry.session, lease, now);
  return std::min(next, heed_notice(entry, lease, now));  // the lease may end by it
}

}  // namespace sublet::sessions
