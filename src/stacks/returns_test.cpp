// SPDX-License-Identifier: Apache-2.0
// Containers that others restart by hand: what the stack and its lease make of it.
#include "stacks/test_support.h"

namespace sublet::stacks {
namespace {

using namespace std::chrono_literals;

class ReturnsTest : public StacksTest {
 protected:
  void exits() {
    worker_.containers["chat"][0].status = "exited";
    worker_.containers["chat"][0].exit_code = 143;
    worker_.tell("chat");
    settle();
  }
  void comes_back() {
    worker_.containers["chat"][0].status = "running";
    worker_.containers["chat"][0].health = "healthy";
    worker_.tell("chat");
    settle();
  }
};

TEST_F(ReturnsTest, ARestartByHandKeepsContainersAndLease) {
  ASSERT_TRUE(acquire("chat"));
  const LeaseId id = lease("chat")->id;
  exits();
  pass(9s);
  comes_back();
  pass(1min);
  EXPECT_EQ(state("chat"), "ready");
  EXPECT_EQ(at("chat").why, "");
  EXPECT_EQ(lease("chat")->id, id);
  EXPECT_FALSE(lease("chat")->ended());
  EXPECT_TRUE(worker_.downs.empty()) << "its files would be lost with its container";
}

TEST_F(ReturnsTest, ARestartOfTheEngineIsWaitedFor) {
  ASSERT_TRUE(acquire("chat"));
  exits();
  worker_.tell_engine(false, "it restarts");
  pass(1min);
  EXPECT_EQ(state("chat"), "ready") << "nobody knows what its containers are doing";
  worker_.tell_engine(true);
  settle();
  pass(9s);
  comes_back();
  pass(1min);
  EXPECT_EQ(state("chat"), "ready");
  EXPECT_TRUE(worker_.downs.empty());
}

}  // namespace
}  // namespace sublet::stacks
