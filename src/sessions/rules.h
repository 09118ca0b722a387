// SPDX-License-Identifier: Apache-2.0
// The rules of sessions: when a lease is renewed, and what its end means. Pure functions.
#pragma once

#include "lease/lease.h"
#include "sessions/session.h"

#include <optional>

namespace sublet::sessions {

// The time to live of an active lease, as it stands.
struct Life {
  Time now;
  Time expires_at;  // of its lease
  Duration ttl;
  Time renewed_at;  // when the time to live began
  Time last_activity;
};

struct Verdict {
  enum class Act { wait, renew, expire } act = Act::wait;
  Time look_at = Time::never();  // when to judge again, at the latest
};

// Part of its time to live after which a session is renewed: between 60 and 80 %, fixed for each session, so that
// sessions that were opened together are not renewed together.
double renewal_part(std::uint64_t number);
// Time before the end of the time to live at which a session without activity ends: its lease must not end first.
Duration margin_of(Duration ttl);
// Renews once enough time has passed and there was activity since the last renewal.
Verdict judge(const Life& life, double part);

// A time without activity that ends continuous activity.
Duration break_of(Duration max_continuous);

// The reason for which a session ends with its lease. `by_user`: its user or an admin released the lease.
End end_of(core::EndReason reason, bool by_user);
// The code of the refusal of a call that needs a session which has not ended.
Code code_of(End end);

// The process that stands for the program of a lease; 0: none.
std::int32_t main_pid(const core::Lease& lease);

// The session rests, or waits for its memory again: its lease has the least size until then.
bool has_given_back(const Session& session, const core::Lease& lease);

// Begins the end of a session. `runs`: as in next_step.
void begin_end(Session& session, End end, bool park, bool runs, std::string why, Time now);
// The step that follows a step that did not come through, or that needs nothing. `runs`: its program runs, or can run
// again.
Step next_step(const Session& session, bool runs);
// Its checkpoint has failed, its program was not parked, and its user wants it ended only with its work saved.
bool must_stay(const Session& session, const core::Lease& lease);
void enter(Session& session, State state, std::string why, Time now);

}  // namespace sublet::sessions
