// SPDX-License-Identifier: Apache-2.0
// Parents that have ended: by reports that a test makes, by the kernel's own, and by accounting.
#include "actor/link_sources.h"

#include "actor/test_support.h"
#include "base/clock.h"

#include <linux/acct.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <cstring>

namespace sublet::actor {
namespace {

using Kind = proc::ProcessEvent::Kind;

// A source that gives the reports of the test.
struct Reports : EventSource {
  Reading read(std::vector<proc::ProcessEvent>& events) override {
    events.insert(events.end(), waiting.begin(), waiting.end());
    waiting.clear();
    return std::exchange(next, Reading::complete);
  }
  std::vector<proc::ProcessEvent> waiting;
  Reading next = Reading::complete;
};

// A process whose parent has ended. Both are known by their pids.
class Orphan {
 public:
  explicit Orphan(bool own_session = false) {
    int ends[2];
    EXPECT_EQ(::pipe(ends), 0);
    parent = ::fork();
    if (parent == 0) {
      if (own_session) ::setsid();
      const pid_t child = ::fork();
      if (child == 0) ::_exit(proc::sleep_for_ever());
      ::_exit(::write(ends[1], &child, sizeof child) == sizeof child ? 0 : 1);
    }
    EXPECT_EQ(::read(ends[0], &pid, sizeof pid), static_cast<ssize_t>(sizeof pid));
    int status = 0;
    ::waitpid(parent, &status, 0);
    ::close(ends[0]);
    ::close(ends[1]);
    pidfd = pidfd_of(pid);
  }
  ~Orphan() { (void)proc::send_signal(pidfd.get(), SIGKILL); }
  Orphan(const Orphan&) = delete;
  Orphan& operator=(const Orphan&) = delete;

  pid_t parent = 0, pid = 0;
  Fd pidfd;
};

struct LinksTest : ::testing::Test {
  LinksTest() { EXPECT_TRUE(links.listen().works); }
  Traced trace(pid_t pid) { return links.trace(root.read(pid)->ref); }
  void report(Kind kind, pid_t pid, pid_t parent, std::int64_t at_ns = monotonic_ns()) {
    reports->waiting.push_back({kind, pid, parent, at_ns, 0});
  }

  proc::ProcRoot root = *proc::ProcRoot::open();
  Reports* reports = nullptr;
  LinkSources links{root, [this]() -> Result<std::unique_ptr<EventSource>> {
                      auto made = std::make_unique<Reports>();
                      reports = made.get();
                      return std::unique_ptr<EventSource>(std::move(made));
                    }};
};

TEST_F(LinksTest, ShowALivingParentByTheProcessTable) {
  const proc::Child child(proc::sleep_for_ever);
  const Traced traced = trace(child.pid());
  ASSERT_FALSE(traced.ancestry.empty());
  const proc::Ancestor& parent = traced.ancestry.front();
  EXPECT_EQ(parent.process, root.read(::getpid())->ref);
  EXPECT_TRUE(parent.source == proc::ParentSource::proc && parent.certain && !parent.dead);
  // The process that started the tests may have ended. No record is missing of the child itself.
  EXPECT_EQ(traced.missing.find("process " + std::to_string(child.pid()) + " "), std::string::npos) << traced.missing;
}

TEST_F(LinksTest, ShowADeadParentByTheReportOfTheFork) {
  const Orphan orphan;
  report(Kind::fork, orphan.parent, ::getpid());
  report(Kind::fork, orphan.pid, orphan.parent);
  report(Kind::exit, orphan.parent, ::getpid());
  const Traced traced = trace(orphan.pid);
  ASSERT_GE(traced.ancestry.size(), 2u) << traced.missing;
  const proc::Ancestor& parent = traced.ancestry[0];
  EXPECT_EQ(parent.process.pid, orphan.parent);
  EXPECT_TRUE(parent.source == proc::ParentSource::connector && parent.certain && parent.dead);
  EXPECT_NEAR(double(parent.ended.ns), double(wall_time().ns), 1e10);
  EXPECT_EQ(traced.ancestry[1].process, root.read(::getpid())->ref) << "its parent lives";
  EXPECT_EQ(traced.ancestry[1].source, proc::ParentSource::connector);
  EXPECT_FALSE(traced.ancestry[1].dead);
}

TEST_F(LinksTest, KnowAParentThatIsOlderThanTheReportsByItsEnd) {
  const Orphan orphan;
  report(Kind::fork, orphan.pid, orphan.parent);
  report(Kind::exit, orphan.parent, ::getpid());
  const Traced traced = trace(orphan.pid);
  ASSERT_GE(traced.ancestry.size(), 2u);
  EXPECT_EQ(traced.ancestry[1].process, root.read(::getpid())->ref);
  EXPECT_FALSE(traced.ancestry[1].certain) << "the end tells the last parent only";
}

TEST_F(LinksTest, SayThatARecordIsMissing) {
  const Orphan orphan;
  report(Kind::fork, orphan.pid, orphan.parent);
  const Traced traced = trace(orphan.pid);
  ASSERT_EQ(traced.ancestry.size(), 1u);
  EXPECT_EQ(traced.ancestry[0].name, "") << "nobody read it";
  EXPECT_NE(traced.missing.find(fmt::format("the parent of process {} ended before ", orphan.parent)),
            std::string::npos)
      << traced.missing;
  EXPECT_NE(traced.missing.find("; no record"), std::string::npos);
}

TEST_F(LinksTest, BeginAnewAfterALoss) {
  const std::string before = links.listen().text;
  std::string after = before;
  for (int i = 0; i < 1'000'000 && after == before; ++i) {  // the text has milliseconds
    reports->next = EventSource::Reading::overrun;
    after = links.listen().text;
  }
  EXPECT_NE(before, after);
  EXPECT_EQ(after.find("complete since "), 0u) << after;
  reports->next = EventSource::Reading::failed;
  EXPECT_FALSE(links.listen().works);
  EXPECT_TRUE(links.listen().works) << "it is opened again";
}

TEST_F(LinksTest, TakeNoRecordOfAnotherProcessWithTheSamePid) {
  const proc::Child child(proc::sleep_for_ever);
  const std::int64_t long_ago = monotonic_ns() - 100'000'000'000;
  report(Kind::fork, child.pid(), 999'999, long_ago);
  report(Kind::exit, child.pid(), 999'999, long_ago + 1);
  const Traced traced = trace(child.pid());
  ASSERT_FALSE(traced.ancestry.empty());
  EXPECT_EQ(traced.ancestry[0].process.pid, ::getpid());
}

TEST_F(LinksTest, ReadTheNameOfAParentWhileItLives) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  auto parent = std::make_unique<proc::Child>([&] {
    const pid_t child = ::fork();
    if (child == 0) return proc::sleep_for_ever();
    return ::write(ends[1], &child, sizeof child) == sizeof child ? proc::sleep_for_ever() : 1;
  });
  const pid_t dead = parent->pid();
  pid_t child = 0;
  ASSERT_EQ(::read(ends[0], &child, sizeof child), static_cast<ssize_t>(sizeof child));
  const Fd pidfd = pidfd_of(child);
  report(Kind::fork, dead, ::getpid());
  report(Kind::fork, child, dead);
  const std::string name = root.read(dead)->comm;
  links.drain();
  parent.reset();
  report(Kind::exit, dead, ::getpid());
  const Traced traced = trace(child);
  ASSERT_FALSE(traced.ancestry.empty());
  EXPECT_EQ(traced.ancestry[0].name, name);
  EXPECT_EQ(traced.ancestry[0].uid, ::geteuid());
  EXPECT_TRUE(traced.ancestry[0].dead);
  EXPECT_TRUE(proc::send_signal(pidfd.get(), SIGKILL));
  ::close(ends[0]);
  ::close(ends[1]);
}

std::string accounted(pid_t pid, pid_t parent, const char* name) {
  acct_v3 record{};
  record.ac_version = 3;
  record.ac_pid = static_cast<std::uint32_t>(pid);
  record.ac_ppid = static_cast<std::uint32_t>(parent);
  record.ac_uid = 1000;
  record.ac_btime = static_cast<std::uint32_t>(wall_time().ns / 1'000'000'000);
  std::memcpy(record.ac_comm, name, std::strlen(name));
  return {reinterpret_cast<const char*>(&record), sizeof record};
}

// Also where new files of a user are writable for the user's group.
void write_accounting(const proc::TempDir& place, const std::string& records) {
  place.write("pacct", records);
  EXPECT_EQ(::chmod(place.path("pacct").c_str(), 0600), 0);
}

TEST_F(LinksTest, NameDeadParentsByAccounting) {
  const Orphan orphan;
  const proc::TempDir place;
  write_accounting(place, accounted(orphan.parent, ::getpid(), "launcher"));
  ASSERT_TRUE(links.account(place.path("pacct")).works);
  report(Kind::fork, orphan.pid, orphan.parent);
  const Traced traced = trace(orphan.pid);
  ASSERT_GE(traced.ancestry.size(), 2u) << traced.missing;
  EXPECT_EQ(traced.ancestry[0].name, "launcher");
  EXPECT_EQ(traced.ancestry[0].uid, 1000u);
  EXPECT_EQ(traced.ancestry[1].process, root.read(::getpid())->ref);
  EXPECT_EQ(traced.ancestry[1].source, proc::ParentSource::accounting);
  EXPECT_FALSE(traced.ancestry[1].certain);
}

TEST(Links, AreNotTriedAgainAtOnceAfterARefusal) {
  const auto root = *proc::ProcRoot::open();
  int tries = 0;
  LinkSources links(root, [&]() -> Result<std::unique_ptr<EventSource>> {
    ++tries;
    return unavailable("not here");
  });
  for (int i = 0; i < 3; ++i) EXPECT_EQ(links.listen().text, "not here");
  EXPECT_EQ(tries, 1);
}

TEST(Links, AskForARestartIfALostConnectorCannotBeOpenedAgain) {
  const auto root = *proc::ProcRoot::open();
  Reports* reports = nullptr;
  LinkSources links(root, [&]() -> Result<std::unique_ptr<EventSource>> {
    if (reports != nullptr) return unavailable("no right");
    auto made = std::make_unique<Reports>();
    reports = made.get();
    return std::unique_ptr<EventSource>(std::move(made));
  });
  ASSERT_TRUE(links.listen().works);
  reports->next = EventSource::Reading::failed;
  EXPECT_EQ(links.listen().text, "the process connector was lost");
  const auto lost = links.listen();
  EXPECT_FALSE(lost.works);
  EXPECT_EQ(lost.text.find("no right; restart sublet-actor"), 0u) << lost.text;
}

TEST_F(LinksTest, TakeTheFileThatIsNamedNow) {
  const Orphan orphan;
  const proc::TempDir place, other;
  write_accounting(place, accounted(orphan.parent, ::getpid(), "launcher") + accounted(50, 40, "sh"));
  write_accounting(other, accounted(50, 40, "sh"));
  report(Kind::fork, orphan.pid, orphan.parent);
  ASSERT_TRUE(links.account(place.path("pacct")).works);
  EXPECT_EQ(trace(orphan.pid).ancestry.at(0).name, "launcher") << "the last record is another";
  ASSERT_TRUE(links.account(other.path("pacct")).works);
  EXPECT_EQ(trace(orphan.pid).ancestry.at(0).name, "");
}

TEST_F(LinksTest, NoticeThatAccountingHasStopped) {
  const proc::TempDir place;
  write_accounting(place, accounted(50, 40, "sh"));
  report(Kind::exit, 50, 40);
  links.drain();
  EXPECT_TRUE(links.account(place.path("pacct")).works);
  report(Kind::exit, 51, 40, monotonic_ns() + 120'000'000'000);
  links.drain();
  const auto stopped = links.account(place.path("pacct"));
  EXPECT_FALSE(stopped.works);
  EXPECT_NE(stopped.text.find("and processes have ended: is accounting on?"), std::string::npos) << stopped.text;
}

// Without reports of forks, the session of a process names a dead process above it.
TEST(Links, FindADeadParentByTheSessionAndAccounting) {
  const auto root = *proc::ProcRoot::open();
  LinkSources links(root, []() -> Result<std::unique_ptr<EventSource>> { return unavailable("no connector here"); });
  EXPECT_FALSE(links.listen().works);
  EXPECT_EQ(links.listen().text, "no connector here");
  const Orphan orphan(true);
  Traced traced = links.trace(root.read(orphan.pid)->ref);
  EXPECT_EQ(traced.missing, fmt::format("process {}, which led the session or process group of process {}, has ended; "
                                        "no record",
                                        orphan.parent, orphan.pid));
  const proc::TempDir place;
  write_accounting(place, accounted(orphan.parent, ::getpid(), "launcher"));
  EXPECT_EQ(links.account("").text, "enforcer.accounting names no file");
  ASSERT_TRUE(links.account(place.path("pacct")).works);
  traced = links.trace(root.read(orphan.pid)->ref);
  ASSERT_GE(traced.ancestry.size(), 2u) << traced.missing;
  EXPECT_EQ(traced.ancestry[0].name, "launcher");
  EXPECT_TRUE(traced.ancestry[0].dead && !traced.ancestry[0].certain);
  EXPECT_EQ(traced.ancestry[0].source, proc::ParentSource::leader);
  EXPECT_EQ(traced.ancestry[1].process, root.read(::getpid())->ref);
}

TEST(ForkRecords, AreBoundedAndKeepTheNewest) {
  ForkRecords records(4);
  records.begin(1);
  for (int i = 1; i <= 6; ++i) records.take({Kind::fork, i, 100 + i, 10 * i, 0});
  EXPECT_EQ(records.size(), 4u);
  EXPECT_EQ(records.find(2, 1000), nullptr);
  EXPECT_EQ(records.find(3, 1000)->parent, 103);
  EXPECT_EQ(records.complete_since_ns(), 20) << "what was overwritten is missing";
  records.take({Kind::fork, 3, 200, 70, 0});  // the pid is used again, and the first record is overwritten
  EXPECT_EQ(records.find(3, 1000)->parent, 200);
  EXPECT_EQ(records.find(3, 60), nullptr);
  records.take({Kind::fork, 6, 201, 80, 0});
  EXPECT_EQ(records.find(6, 1000)->parent, 201);
  EXPECT_EQ(records.find(6, 75)->parent, 106) << "the earlier process with this pid";
}

TEST(ForkRecords, TakeTheEndOfAFirstThreadBack) {
  ForkRecords records;
  records.begin(1);
  const auto find = [&](std::int32_t pid) { return *records.find(pid, 1000); };
  records.take({Kind::fork, 5, 4, 10, 0});
  records.take({Kind::exit, 5, 4, 20, 0});
  records.take({Kind::fork, 6, 5, 15, 0});
  EXPECT_EQ(find(5).ended_ns, 20) << "the fork was before the end";
  records.take({Kind::fork, 7, 5, 30, 0});
  EXPECT_EQ(find(5).ended_ns, 0);
  EXPECT_EQ(find(5).parent, 4);
  records.take({Kind::exit, 5, 4, 40, 0});
  EXPECT_EQ(find(5).ended_ns, 40);
  records.take({Kind::exec, 5, 0, 50, 0});
  EXPECT_EQ(find(5).ended_ns, 0);
  EXPECT_EQ(records.size(), 3u);

  records.take({Kind::exit, 9, 8, 60, 0});  // older than the records
  records.take({Kind::exec, 9, 0, 70, 0});
  EXPECT_EQ(find(9).parent, 0) << "its parent may have ended since";
  records.take({Kind::exit, 9, 1, 80, 0});
  EXPECT_EQ(find(9).parent, 1);
  records.take({Kind::fork, 9, 3, 90, 0});
  EXPECT_EQ(records.find(9, 85)->ended_ns, 80) << "another process with this pid ends nothing and revives nothing";
}

// The kernel's own reports, where this machine lets us listen.
TEST(Links, ShowADeadParentByTheKernelsReports) {
  const auto root = *proc::ProcRoot::open();
  LinkSources links(root);
  if (const auto condition = links.listen(); !condition.works) {
    GTEST_SKIP() << "the process connector is not usable here: " << condition.text;
  }
  const Orphan orphan(true);
  const Traced traced = links.trace(root.read(orphan.pid)->ref);
  ASSERT_GE(traced.ancestry.size(), 2u) << traced.missing;
  EXPECT_EQ(traced.ancestry[0].process.pid, orphan.parent);
  EXPECT_TRUE(traced.ancestry[0].dead && traced.ancestry[0].certain);
  EXPECT_EQ(traced.ancestry[0].source, proc::ParentSource::connector);
  EXPECT_EQ(traced.ancestry[1].process, root.read(::getpid())->ref);
}

}  // namespace
}  // namespace sublet::actor
