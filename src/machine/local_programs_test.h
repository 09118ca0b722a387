// SPDX-License-Identifier: Apache-2.0
// LocalPrograms with a real process and an actor that only records.
#pragma once

#include "machine/local_programs.h"

#include "proc/test_support.h"

#include <gtest/gtest.h>

#include <unistd.h>
#include <string>
#include <utility>
#include <vector>

namespace sublet::machine {

// The test answers its orders.
class NotingActor : public Actor {
 public:
  void start(std::function<void()>) override {}
  void stop() override {}
  const std::string& problem() const override { return fine; }
  std::string hint() const override { return {}; }
  bool ready() const override { return here; }
  const actor::Reply& introduction() const override { return said; }
  void fetch(actor::Order order, std::span<const int> descriptors, Fetched done) override {
    orders.push_back(order);
    attached.push_back(descriptors.size());
    waiting.push_back(std::move(done));
  }
  // Answers all waiting orders.
  void answer(actor::Code code, std::uint32_t refused = 0, const std::string& why = {}, int error = 0) {
    for (const Fetched& done : std::exchange(waiting, {})) {
      actor::Reply reply;
      why.copy(reply.path, sizeof reply.path - 1);
      reply.code = code;
      reply.refused = refused;
      reply.error = error;
      done(reply, std::move(attachment));
    }
  }
  // Answers all waiting orders with this reply.
  void answer_with(const actor::Reply& reply) {
    for (const Fetched& done : std::exchange(waiting, {})) done(reply, std::move(attachment));
  }
  std::vector<actor::Verb> verbs() const {
    std::vector<actor::Verb> all;
    for (const actor::Order& order : orders) {
      if (order.verb != actor::Verb::look) all.push_back(order.verb);
    }
    return all;
  }

  bool here = true;
  std::string fine;
  actor::Reply said;
  std::vector<actor::Order> orders;
  std::vector<std::size_t> attached;
  std::vector<Fetched> waiting;
  Fd attachment;  // goes with the next answer
};

// A lease with a living process, whose keeper is this process.
struct FollowedProgram {
  FollowedProgram() {
    actor.said.flags = actor::signals_others;
    EXPECT_TRUE(programs.open({.ended = [](const core::ProgramEnded&) {},
                               .unkillable = [this](LeaseId, const std::string& why) { unkillable.push_back(why); }}));
    lease.id = LeaseId{7};
    lease.uid = ::geteuid();
    const auto root = proc::ProcRoot::open();
    lease.owner = {.kind = core::OwnerKind::process,
                   .process = root->read(child.pid())->ref,
                   .keeper = root->read(::getpid())->ref,
                   .exit_record = {}};
  }
  ~FollowedProgram() { programs.forget(lease.id); }

  proc::Child child{proc::sleep_for_ever};
  boost::asio::io_context io{1};
  NotingActor actor;
  std::vector<std::string> unkillable;
  LocalPrograms programs{io, actor, std::chrono::seconds(1)};
  core::Lease lease;
};

}  // namespace sublet::machine
