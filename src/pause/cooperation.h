// SPDX-License-Identifier: Apache-2.0
// Sends orders to cooperative programs and collects their answers. A lease has one order at a time: to yield within a
// time, or to resume, which stands until it is answered. Belongs to the loop thread. Nothing here blocks; results are
// reported on the loop.
#pragma once

#include "lease/lease.h"
#include "pause/parker.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace sublet::pause {

// An order to a program. Numbers only grow, over restarts of the daemon too, so that an answer never belongs to another
// order.
struct YieldOrder {
  enum class Kind { none, yield, resume };
  Kind kind = Kind::none;
  std::uint64_t number = 0;      // 0: there was no order yet
  std::int64_t deadline_ns = 0;  // of a yield: CLOCK_MONOTONIC in ns
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
    std::function<void(LeaseId)> told;  // there is a new order, so long-polls must look
    // A program reported that it runs after the wait for its answer was over.
    std::function<void(LeaseId)> runs_late;
  };
  virtual ~Cooperation() = default;

  virtual void open(Events events) = 0;  // call it before anything else
  // Sets the number after which new orders are numbered. Call it before the first order.
  virtual void number_from(std::uint64_t number) = 0;

  // Tells the lease's program to yield. Outcomes: `done`, with the growth of its host memory. `unknown`: it refused,
  // did not answer in time, or could not be told; it needs a resume order in any case. `undone`: the program was not
  // told because the way to it is missing (`unreachable`), or the process that yields for it has ended (`gone`).
  virtual void yield(const core::Lease& lease, const std::string& reason, Duration at_most, Done done) = 0;
  // Gives the resume order. Outcomes: `done`, or `unknown` without an answer in time. The order stands: `runs_late`
  // reports a later answer. A program without living processes counts as resumed.
  virtual void resume(const core::Lease& lease, Duration at_most, Done done) = 0;

  // Returns the unanswered order, or kind `none` with the number of the last order.
  virtual YieldOrder order(LeaseId lease) const = 0;
  // Records an answer. Stale: the order of that number is not waiting. BadRequest: the answer does not fit the order.
  virtual Status answer(LeaseId lease, std::uint64_t number, YieldAnswer answer, const std::string& detail) = 0;
  // Returns the file for the answers of a program that gets its orders by signals. It lies in the directory of the
  // lease's user (user_directory.h).
  virtual std::string answer_file(const core::Lease& lease) const = 0;

  // Takes over a lease from the store. Orders of an earlier run of the daemon still count.
  virtual void adopt(const core::Lease& lease) = 0;
  // The lease has ended, perhaps not yet durably. `done` of its current order is not called.
  virtual void forget(const core::Lease& lease) = 0;
  // The end of the lease is stored. If its program was told to yield and is not ended with the lease, it gets a resume
  // order now, or after its answer or its deadline. The order is repeated a few times. Nothing waits for the answer.
  virtual void let_go(LeaseId lease) = 0;
};

// For worlds without cooperative programs: simulations and other tests. Every yield is refused.
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
  std::string answer_file(const core::Lease&) const override { return {}; }
  void adopt(const core::Lease&) override {}
  void forget(const core::Lease&) override {}
  void let_go(LeaseId) override {}
};

}  // namespace sublet::pause
