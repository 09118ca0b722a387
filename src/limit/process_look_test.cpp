// SPDX-License-Identifier: Apache-2.0
#include "limit/process_look.h"

#include "proc/test_support.h"

#include <gtest/gtest.h>

#include <sys/ptrace.h>
#include <unistd.h>

namespace sublet::limit {
namespace {

TEST(ProcessLook, EachCopyOfTheDriverIsSeen) {
  const std::string once =
      "5581-5582 r--p 00000000 08:01 7 /usr/bin/python3\n"
      "7f00-7f01 r--p 00000000 08:01 9 /usr/lib/x86_64-linux-gnu/libcuda.so.550.163.01\n"
      "7f01-7f02 r-xp 00044000 08:01 9 /usr/lib/x86_64-linux-gnu/libcuda.so.550.163.01\n"
      "7f05-7f06 rw-p 00000000 00:00 0\n"
      "7f07-7f08 r--p 00000000 08:01 8 /usr/lib/libcudart.so.12\n";
  EXPECT_EQ(mapped_in(once).drivers, 1);
  EXPECT_FALSE(mapped_in(once).has_interposer);
  const std::string twice = once +
                            "7f10-7f11 r--p 00000000 08:01 9 /usr/lib/x86_64-linux-gnu/libcuda.so.550.163.01\n"
                            "7f20-7f21 r-xp 00001000 08:01 5 /usr/lib/sublet/libsublet-cuda.so";
  EXPECT_EQ(mapped_in(twice).drivers, 2);
  EXPECT_TRUE(mapped_in(twice).has_interposer);
  EXPECT_EQ(mapped_in("").drivers, 0);
}

TEST(ProcessLook, ADebuggerIsSeen) {
  const proc::Child child{proc::sleep_for_ever};
  const auto root = *proc::ProcRoot::open();
  const ProcessRef process = root.read(child.pid())->ref;
  EXPECT_FALSE(is_traced(root, process));
  if (::ptrace(PTRACE_SEIZE, child.pid(), nullptr, nullptr) != 0) GTEST_SKIP() << "nothing can be traced here";
  EXPECT_TRUE(is_traced(root, process));
  EXPECT_FALSE(is_traced(root, {process.pid, process.start_ticks + 1})) << "another process";
}

TEST(ProcessLook, OnlyTheProcessThatIsMeantIsLookedAt) {
  const auto root = *proc::ProcRoot::open();
  const ProcessRef own = root.read(::getpid())->ref;
  EXPECT_EQ(mapped_by(root, own).drivers, 0);
  EXPECT_FALSE(mapped_by(root, {own.pid, own.start_ticks + 1}).has_interposer);
}

}  // namespace
}  // namespace sublet::limit
