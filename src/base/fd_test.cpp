// SPDX-License-Identifier: Apache-2.0
#include "base/fd.h"

#include <fcntl.h>
#include <gtest/gtest.h>

namespace sublet {
namespace {

bool is_open(int fd) { return ::fcntl(fd, F_GETFD) != -1; }

TEST(FdOwner, ClosesOnceAndMoves) {
  int raw = -1;
  {
    Fd first(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    raw = first.get();
    ASSERT_TRUE(first);
    Fd second(std::move(first));
    EXPECT_EQ(second.get(), raw);
    Fd third;
    EXPECT_FALSE(third);
    third = std::move(second);
    EXPECT_TRUE(is_open(raw));
  }
  EXPECT_FALSE(is_open(raw));
}

TEST(FdOwner, AssigningClosesWhatWasHeld) {
  Fd held(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const int raw = held.get();
  held = Fd();
  EXPECT_FALSE(is_open(raw));
}

TEST(FdOwner, ReleaseGivesItAway) {
  Fd held(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const int raw = held.release();
  held.reset();
  EXPECT_TRUE(is_open(raw));
  ::close(raw);
}

}  // namespace
}  // namespace sublet
