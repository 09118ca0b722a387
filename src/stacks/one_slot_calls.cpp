// SPDX-License-Identifier: Apache-2.0
// The callers of the slot that wait: when each is answered, and with what.
#include "stacks/one_slot.h"
#include "store/secret.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace sublet::stacks {

// A caller may come back with a request: not in the middle of a decision here.
void OneSlot::tell(const Open& open, SlotAnswer answer) {
  engine_.capabilities().later([done = open.done, answer = std::move(answer)] { done(answer); });
}

Time OneSlot::answer_calls(Time now) {
  Time next = Time::never();
  for (auto open = open_.begin(); open != open_.end();) {
    if (answer(*open, now)) {
      open = open_.erase(open);
      continue;
    }
    next = std::min(next, open->until);
    ++open;
  }
  return next;
}

// Returns whether the call is answered.
bool OneSlot::answer(Open& open, Time now) {
  if (open.ended) {
    tell(open, *open.ended);
    return true;
  }
  if (open.renewed) return answer_renewed(open, now);
  const auto& holder = slot_.holder();
  if (open.starter && holder && holder->token == open.token) return answer_holder(open, now);
  const bool waits = slot_.place(open.token).has_value() && now < open.until && open.call.wait_turn;
  const bool is_turn = !holder && slot_.place(open.token) == 0U;
  if (waits && !is_turn) return false;
  Ask ask = open.call.ask;
  ask.token = open.token;
  if (slot_.place(open.token)) ask.priority.reset();
  const Slot before = slot_;
  const Answer got = slot_.acquire(ask, store::random_hex(16), options_.claim_window, now);
  switch (got.kind) {
    case Answer::Kind::refreshed:
      wish_ends_ = now + stacks_.options().ready_timeout;
      return renew(open, before, got.token, now);
    case Answer::Kind::queued:
      open.token = got.token;
      if (open.call.wait_turn) return false;
      tell(open, {SlotAnswer::Kind::queued, got.token, {}});
      return true;
    case Answer::Kind::start:
      if (open.call.wait_ready && !open.call.wrong_wait.empty()) {
        slot_.take_back(before);
        tell(open, {SlotAnswer::Kind::invalid, {}, open.call.wrong_wait});
        return true;
      }
      open.token = got.token;
      open.starter = true;
      open.until = now + open.call.wait;  // the wait for the slot is over
      start_by_ = wish_ends_ = open.until;
      priority_ = static_cast<int>(std::clamp<std::int64_t>(open.call.ask.priority.value_or(0), -100, 100));
      (void)follow_holder(now);
      if (open.ended) return answer(open, now);
      return answer_holder(open, now);
    case Answer::Kind::refused: break;
  }
  const bool still_queued = open.call.wait_turn && slot_.place(open.token).has_value();
  slot_.name(open.token);
  tell(open, {still_queued ? SlotAnswer::Kind::queued : SlotAnswer::Kind::busy, open.token, got.detail});
  return true;
}

// The caller holds the slot, and its stack is on the way.
bool OneSlot::answer_holder(const Open& open, Time now) {
  const Entry* entry = stacks_.find(slot_.holder()->target);
  const bool has_stack = entry != nullptr && slot_.is_begun();
  const bool created = has_stack && (entry->stack.phase == Phase::starting || entry->stack.phase == Phase::ready);
  const bool ready = has_stack && slot_.holder()->expires_at.has_value();
  if (ready || (created && !open.call.wait_ready)) {
    start_by_ = now + stacks_.options().ready_timeout;
    tell(open, {SlotAnswer::Kind::granted, open.token, {}});
    return true;
  }
  if (now < open.until) return false;
  say_late(open, now);
  return true;
}

// Returns whether the call is answered.
bool OneSlot::renew(Open& open, const Slot& before, const std::string& token, Time now) {
  open.token = token;
  open.renewed = true;
  const Status done =
      holds_stack(*slot_.holder()) ? stacks_.renew(slot_.holder()->target, open.call.ask.ttl) : Status();
  if (done) return answer_renewed(open, now);
  slot_.take_back(before);
  tell(open, {SlotAnswer::Kind::unavailable, {}, done.error().detail});
  return true;
}

// A stack that was paused runs again before its holder hears of it.
bool OneSlot::answer_renewed(const Open& open, Time now) {
  const auto& holder = slot_.holder();
  const Entry* entry = holder && holder->token == open.token ? stacks_.find(holder->target) : nullptr;
  if (entry == nullptr) {
    tell(open, {SlotAnswer::Kind::failed, {}, "the stack was brought down"});
    return true;
  }
  if (!holds_stack(*holder) || !stacks_.is_away(*entry)) {
    tell(open, {SlotAnswer::Kind::granted, open.token, {}});
    return true;
  }
  if (now < open.until) return false;
  tell(open, {SlotAnswer::Kind::late,
              {},
              fmt::format("the stack is paused, and waits for its memory: sublet why {} names the holders",
                          to_string(entry->stack.use.lease))});
  return true;
}

void OneSlot::say_late(const Open& open, Time now) {
  const std::string target = slot_.holder()->target;
  const Entry* entry = stacks_.find(target);
  const bool begun = slot_.is_begun() && holds_stack(*slot_.holder());
  std::string why;
  if (begun && entry->stack.phase == Phase::queued)
    why = fmt::format("the stack still waits for its memory: sublet why {} names the holders",
                      to_string(entry->stack.use.lease));
  give_up(After::down, now);
  if (!begun) tell(open, {SlotAnswer::Kind::busy, {}, "gpu busy: service:" + target});
  else tell(open, {SlotAnswer::Kind::late, {}, why.empty() ? "service not ready" : why});
}

}  // namespace sublet::stacks
