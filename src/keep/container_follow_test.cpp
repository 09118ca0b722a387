// SPDX-License-Identifier: Apache-2.0
#include "keep/container_follow.h"

#include "client/fake_server.h"

#include <gtest/gtest.h>

#include <sys/stat.h>
#include <unistd.h>

namespace sublet::keep {
namespace {

constexpr uid_t somebody_else = 12345;

struct Groups {
  test::ScratchDir top;
  std::string make(const std::string& path, bool foreign = false) {
    std::string at = top.path();
    for (std::size_t from = 0; from < path.size();) {
      const auto slash = std::min(path.find('/', from), path.size());
      at += "/" + path.substr(from, slash - from);
      ::mkdir(at.c_str(), 0755);
      from = slash + 1;
    }
    const int given = foreign ? ::chown(at.c_str(), somebody_else, somebody_else) : 0;
    EXPECT_EQ(given, 0);
    return at;
  }
};

TEST(ContainerFollow, FindsTheGroupOfARootlessEngine) {
  Groups groups;
  EXPECT_EQ(group_directory(groups.top.path(), "sublet_7_ab.slice"), "");
  const std::string nested = groups.make("user.slice/user-1000.slice/user@1000.service/sublet_7_ab.slice");
  EXPECT_EQ(group_directory(groups.top.path(), "sublet_7_ab.slice"), nested);
  const std::string direct = groups.make("sublet_7_ab.slice");
  EXPECT_EQ(group_directory(groups.top.path(), "sublet_7_ab.slice"), direct);
}

TEST(ContainerFollow, TakesNoGroupThatAnotherUserMade) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root gives directories to others";
  Groups groups;
  groups.make("user.slice/user-1.slice/sublet_7_ab.slice", true);
  EXPECT_EQ(group_directory(groups.top.path(), "sublet_7_ab.slice"), "");
  const std::string own = groups.make("user.slice/user-2.slice/sublet_7_ab.slice");
  EXPECT_EQ(group_directory(groups.top.path(), "sublet_7_ab.slice"), own) << "and looks on";
  const std::string id(64, 'a');
  groups.make("user.slice/user-2.slice/sublet_7_ab.slice/docker-" + std::string(64, 'b') + ".scope", true);
  groups.make("user.slice/user-2.slice/sublet_7_ab.slice/docker-" + id + ".scope");
  EXPECT_EQ(containers_in(own), std::vector<std::string>{id});
}

TEST(ContainerFollow, FollowsNoLink) {
  Groups groups;
  const std::string other = groups.make("other.slice");
  ASSERT_EQ(::symlink(other.c_str(), (groups.top.path() + "/sublet_7_ab.slice").c_str()), 0);
  EXPECT_EQ(group_directory(groups.top.path(), "sublet_7_ab.slice"), "");
}

TEST(ContainerFollow, ABookingThatAPauseHinderedIsTriedAgain) {
  const client::Failure paused{client::FailureKind::answered, {Code::Stale, "lease-7 is paused", {}}, 409, {}};
  const client::Failure refused{client::FailureKind::answered, {Code::Denied, "only an admin", {}}, 403, {}};
  EXPECT_TRUE(may_book_later(paused));
  EXPECT_FALSE(may_book_later(refused));
}

TEST(ContainerFollow, TheProgramOfALeaseGetsItsDevicesInTheOrderOfTheCaller) {
  Events events;
  client::Lease lease;
  lease.id = "lease-7";
  lease.devices = {"GPU-a", "GPU-b"};
  std::vector<std::string> ended;
  Listener listener{[](const std::string&) {}, [](const char*, const nlohmann::json&) {}};
  listener.ended = [&](const std::string& how) { ended.push_back(how); };
  Launch launch{{"docker", "run", "--cgroup-parent", "/mine", "img"}, {"CUDA_VISIBLE_DEVICES=GPU-b,GPU-a"}};
  const auto follow = follow_container(launch, listener, client::Endpoint(), events, lease, "", nlohmann::json());
  ASSERT_NE(follow, nullptr);
  EXPECT_EQ(launch.arguments[2], "--env=NVIDIA_VISIBLE_DEVICES=GPU-b,GPU-a");
  listener.ended("exit status 0");
  EXPECT_EQ(ended, std::vector<std::string>{"exit status 0"});
  Launch other{{"python", "train.py"}, {}};
  EXPECT_EQ(follow_container(other, listener, client::Endpoint(), events, lease, "", nlohmann::json()), nullptr);
}

}  // namespace
}  // namespace sublet::keep
