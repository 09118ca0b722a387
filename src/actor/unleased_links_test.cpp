// SPDX-License-Identifier: Apache-2.0
// Processes whose parents have ended: reports of the kernel spare them, if a parent belonged to a lease. The orders
// about sources.
#include "actor/unleased_test.h"
#include "base/clock.h"
#include "proc/detached.h"

#include <memory>

namespace sublet::actor {
namespace {

using Kind = proc::ProcessEvent::Kind;

struct Told : EventSource {
  Reading read(std::vector<proc::ProcessEvent>& events) override {
    ++*readings;
    events = std::exchange(*waiting, {});
    return Reading::complete;
  }
  std::vector<proc::ProcessEvent>* waiting = nullptr;
  int* readings = nullptr;
};

// An actor with reports of the test.
struct Linked {
  Linked() {
    (void)links.listen();
    service.emplace(root, ServiceOptions{.group_name = fmt::format("sublet-test-{}", ::getpid()),
                                         .is_admin = {},
                                         .links = &links,
                                         .unleased = {.cards = cards.path()}});
  }
  void forked(pid_t pid, pid_t parent) { reports.push_back({Kind::fork, pid, parent, monotonic_ns(), 0}); }
  void ended(pid_t pid) { reports.push_back({Kind::exit, pid, 0, monotonic_ns(), 0}); }
  Reply ask(const Order& order, std::vector<Fd> attached = {}) {
    return service->answer(std::as_bytes(std::span(&order, 1)), std::move(attached), false);
  }
  Code inspect(pid_t pid, const Fd& pidfd) {
    const Order order{.verb = Verb::inspect,
                      .main_pid = pid,
                      .main_start = root.read(pid)->ref.start_ticks,
                      .main_inode = proc::pidfd_inode(pidfd.get()).value_or(0)};
    std::vector<Fd> attached;
    attached.emplace_back(::dup(pidfd.get()));
    return ask(order, std::move(attached)).code;
  }

  Cards cards;
  proc::ProcRoot root = *proc::ProcRoot::open();
  std::vector<proc::ProcessEvent> reports;
  int readings = 0;  // of the reports
  LinkSources links{root, [this]() -> Result<std::unique_ptr<EventSource>> {
                      auto made = std::make_unique<Told>();
                      made->waiting = &reports;
                      made->readings = &readings;
                      return std::unique_ptr<EventSource>(std::move(made));
                    }};
  std::optional<Service> service;
};

// A process that no other link joins to the lease: its parent has ended, and it has a session of its own. The test is
// the keeper's part of the world, so init or a subreaper has adopted it.
struct OrphanOfALease : ::testing::Test {
  OrphanOfALease() : program(::geteuid(), [] {}) {
    int ends[2] = {-1, -1};
    EXPECT_EQ(::pipe(ends), 0);
    between = ::fork();
    if (between == 0) {
      const pid_t child = ::fork();
      if (child == 0) {
        ::setsid();
        world.cards.map_card();
        const pid_t me = ::getpid();
        if (::write(ends[1], &me, sizeof me) != sizeof me) ::_exit(1);
        ::_exit(proc::sleep_for_ever());
      }
      ::_exit(0);
    }
    EXPECT_EQ(::read(ends[0], &orphan, sizeof orphan), static_cast<ssize_t>(sizeof orphan));
    int status = 0;
    ::waitpid(between, &status, 0);
    ::close(ends[0]);
    ::close(ends[1]);
    pidfd = pidfd_of(orphan);
  }
  ~OrphanOfALease() override { (void)proc::send_signal(pidfd.get(), SIGKILL); }

  Linked world;
  Kept program;  // the program of lease 7
  pid_t between = 0, orphan = 0;
  Fd pidfd;
};

TEST_F(OrphanOfALease, IsSparedByTheReportsOfTheForks) {
  ASSERT_EQ(world.ask(program.order(7, world.root), program.descriptors()).code, Code::ok);
  EXPECT_EQ(world.inspect(orphan, pidfd), Code::ok) << "no report, so nothing links it";
  world.forked(between, program.main());
  world.forked(orphan, between);
  world.ended(between);
  EXPECT_EQ(world.inspect(orphan, pidfd), Code::leased);
  EXPECT_EQ(world.ask({.verb = Verb::forget, .lease = 7}).code, Code::ok);
  EXPECT_EQ(world.inspect(orphan, pidfd), Code::ok) << "the lease is over";
}

TEST_F(OrphanOfALease, IsSparedAlsoIfTheProgramItselfHasEnded) {
  ASSERT_EQ(world.ask(program.order(7, world.root), program.descriptors()).code, Code::ok);
  ASSERT_EQ(world.ask({.verb = Verb::look}).code, Code::ok);
  world.forked(between, program.main());
  world.forked(orphan, between);
  world.ended(between);
  ASSERT_TRUE(proc::send_signal(program.main_pidfd.get(), SIGKILL));
  ASSERT_TRUE(ends(program.main_pidfd));
  world.ended(program.main());
  EXPECT_EQ(world.inspect(orphan, pidfd), Code::leased);
  EXPECT_EQ(world.ask({.verb = Verb::forget, .lease = 7}).code, Code::ok);
}

TEST_F(OrphanOfALease, ASignalToManyProcessesReadsTheReportsOnce) {
  ASSERT_EQ(world.ask(program.order(7, world.root), program.descriptors()).code, Code::ok);
  constexpr int children = 30;
  Family family;
  family.fork([&] {
    world.cards.map_card();
    for (int i = 1; i <= children; ++i) family.fork([&] { family.report(i); });
    family.report(0);
  });
  family.await(children + 1);
  world.forked(between, program.main());
  world.forked(family.pid(9), between);  // another process is its parent now
  world.readings = 0;
  Order order{.verb = Verb::end,
              .lease = 31,
              .main_pid = family.pid(0),
              .main_start = world.root.read(family.pid(0))->ref.start_ticks,
              .main_inode = proc::pidfd_inode(family.pidfd(0).get()).value_or(0),
              .signal = SIGTERM};
  std::vector<Fd> attached;
  attached.emplace_back(::dup(family.pidfd(0).get()));
  const Reply reply = world.ask(order, std::move(attached));
  EXPECT_EQ(reply.code, Code::ok);
  EXPECT_EQ(reply.sent, 30u);
  EXPECT_EQ(reply.left, 1u);
  EXPECT_TRUE(family.lives(9)) << "a link spares it";
  EXPECT_EQ(world.readings, 1);
}

TEST_F(OrphanOfALease, HasItsParentsInTheAnswer) {
  world.forked(between, ::getpid());
  world.forked(orphan, between);
  world.ended(between);
  const Order order{.verb = Verb::parents, .main_pid = orphan, .main_start = world.root.read(orphan)->ref.start_ticks};
  const Reply reply = world.ask(order);
  ASSERT_EQ(reply.code, Code::ok);
  ASSERT_GE(reply.sent, 2u);
  const Fd file = world.service->take_attachment();
  Parent parents[2];
  ASSERT_EQ(::pread(file.get(), parents, sizeof parents, 0), static_cast<ssize_t>(sizeof parents));
  EXPECT_EQ(parents[0].pid, between);
  EXPECT_EQ(parents[0].flags, is_certain | has_ended);
  EXPECT_EQ(parents[0].source, static_cast<std::uint32_t>(proc::ParentSource::connector));
  EXPECT_EQ(parents[1].pid, ::getpid());
  EXPECT_EQ(parents[1].flags, is_certain);
  EXPECT_NE(std::string(parents[1].name), "");
}

TEST(LinkOrders, TellWhetherASourceWorks) {
  Linked world;
  const Reply connector = world.ask({.verb = Verb::source, .flags = the_connector});
  EXPECT_EQ(connector.code, Code::ok);
  EXPECT_EQ(std::string(connector.path).find("complete since 20"), 0u) << connector.path;
  const auto account = [&](const std::string& path) {
    std::vector<Fd> attached;
    attached.push_back(std::move(*proc::document_file(path)));
    return world.ask({.verb = Verb::source, .flags = the_accounting}, std::move(attached));
  };
  EXPECT_EQ(std::string(account("").path), "enforcer.accounting names no file");
  EXPECT_EQ(account("/nonexistent").code, Code::failed);
  EXPECT_EQ(account("relative").code, Code::descriptors);
  EXPECT_EQ(account(std::string(5000, '/')).code, Code::descriptors);
}

TEST(LinkOrders, TakeTheirOwnFieldsOnly) {
  Linked world;
  const struct {
    const char* name;
    Order order;
    Code code;
  } rows[] = {
      {"no source", {.verb = Verb::source}, Code::malformed},
      {"two sources", {.verb = Verb::source, .flags = the_connector | the_accounting}, Code::malformed},
      {"a lease", {.verb = Verb::source, .lease = 7, .flags = the_connector}, Code::malformed},
      {"a process", {.verb = Verb::source, .flags = the_connector, .main_pid = 5}, Code::malformed},
      {"no path", {.verb = Verb::source, .flags = the_accounting}, Code::descriptors},
      {"an admin", {.verb = Verb::source, .asked_by = 0, .flags = the_connector}, Code::denied},
      {"no process", {.verb = Verb::parents}, Code::malformed},
      {"no start", {.verb = Verb::parents, .main_pid = 5}, Code::malformed},
      {"a signal", {.verb = Verb::parents, .main_pid = 5, .main_start = 1, .signal = 9}, Code::malformed},
      {"an admin asks", {.verb = Verb::parents, .asked_by = 0, .main_pid = 5, .main_start = 1}, Code::denied},
  };
  for (const auto& row : rows) EXPECT_EQ(world.ask(row.order).code, row.code) << row.name;
}

}  // namespace
}  // namespace sublet::actor
