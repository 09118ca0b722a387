// SPDX-License-Identifier: Apache-2.0
// Programs that yield by themselves: what each is told, and what it answers. One order at a time for a lease: to yield,
// within a time; or to go on, without end until it has answered. Belongs to the loop thread; nothing here blocks, and
// what came of an order is told on the loop.
#pragma once

#include "core/lease.h"
#include "engine/parker.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace sublet::engine {

// What a program is to do. Numbers only grow, over restarts of the daemon too, so that nobody answers another order
// than it means.
struct YieldOrder {
  enum class Kind { none, yield, resume };
  Kind kind = Kind::none;
  std::uint64_t number = 0;      // 0: there never was one
  std::int64_t deadline_ns = 0;  // of a yield, CLOCK_MONOTONIC
  std::string reason{};          // of a yield: one sentence
};
std::string_view to_string(YieldOrder::Kind kind);  // "none", "yield", "resume"

enum class YieldAnswer { yielded, refused, resumed };
std::string_view to_string(YieldAnswer answer);
std::optional<YieldAnswer> parse_yield_answer(std::string_view text);

class Cooperation {
 public:
  using Done = std::function<void(ParkOutcome)>;
  struct Events {
    std::function<void(LeaseId)> told;  // there is a new order: whoever waits for one is to look
    // A program said that it goes on after the wait for that was over.
    std::function<void(LeaseId)> runs_late;
  };
  virtual ~Cooperation() = default;

  virtual void open(Events events) = 0;  // before anything else
  // The numbers of orders from now on are greater than this one, and than all before; before the first order.
  virtual void number_from(std::uint64_t number) = 0;

  // Tells the lease's program to yield. Outcomes: `done`, with what its processes grew on the host; `unknown`, for it
  // refused, did not answer in time, or could not be told: whatever it does then, it has to be told to go on; or
  // `undone`, whoever would have told it is not there (`unreachable`) and it knows nothing of it, or who yields for it
  // has ended (`gone`).
  virtual void yield(const core::Lease& lease, const std::string& reason, Duration at_most, Done done) = 0;
  // Tells it to go on: `done`, or `unknown` when it has not answered in time. It stays told: an answer that comes later
  // is reported by `runs_late`. One that no process is left of goes on by itself.
  virtual void resume(const core::Lease& lease, Duration at_most, Done done) = 0;

  // The order that is not answered yet; none: kind none, with the number of the last one.
  virtual YieldOrder order(LeaseId lease) const = 0;
  // Stale: it is not the order of that number that is waited for. BadRequest: no answer to such an order.
  virtual Status answer(LeaseId lease, std::uint64_t number, YieldAnswer answer, const std::string& detail) = 0;
  // Where a program of the lease that is told by signals writes its answer.
  virtual std::string answer_file(LeaseId lease) const = 0;

  // A lease as the store has it: what its program was told by an earlier run of the daemon still counts.
  virtual void adopt(const core::Lease& lease) = 0;
  // It has ended, which need not be stored yet: nobody is told of what was under way.
  virtual void forget(const core::Lease& lease) = 0;
  // Its end is stored. A program that was told to yield, not that it may go on, and that is not ended with its lease,
  // is told so now, or once it has answered or is over its time; a few times if it does not hear. Nobody waits for it.
  virtual void let_go(LeaseId lease) = 0;
};

// Of a world in which no program yields by itself: simulations, and tests of something else. Whoever is asked refuses.
class NoCooperation final : public Cooperation {
 public:
  void open(Events) override {}
  void number_from(std::uint64_t) override {}
  void yield(const core::Lease&, const std::string&, Duration, Done done) override { done(ParkOutcome{}); }
  void resume(const core::Lease&, Duration, Done done) override {
    ParkOutcome runs;
    runs.kind = ParkOutcome::Kind::done;
    done(runs);
  }
  YieldOrder order(LeaseId) const override { return {}; }
  Status answer(LeaseId, std::uint64_t, YieldAnswer, const std::string&) override { return bad_request("no order"); }
  std::string answer_file(LeaseId) const override { return {}; }
  void adopt(const core::Lease&) override {}
  void forget(const core::Lease&) override {}
  void let_go(LeaseId) override {}
};

}  // namespace sublet::engine
