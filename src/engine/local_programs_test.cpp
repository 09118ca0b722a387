// SPDX-License-Identifier: Apache-2.0
// What LocalPrograms says to an actor, on a real process and an actor that only takes notes.
#include "engine/local_programs.h"

#include "proc/test_support.h"

#include <gtest/gtest.h>

namespace sublet::engine {
namespace {

namespace asio = boost::asio;

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
  // Answers everything that waits.
  void answer(actor::Code code, std::uint32_t refused = 0, const std::string& why = {}) {
    for (const Fetched& done : std::exchange(waiting, {})) {
      actor::Reply reply;
      why.copy(reply.path, sizeof reply.path - 1);
      reply.code = code;
      reply.refused = refused;
      done(reply, std::move(attachment));
    }
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
  Fd attachment;  // of the next answer
};

struct World {
  World() {
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
  ~World() { programs.forget(lease.id); }

  proc::Child child{proc::sleep_for_ever};
  asio::io_context io{1};
  NotingActor actor;
  std::vector<std::string> unkillable;
  LocalPrograms programs{io, actor, std::chrono::seconds(1)};
  core::Lease lease;
};

TEST(Programs, TellTheActorOfAProgramWithItsKeeper) {
  World world;
  world.programs.follow(world.lease, false);
  ASSERT_EQ(world.actor.verbs(), std::vector{actor::Verb::follow});
  EXPECT_EQ(world.actor.orders[0].main_pid, world.child.pid());
  EXPECT_EQ(world.actor.orders[0].keeper_pid, ::getpid());
  EXPECT_EQ(world.actor.attached[0], 2u);
}

TEST(Programs, OrderNothingForWhatSubletDidNotStart) {
  World world;
  world.lease.owner.keeper = {};
  world.programs.follow(world.lease, false);
  EXPECT_TRUE(world.actor.verbs().empty());
}

TEST(Programs, SignalOnlyOnceTheActorFollows) {
  World world;
  world.programs.follow(world.lease, false);
  EXPECT_TRUE(world.programs.signal(world.lease.id, SIGTERM, 4242));
  EXPECT_EQ(world.actor.verbs().size(), 1u) << "it would not know whom";
  world.actor.answer(actor::Code::ok);
  ASSERT_EQ(world.actor.verbs(), (std::vector{actor::Verb::follow, actor::Verb::signal}));
  EXPECT_EQ(world.actor.orders.back().signal, SIGTERM);
  EXPECT_EQ(world.actor.orders.back().asked_by, 4242u);
}

TEST(Programs, AnOrderThatIsLostIsGivenToTheNextActor) {
  World world;
  world.programs.follow(world.lease, false);
  world.actor.answer(actor::Code::ok);
  EXPECT_TRUE(world.programs.signal(world.lease.id, SIGTERM, actor::the_daemon));
  world.actor.answer(actor::Code::lost);
  world.actor.orders.clear();
  world.programs.introduce_all();
  world.actor.answer(actor::Code::ok);
  EXPECT_EQ(world.actor.verbs(), (std::vector{actor::Verb::follow, actor::Verb::signal}));
  EXPECT_TRUE(world.unkillable.empty());
}

TEST(Programs, SayWhatTheActorDidNotDo) {
  World world;
  world.programs.follow(world.lease, false);
  world.actor.answer(actor::Code::ok);
  world.programs.signal(world.lease.id, SIGTERM, actor::the_daemon);
  world.actor.answer(actor::Code::ok, 3);
  ASSERT_EQ(world.unkillable.size(), 1u);
  EXPECT_NE(world.unkillable[0].find("3 of its processes"), std::string::npos) << world.unkillable[0];
  world.programs.signal(world.lease.id, SIGTERM, 4242);
  world.actor.answer(actor::Code::denied);
  ASSERT_EQ(world.unkillable.size(), 2u);
}

TEST(Programs, AnActorThatRefusesAProgramIsNotAskedToEndIt) {
  World world;
  world.programs.follow(world.lease, false);
  world.actor.answer(actor::Code::wrong_user);
  EXPECT_FALSE(world.programs.signal(world.lease.id, SIGTERM, actor::the_daemon));
  EXPECT_NE(world.programs.why_not_signalled(world.lease.id), "");
  EXPECT_TRUE(world.programs.can_signal(world.lease.id)) << "its keeper lives";
}

// --- helpers that park

std::optional<Result<Fd>> ask_for_helper(World& world, ProcessRef process, bool to_bring_back, actor::Code code,
                                         const std::string& why = {}) {
  auto came = std::make_shared<std::optional<Result<Fd>>>();
  world.programs.start_helper(world.lease.id, process, to_bring_back,
                              [came](Result<Fd> result) { *came = std::move(result); });
  world.actor.answer(code, 0, why);
  return std::move(*came);
}

TEST(Helpers, AreProvenByTheActorWhereItFollows) {
  World world;
  const ProcessRef main = world.lease.owner.process;
  world.programs.follow(world.lease, false);
  world.actor.answer(actor::Code::ok);
  world.actor.attachment = Fd(::dup(0));
  auto came = ask_for_helper(world, main, false, actor::Code::ok);
  ASSERT_TRUE(came && *came);
  EXPECT_TRUE(**came) << "its socket";
  const actor::Order& order = world.actor.orders.back();
  EXPECT_EQ(order.verb, actor::Verb::checkpoint);
  EXPECT_EQ(ProcessRef(order.main_pid, order.main_start), main);
  EXPECT_EQ(order.uid, world.lease.uid);
  EXPECT_EQ(order.flags, 0u);
  EXPECT_EQ(world.actor.attached.back(), 1u);
  world.actor.attachment = Fd(::dup(0));
  EXPECT_TRUE(*ask_for_helper(world, main, true, actor::Code::ok));
  EXPECT_EQ(world.actor.orders.back().flags, actor::by_user | actor::bring_back) << "that needs no proof";
}

TEST(Helpers, OfWhatSubletDidNotStartRestOnItsUser) {
  World world;
  world.lease.owner.keeper = {};
  world.programs.follow(world.lease, false);
  world.actor.attachment = Fd(::dup(0));
  EXPECT_TRUE(*ask_for_helper(world, world.lease.owner.process, false, actor::Code::ok));
  EXPECT_EQ(world.actor.orders.back().flags, actor::by_user);
}

TEST(Helpers, ThatAreRefusedSayWhy) {
  World world;
  const ProcessRef main = world.lease.owner.process;
  world.programs.follow(world.lease, false);
  world.actor.answer(actor::Code::ok);
  using Refused = actor::Code;
  for (const auto& [refused, code] :
       std::initializer_list<std::pair<Refused, Code>>{{Refused::wrong_user, Code::Denied},
                                                       {Refused::other_rights, Code::Denied},
                                                       {Refused::untraceable, Code::Denied},
                                                       {Refused::untouchable, Code::Denied},
                                                       {Refused::gone, Code::NotFound},
                                                       {Refused::busy, Code::InUse},
                                                       {Refused::too_many, Code::InUse},
                                                       {Refused::no_proof, Code::Unavailable},
                                                       {Refused::failed, Code::Unavailable},
                                                       {Refused::lost, Code::Unavailable}}) {
    const auto came = ask_for_helper(world, main, false, refused, "no sublet-gpu");
    ASSERT_TRUE(came && !*came);
    EXPECT_EQ(came->error().code, code) << to_string(refused);
    EXPECT_NE(came->error().detail.find(std::to_string(main.pid)), std::string::npos);
    EXPECT_NE(came->error().detail.find(to_string(refused)), std::string::npos);
    EXPECT_NE(came->error().detail.find("no sublet-gpu"), std::string::npos);
  }
  const auto without = ask_for_helper(world, main, false, actor::Code::ok);
  EXPECT_EQ(without->error().code, Code::Unavailable) << "its socket was lost on the way";
  const ProcessRef gone{main.pid, main.start_ticks + 1};
  EXPECT_EQ(ask_for_helper(world, gone, false, actor::Code::ok)->error().code, Code::NotFound);
  world.programs.forget(world.lease.id);
  EXPECT_EQ(ask_for_helper(world, main, false, actor::Code::ok)->error().code, Code::Unavailable);
}

TEST(Programs, WhatIsUnprovenIsNotEvenNamed) {
  World world;
  world.lease.owner.inode = 4711;  // of some other process
  world.programs.follow(world.lease, true);
  EXPECT_TRUE(world.actor.verbs().empty());
  EXPECT_FALSE(world.programs.signal(world.lease.id, SIGKILL, actor::the_daemon));
}

// Whoever comes next is told who is parked, and lets all others be: nobody is to be warned of that.
TEST(Programs, WhatIsKeptFromSwapIsLetByWhoeverIsThere) {
  World world;
  world.programs.follow(world.lease, false);
  world.actor.answer(actor::Code::ok);
  std::vector<std::string> said;
  const auto say = [&](const std::string& why_not) { said.push_back(why_not); };
  world.programs.keep_from_swap(world.lease.id, {}, false, say);
  const std::size_t before = world.actor.orders.size();
  world.programs.keep_from_swap(world.lease.id, world.lease.owner.process, true, say);
  ASSERT_EQ(world.actor.orders.size(), before + 1) << "of whom nobody was kept, nobody is let be";
  world.actor.answer(actor::Code::ok);
  world.programs.keep_from_swap(world.lease.id, {}, false, say);
  EXPECT_EQ(world.actor.orders.back().flags, actor::let_swap);
  world.actor.answer(actor::Code::lost);
  EXPECT_EQ(said, std::vector<std::string>{""});
  world.programs.all_are_kept();
  EXPECT_EQ(world.actor.orders.back().verb, actor::Verb::all_named);
  world.programs.keep_from_swap(world.lease.id, world.lease.owner.process, true, say);
  world.programs.keep_from_swap(world.lease.id, {}, false, say);
  world.actor.answer(actor::Code::failed, 0, "the kernel refused");
  EXPECT_EQ(said.back(), "the kernel refused");
}

}  // namespace
}  // namespace sublet::engine
