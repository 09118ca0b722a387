// SPDX-License-Identifier: Apache-2.0
#include "stacks/steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace sublet::stacks {
namespace {

constexpr const char* time_is_over = "its time to live is over";

void enter(Stack& stack, Phase phase, std::string why, Time now) {
  stack.phase = phase;
  stack.why = std::move(why);
  stack.since = now;
  stack.gone_since.reset();
  if (phase != Phase::starting) stack.use.ready_by.reset();
  if (phase != Phase::ready) stack.use.expires_at.reset();
}

// The user stays known, since the lease is charged to the user.
void forget_token(Stack& stack) {
  stack.use.token_hash.clear();
  stack.use.owner.clear();
}

bool is_gone(Health health) {
  return health == Health::absent || health == Health::exited || health == Health::no_label;
}

// Containers that should run are gone. Returns whether the stack has changed.
bool miss(Stack& stack, const Readiness& seen, Time now, bool is_away) {
  if (!stack.gone_since) stack.gone_since = now;
  const std::string before = stack.why;
  if (!is_away && now < *stack.gone_since + return_time) {
    stack.why = fmt::format("{}; it has {} to come back", seen.text, format_duration(return_time));
    return stack.why != before;
  }
  if (seen.health == Health::absent) stop(stack, "its containers were removed", now);
  else if (is_away) fail(stack, seen.text + ", while its lease was paused", now);
  else
    fail(stack,
         fmt::format("{}, and was not back within {}; to replace containers, use sublet stack restart {}", seen.text,
                     format_duration(return_time), stack.name),
         now);
  return true;
}

}  // namespace

void acquire(Stack& stack, Use use, Time now) {
  stack.use = std::move(use);
  stack.will_fail = false;
  enter(stack, Phase::queued, "", now);
}

void granted(Stack& stack, Time now) {
  if (stack.phase == Phase::queued) enter(stack, Phase::creating, "", now);
}

void created(Stack& stack, Duration ready_timeout, Time now) {
  if (stack.phase != Phase::creating) return;
  enter(stack, Phase::starting, "", now);
  stack.recreate = false;
  stack.use.ready_by = now + ready_timeout;
}

bool observe(Stack& stack, const Readiness& seen, bool fresh, Time now, bool is_away) {
  const std::string before = stack.why;
  if (stack.phase == Phase::starting) {
    if (!fresh) return false;
    if (seen.health == Health::ready) {
      enter(stack, Phase::ready, seen.beside, now);
      stack.use.expires_at = now + stack.use.ttl;
      return true;
    }
    if (is_final(seen.health) && now >= stack.since + settle_time) {
      fail(stack, "it did not become ready: " + seen.text, now);
      return true;
    }
    if (!is_final(seen.health)) stack.why = seen.text;
    return stack.why != before;
  }
  if (stack.phase != Phase::ready && stack.phase != Phase::released) return false;
  if (is_gone(seen.health)) return miss(stack, seen, now, is_away);
  stack.gone_since.reset();
  // A container that restarts or is unhealthy for a while does not end the use.
  if (seen.health != Health::ready) stack.why = seen.text;
  else if (stack.phase == Phase::ready) stack.why = seen.beside;
  else if (stack.why != time_is_over) stack.why.clear();
  return stack.why != before;
}

bool pass_time(Stack& stack, Time now) {
  if (stack.use.ready_by && now >= *stack.use.ready_by) {
    fail(stack,
         fmt::format("it was not ready within {} (stacks.ready_timeout){}", format_duration(now - stack.since),
                     stack.why.empty() ? "" : ": " + stack.why),
         now);
    return true;
  }
  if (stack.phase != Phase::ready || !stack.use.expires_at || now < *stack.use.expires_at) return false;
  release(stack, After::up_if_ready, time_is_over, now);
  return true;
}

Time next_step(const Stack& stack, Time now) {
  Time next = std::min(stack.use.ready_by.value_or(Time::never()), stack.use.expires_at.value_or(Time::never()));
  if (stack.gone_since && now < *stack.gone_since + return_time) next = std::min(next, *stack.gone_since + return_time);
  const Time settled = stack.since + settle_time;
  return stack.phase == Phase::starting && now < settled ? std::min(next, settled) : next;
}

void release(Stack& stack, After after, std::string why, Time now) {
  const bool is_up = stack.phase == Phase::ready || (stack.phase == Phase::starting && after == After::up);
  if (!is_up || after == After::down) return stop(stack, std::move(why), now);
  enter(stack, Phase::released, std::move(why), now);
  forget_token(stack);
}

void take_over(Stack& stack, Use use, bool usable, std::string why, Duration ready_timeout, Time now) {
  if (stack.phase != Phase::released) return;
  const LeaseId lease = stack.use.lease;
  stack.use = std::move(use);
  stack.use.lease = lease;
  enter(stack, usable ? Phase::ready : Phase::starting, std::move(why), now);
  if (usable) stack.use.expires_at = now + stack.use.ttl;
  else stack.use.ready_by = now + ready_timeout;
}

void restart(Stack& stack, Time now) {
  if (stack.phase != Phase::ready && stack.phase != Phase::starting) return;
  enter(stack, Phase::creating, "its containers are replaced", now);
  stack.recreate = true;
}

void stop(Stack& stack, std::string why, Time now) {
  const bool nothing_started = stack.phase == Phase::queued;
  if (!nothing_started && (!stack.is_up() || stack.phase == Phase::stopping)) return;
  forget_token(stack);
  enter(stack, nothing_started ? Phase::down : Phase::stopping, std::move(why), now);
  if (nothing_started) stack.use = {};
}

void fail(Stack& stack, std::string why, Time now) {
  const bool nothing_started = stack.phase == Phase::queued;
  if (!nothing_started && (!stack.is_up() || stack.phase == Phase::stopping)) return;
  stop(stack, std::move(why), now);
  if (nothing_started) stack.phase = Phase::failed;
  else stack.will_fail = true;
}

void stopped(Stack& stack, Time now) {
  if (stack.phase != Phase::stopping) return;
  enter(stack, std::exchange(stack.will_fail, false) ? Phase::failed : Phase::down, std::move(stack.why), now);
  stack.use = {};
  stack.project.clear();
  stack.directory.clear();
  stack.by_label = stack.recreate = false;
}

void stand_still(Stack& stack, Duration stood_still) {
  if (stack.use.expires_at) stack.use.expires_at = after(*stack.use.expires_at, stood_still);
  if (stack.use.ready_by) stack.use.ready_by = after(*stack.use.ready_by, stood_still);
}

void forgive(Stack& stack, Duration least, Time now) {
  if (stack.use.expires_at) stack.use.expires_at = std::max(*stack.use.expires_at, now + least);
  if (stack.use.ready_by) stack.use.ready_by = std::max(*stack.use.ready_by, now + least);
}

}  // namespace sublet::stacks
