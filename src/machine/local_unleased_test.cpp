// SPDX-License-Identifier: Apache-2.0
// Unleased processes with a real process and an actor that only records.
#include "machine/local_unleased.h"

#include "machine/local_programs_test.h"

#include "proc/detached.h"

#include <algorithm>
#include <csignal>
#include <optional>

namespace sublet::machine {
namespace {

using UnleasedKind = UnleasedResult::Kind;

struct LocalUnleasedTest : ::testing::Test {
  LocalUnleasedTest() {
    process = programs.root().read(child.pid())->ref;
    const auto held = unleased->hold(process, 0);
    EXPECT_TRUE(held);
    inode = held ? *held : 0;
  }
  Unleased::Done keep() {
    return [this](const UnleasedResult& its) { result = its; };
  }
  void settle() {
    io.restart();
    io.poll();
  }
  void end_child() {
    ::kill(child.pid(), SIGKILL);
    child.wait_for_end();
  }

  FollowedProgram world;
  boost::asio::io_context& io = world.io;
  NotingActor& actor = world.actor;
  LocalPrograms& programs = world.programs;
  proc::Child child{proc::sleep_for_ever};
  std::unique_ptr<Unleased> unleased = local_unleased(io, actor, programs);
  ProcessRef process;
  std::uint64_t inode = 0;
  std::optional<UnleasedResult> result;
};

TEST_F(LocalUnleasedTest, HoldsExactlyTheProcess) {
  EXPECT_TRUE(unleased->lives(process));
  EXPECT_EQ(*unleased->hold(process, inode), inode);
  ProcessRef other = process;
  ++other.start_ticks;
  EXPECT_EQ(unleased->hold(other, 0).error().code, Code::NotFound);
  EXPECT_EQ(unleased->hold(process, inode + 1).error().code, Code::NotFound) << "another process had this pid";
  EXPECT_FALSE(unleased->lives(other));
  end_child();
  EXPECT_FALSE(unleased->lives(process));
  EXPECT_FALSE(unleased->describe(process));
  unleased->let_go(process);
  EXPECT_FALSE(unleased->lives(process));
}

TEST_F(LocalUnleasedTest, DescribesTheProcess) {
  const auto record = unleased->describe(process);
  ASSERT_TRUE(record);
  EXPECT_EQ(record->process, process);
  EXPECT_EQ(record->uid, ::getuid());
}

TEST_F(LocalUnleasedTest, LooksByThePidfd) {
  unleased->look(process, keep());
  ASSERT_EQ(actor.verbs(), std::vector{actor::Verb::inspect});
  EXPECT_EQ(actor.attached[0], 1u);
  EXPECT_EQ(actor.orders[0].main_pid, process.pid);
  EXPECT_EQ(actor.orders[0].main_start, process.start_ticks);
  EXPECT_EQ(actor.orders[0].main_inode, inode);
  EXPECT_EQ(actor.orders[0].lease, 0u);
  EXPECT_EQ(actor.orders[0].asked_by, actor::the_daemon);
  EXPECT_FALSE(result);
  actor.answer(actor::Code::ok, 0, "/usr/bin/python3");
  ASSERT_TRUE(result);
  EXPECT_EQ(result->kind, UnleasedKind::done);
  EXPECT_EQ(result->exe, "/usr/bin/python3");
  EXPECT_EQ(result->why, "");
}

TEST_F(LocalUnleasedTest, EndsWithTheNumberOfTheRecord) {
  for (const int signal : {SIGTERM, SIGKILL}) {
    unleased->end(31, process, signal, {}, keep());
    EXPECT_EQ(actor.orders.back().verb, actor::Verb::end);
    EXPECT_EQ(actor.orders.back().lease, 31u);
    EXPECT_EQ(actor.orders.back().signal, signal);
    EXPECT_EQ(actor.attached.back(), 1u);
    actor.answer(actor::Code::ok);
    EXPECT_EQ(result->kind, UnleasedKind::done);
  }
  unleased->close(31);
  EXPECT_EQ(actor.orders.back().verb, actor::Verb::close);
  EXPECT_EQ(actor.orders.back().lease, 31u);
}

TEST_F(LocalUnleasedTest, KillsTheRestAfterTheEndOfTheProcess) {
  end_child();
  unleased->end(31, process, SIGKILL, {}, keep());
  ASSERT_EQ(actor.verbs(), std::vector{actor::Verb::end});
  EXPECT_EQ(actor.orders[0].main_inode, inode);
}

TEST_F(LocalUnleasedTest, TranslatesTheAnswersOfTheActor) {
  const struct {
    actor::Code code;
    int error;
    UnleasedKind look, end;
  } answers[] = {
      {actor::Code::gone, 0, UnleasedKind::gone, UnleasedKind::gone},
      {actor::Code::no_proof, 0, UnleasedKind::gone, UnleasedKind::gone},
      {actor::Code::untouchable, 0, UnleasedKind::spared, UnleasedKind::spared},
      {actor::Code::leased, 0, UnleasedKind::spared, UnleasedKind::spared},
      {actor::Code::no_evidence, 0, UnleasedKind::spared, UnleasedKind::spared},
      {actor::Code::failed, EPERM, UnleasedKind::spared, UnleasedKind::spared},
      {actor::Code::lost, 0, UnleasedKind::no_actor, UnleasedKind::no_actor},
      {actor::Code::lost, ECONNRESET, UnleasedKind::no_actor, UnleasedKind::uncertain},
  };
  for (const auto& [code, error, look, end] : answers) {
    SCOPED_TRACE(to_string(code));
    unleased->look(process, keep());
    actor.answer(code, 0, {}, error);
    EXPECT_EQ(result->kind, look);
    EXPECT_NE(result->why, "");
    unleased->end(31, process, SIGTERM, {}, keep());
    actor.answer(code, 0, {}, error);
    EXPECT_EQ(result->kind, end);
    EXPECT_NE(result->why, "");
  }
}

TEST_F(LocalUnleasedTest, OrdersNothingWithoutAnActorOrAHeldProcess) {
  actor.here = false;
  unleased->look(process, keep());
  EXPECT_FALSE(result) << "the answer comes later";
  settle();
  EXPECT_EQ(result->kind, UnleasedKind::no_actor);
  unleased->end(31, process, SIGTERM, {}, keep());
  unleased->close(31);
  settle();
  EXPECT_EQ(result->kind, UnleasedKind::no_actor);
  actor.here = true;
  unleased->let_go(process);
  unleased->end(31, process, SIGTERM, {}, keep());
  settle();
  EXPECT_EQ(result->kind, UnleasedKind::gone);
  EXPECT_TRUE(actor.verbs().empty());
}

TEST_F(LocalUnleasedTest, TracesByTheActor) {
  std::optional<Parents> parents;
  const auto told = [&](const Parents& its) { parents = its; };
  unleased->trace(process, told);
  ASSERT_EQ(actor.verbs(), std::vector{actor::Verb::parents});
  EXPECT_EQ(actor.orders[0].main_start, process.start_ticks);
  EXPECT_FALSE(parents);
  actor.answer(actor::Code::lost);
  ASSERT_TRUE(parents);
  EXPECT_TRUE(parents->ancestry.empty() && parents->missing.empty() && !parents->asked);

  actor::Parent told_by_it{.pid = 4000,
                           .uid = 1000,
                           .start_ticks = 50,
                           .ended_ns = 7,
                           .source = 99,  // of a later version
                           .flags = actor::has_ended};
  std::ranges::fill(told_by_it.name, 'x');  // without an end
  actor::Reply reply;
  reply.sent = 1;
  unleased->trace(process, told);
  actor.attachment = *proc::document_file({reinterpret_cast<const char*>(&told_by_it), sizeof told_by_it});
  actor.answer_with(reply);
  EXPECT_TRUE(parents->asked);
  ASSERT_EQ(parents->ancestry.size(), 1u);
  const proc::Ancestor& parent = parents->ancestry[0];
  EXPECT_EQ(parent.process, (ProcessRef{4000, 50}));
  EXPECT_TRUE(parent.dead && !parent.certain && parent.source == proc::ParentSource::leader);
  EXPECT_EQ(parent.name, std::string(sizeof told_by_it.name, 'x'));

  reply.sent = 2;  // more than the file has
  unleased->trace(process, told);
  actor.attachment = *proc::document_file("short");
  actor.answer_with(reply);
  EXPECT_TRUE(parents->ancestry.empty());
  EXPECT_FALSE(parents->asked);

  reply.sent = 0;  // it has none
  unleased->trace(process, told);
  actor.attachment = *proc::document_file("");
  actor.answer_with(reply);
  EXPECT_TRUE(parents->ancestry.empty() && parents->asked);
}

TEST_F(LocalUnleasedTest, AsksForTheSources) {
  EXPECT_EQ(unleased->sources()[0].text, "not asked yet");
  unleased->open_sources("/var/log/account/pacct");
  ASSERT_EQ(actor.verbs(), (std::vector{actor::Verb::source, actor::Verb::source}));
  EXPECT_EQ(actor.orders[0].flags, actor::the_connector);
  EXPECT_EQ(actor.orders[1].flags, actor::the_accounting);
  EXPECT_EQ(actor.attached[0], 0u);
  EXPECT_EQ(actor.attached[1], 1u);
  actor.answer(actor::Code::ok, 0, "complete since noon");
  EXPECT_TRUE(unleased->sources()[0].works);
  EXPECT_EQ(unleased->sources()[1].text, "complete since noon");
  unleased->open_sources("");
  actor.answer(actor::Code::lost);
  EXPECT_FALSE(unleased->sources()[0].works);
  EXPECT_EQ(unleased->sources()[0].text, "the actor does not run");
}

// Books the child to a lease, as `attach` does. The actor cannot prove this.
struct BookedTest : LocalUnleasedTest {
  void book(ProcessRef booked) {
    core::Lease lease;
    lease.id = LeaseId{9};
    lease.uid = ::geteuid();
    lease.booked.push_back({.process = booked, .cgroup = {}});
    programs.book(lease);
  }
};

TEST_F(BookedTest, AProcessOfALeaseIsNotEnded) {
  book(process);
  unleased->end(31, process, SIGKILL, {}, keep());
  settle();
  ASSERT_TRUE(result);
  EXPECT_EQ(result->kind, UnleasedKind::spared);
  EXPECT_EQ(result->why, "the process belongs to lease-9");
  EXPECT_TRUE(actor.verbs().empty());
}

TEST_F(BookedTest, TheActorLearnsOfALeasedProcessBeforeTheOrder) {
  const proc::Child other(proc::sleep_for_ever);
  const ProcessRef booked = programs.root().read(other.pid())->ref;
  book(booked);
  unleased->end(31, process, SIGTERM, {}, keep());
  ASSERT_EQ(actor.verbs(), std::vector{actor::Verb::end});
  EXPECT_EQ(actor.orders[0].flags, actor::to_spare);
  EXPECT_EQ(actor.orders[0].signal, 0);
  EXPECT_EQ(actor.orders[0].lease, 31u);
  EXPECT_EQ(actor.orders[0].main_pid, booked.pid);
  actor.answer(actor::Code::ok);
  ASSERT_EQ(actor.verbs().size(), 2u);
  EXPECT_EQ(actor.orders[1].main_pid, process.pid);
  EXPECT_EQ(actor.orders[1].signal, SIGTERM);
  actor.answer(actor::Code::ok);
  EXPECT_EQ(result->kind, UnleasedKind::done);
}

TEST_F(BookedTest, NothingIsEndedIfTheActorDidNotLearnOfALeasedProcess) {
  const proc::Child other(proc::sleep_for_ever);
  book(programs.root().read(other.pid())->ref);
  unleased->end(31, process, SIGTERM, {}, keep());
  actor.answer(actor::Code::too_many);
  ASSERT_TRUE(result);
  EXPECT_EQ(result->kind, UnleasedKind::no_actor);
  EXPECT_EQ(actor.verbs().size(), 1u);
}

}  // namespace
}  // namespace sublet::machine
