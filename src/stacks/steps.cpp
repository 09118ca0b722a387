// SPDX-License-Identifier: Apache-2.0
#include "stacks/steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace sublet::stacks {
namespace {

void enter(Stack& stack, Phase phase, std::string why, Time now) {
  stack.phase = phase;
  stack.why = std::move(why);
  stack.since = now;
  if (phase != Phase::starting) stack.use.ready_by.reset();
  if (phase != Phase::ready) stack.use.expires_at.reset();
}

// The user stays known, since the lease is charged to the user.
void forget_token(Stack& stack) {
  stack.use.token_hash.clear();
  stack.use.owner.clear();
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
  stack.use.ready_by = now + ready_timeout;
}

bool observe(Stack& stack, const Readiness& seen, bool fresh, Time now) {
  const std::string before = stack.why;
  if (stack.phase == Phase::starting) {
    if (!fresh) return false;
    if (seen.health == Health::ready) {
      enter(stack, Phase::ready, "", now);
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
  if (seen.health == Health::absent) {
    stop(stack, "its containers were removed", now);
    return true;
  }
  if (seen.health == Health::exited) {
    fail(stack, seen.text, now);
    return true;
  }
  // A container that restarts or is unhealthy for a while does not end the use.
  if (seen.health != Health::ready) stack.why = seen.text;
  else if (stack.phase == Phase::ready) stack.why.clear();
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
  release(stack, "its time to live is over", now);
  return true;
}

Time next_step(const Stack& stack, Time now) {
  const Time next = std::min(stack.use.ready_by.value_or(Time::never()), stack.use.expires_at.value_or(Time::never()));
  const Time settled = stack.since + settle_time;
  return stack.phase == Phase::starting && now < settled ? std::min(next, settled) : next;
}

void release(Stack& stack, std::string why, Time now) {
  if (stack.phase != Phase::ready) return stop(stack, std::move(why), now);
  enter(stack, Phase::released, std::move(why), now);
  forget_token(stack);
}

void take_over(Stack& stack, Use use, Time now) {
  if (stack.phase != Phase::released) return;
  const LeaseId lease = stack.use.lease;
  stack.use = std::move(use);
  stack.use.lease = lease;
  enter(stack, Phase::ready, "", now);
  stack.use.expires_at = now + stack.use.ttl;
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
  stack.by_label = false;
}

void forgive(Stack& stack, Duration least, Time now) {
  if (stack.use.expires_at) stack.use.expires_at = std::max(*stack.use.expires_at, now + least);
  if (stack.use.ready_by) stack.use.ready_by = std::max(*stack.use.ready_by, now + least);
}

}  // namespace sublet::stacks
