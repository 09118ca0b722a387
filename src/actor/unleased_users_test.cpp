// SPDX-License-Identifier: Apache-2.0
// Descendants of other users below an unleased process.
#include "actor/unleased_test.h"

#include <csignal>
#include <thread>

namespace sublet::actor {
namespace {

void switch_user(uid_t uid) {
  if (::setresuid(uid, uid, uid) != 0) ::_exit(7);
}

// A launcher of root often starts the jobs of others. One that has just been forked becomes its user later.
TEST(Unleased, SparesDescendantsOfAnotherUserWithAllBelowThem) {
  NEEDS_ROOT();
  enum { launcher, own, job, below, starting };
  Judging world;
  Family family;
  family.fork([&] {
    std::signal(SIGTERM, SIG_IGN);
    world.cards.map_card();
    family.fork([&] {
      std::signal(SIGTERM, SIG_DFL);
      family.report(own);
    });
    family.fork([&] {
      switch_user(ana);
      family.fork([&] { family.report(below); });
      family.report(job);
    });
    family.fork([&] {
      std::signal(SIGTERM, [](int) { switch_user(ben); });
      family.report(starting);
    });
    family.report(launcher);
  });
  family.await(5);
  const Reply asked = world.end(family, SIGTERM, launcher);
  EXPECT_EQ(asked.sent, 3u);
  EXPECT_EQ(asked.left, 2u);
  EXPECT_TRUE(ends(family.pidfd(own)));
  const auto user = [&] { return proc::parse_uids(world.root.read_with(family.pid(starting), "status")->text)->real; };
  while (user() != ben) std::this_thread::yield();
  const Reply killed = world.end(family, SIGKILL, launcher);
  EXPECT_EQ(killed.sent, 1u);
  EXPECT_EQ(killed.left, 3u);
  EXPECT_TRUE(ends(family.pidfd(launcher)));
  for (const int spared : {job, below, starting}) EXPECT_TRUE(family.lives(spared)) << spared;
}

}  // namespace
}  // namespace sublet::actor
