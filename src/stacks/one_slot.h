// SPDX-License-Identifier: Apache-2.0
// The compatible service above the stacks: one slot, whose holder has one acquired stack. Only the holder asks for
// a lease. Belongs to the loop thread.
#pragma once

#include "engine/capability.h"
#include "engine/engine.h"
#include "stacks/slot.h"
#include "stacks/stacks.h"

#include <functional>
#include <list>
#include <optional>
#include <string>

namespace sublet::stacks {

struct OneSlotOptions {
  std::uint32_t uid = 0;  // the user who is charged
  std::string user;
  Duration claim_window = std::chrono::seconds(10);
  // state.json of the service that is replaced: written at each change, and read at the first start. "": none.
  std::string mirror{};
  bool mirror_tokens = false;  // stacks.http_role is "admin": the mirror has the tokens, and is for its owner alone
};

// An acquire of the service.
struct SlotCall {
  Ask ask;
  Duration wait{};         // until the answer, at the latest
  bool wait_ready = true;  // false: the answer comes when the containers are created
  bool wait_turn = false;  // the answer waits for the caller's turn
  // Why a time is no time; "": it is one. The service notices this late.
  std::string wrong_ttl{}, wrong_wait{};
};

// The answer to it.
struct SlotAnswer {
  enum class Kind {
    granted,
    queued,
    busy,            // 409
    unknown_target,  // 400
    invalid,         // 400
    failed,          // 500: the stack was started and did not become ready
    late,            // 504: the same, in time
    unavailable,     // 503: no stack can be started now
  };
  Kind kind = Kind::busy;
  std::string token{};
  std::string detail{};
  std::optional<Health> health{};  // failed, late: what the containers showed
};

class OneSlot final : public engine::Capability {
 public:
  using Done = std::function<void(SlotAnswer)>;
  // Keeps references. Call Capabilities::add() with it, after the stacks.
  OneSlot(engine::Engine& engine, Stacks& stacks, OneSlotOptions options);

  const Slot& slot() const { return slot_; }
  const OneSlotOptions& options() const { return options_; }

  // `done` is called once, on the loop: at once if the call is refused unseen, else after the transaction that answers
  // it. The answer may be sent when the engine's decisions are durable.
  // Returns a number for cancel(); 0: the call is answered already.
  std::uint64_t acquire(SlotCall call, Done done);
  // The caller has left: `done` is not called. A waiter keeps its place until its claim window is over. A wish whose
  // memory is not granted yet ends. A stack that is starting goes on, and its holder keeps it until the time to live is
  // over.
  void cancel(std::uint64_t number);
  Status release(const std::string& token, bool force);

  // --- Capability ---
  void loaded(const store::Loaded& rows, Time now) override;
  void happened(const core::Plan& plan, Time now) override;
  std::vector<engine::Warning> warnings(Time now) const override;
  Time due(Time now) override;

 private:
  struct Open {  // a call without an answer yet
    SlotCall call;
    std::string token;  // of the caller; "": it has none yet
    Time until;
    Done done;
    std::uint64_t number = 0;
    bool starter = false;               // this call has started the stack: its answer waits for the stack
    bool renewed = false;               // it has renewed the holder: its answer waits until the stack runs
    std::optional<SlotAnswer> ended{};  // the start has failed: the answer
  };

  void take_over_service(Time now);
  void store();  // if the slot has changed
  void mirror();
  bool is_unused() const { return !slot_.holder() && slot_.queue().empty() && slot_.last_target().empty(); }
  void follow_clock();
  Time follow_holder(Time now);
  bool begin(const Holder& holder, Time now);
  bool holds_stack(const Holder& holder) const;
  void give_back(const Holder& holder);
  bool is_granted() const;  // the holder's stack has its memory; there is a holder
  void give_up(After after, Time now);
  Open* starter(const std::string& token);  // the open call that holds the slot with this token; null: none
  void end_holder(SlotAnswer::Kind kind, const std::string& detail, std::optional<Health> health, Time now);
  void tell(const Open& open, SlotAnswer answer);
  Time answer_calls(Time now);
  bool answer(Open& open, Time now);
  bool answer_holder(const Open& open, Time now);
  bool renew(Open& open, const Slot& before, const std::string& token, Time now);
  bool answer_renewed(const Open& open, Time now);
  void say_late(const Open& open, Time now);

  engine::Engine& engine_;
  Stacks& stacks_;
  OneSlotOptions options_;
  Slot slot_;
  std::list<Open> open_;
  Duration forgiven_{};  // of the time that the machine slept
  Time start_by_{};      // the holder's stack is given up then
  Time wish_ends_{};     // a wish that is not granted is given up then, if no caller asks any more
  int priority_ = 0;     // of the holder's lease
  std::optional<std::uint64_t> mirrored_changes_;  // Slot::changes() of the mirror; unset: it was not written yet
  std::string mirror_problem_;                     // why the mirror is not written; "": it is
  Time mirror_problem_since_{};
  std::uint64_t last_number_ = 0;  // of a call
  engine::Records<std::string> rows_;
  std::uint64_t stored_changes_ = 0;  // Slot::changes() of the row
  bool imported_ = false;             // the mirror is the file of the old service
  bool has_row_ = false;              // a row was handed to the store
  bool unreadable_ = false;           // the stored row is kept until an administrator removes it
};

}  // namespace sublet::stacks
