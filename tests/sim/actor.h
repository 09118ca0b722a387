// SPDX-License-Identifier: Apache-2.0
// The actor as one life of the daemon meets it: it comes, is late, refuses, is lost with all that it knew, and comes
// again.
#pragma once

#include "machine.h"

#include "actor/protocol.h"

#include <list>
#include <map>
#include <set>

namespace sublet::sim {

class SimActor final : public machine::Actor {
 public:
  explicit SimActor(std::shared_ptr<Life> life);
  void start(std::function<void()> came) override;
  void stop() override { stopped_ = true; }
  const std::string& problem() const override { return problem_; }
  std::string hint() const override { return {}; }
  bool ready() const override { return ready_; }
  const actor::Reply& introduction() const override { return said_; }
  void fetch(actor::Order order, std::span<const int> descriptors, Fetched done) override;

  // The number of the present actor; 0: there never was one.
  int number() const { return number_; }
  // True if it has obeyed all orders, and was not told that all parked leases were named.
  bool waits_for_names() const { return ready_ && waiting_.empty() && !all_named_; }
  void when_come(std::function<void()> told) {
    told_ = std::move(told);
  }  // called when the actor has come and the engine knows that
  // `strike`: ends a program by a signal.
  void when_signalled(std::function<void(LeaseId, int)> strike) { strike_ = std::move(strike); }

 private:
  void come_in(Duration from_now);
  void lose(const char* why);
  actor::Reply obey(const actor::Order& order);
  actor::Reply keep(LeaseId lease, const actor::Order& order);
  void let(LeaseId lease);
  void give_back();
  struct Waiting {
    std::uint64_t id;
    Fetched done;
  };
  void answer(std::uint64_t id, const actor::Reply& reply);

  std::shared_ptr<Life> life_;
  std::function<void()> came_, told_;
  std::function<void(LeaseId, int)> strike_;
  bool ready_ = false, stopped_ = false;
  int number_ = 0;
  std::int64_t free_at_ns_ = 0;  // when it is free for the next order
  std::uint64_t last_ = 0;
  std::list<Waiting> waiting_;
  std::set<LeaseId> known_;                        // leases introduced to this actor
  std::map<std::size_t, std::set<LeaseId>> kept_;  // leases for which each group is kept from swap
  bool all_named_ = false;                         // all leases that are to be kept were named
  std::string problem_;
  actor::Reply said_;
};

}  // namespace sublet::sim
