// SPDX-License-Identifier: Apache-2.0
#include "machine/terminals.h"

#include "base/fd.h"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cstdlib>

namespace sublet::machine {
namespace {

TEST(Terminals, TakeMessagesOnlyOfTheirUserAndIfTheyLike) {
  const Fd master(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  if (!master || ::grantpt(master.get()) != 0 || ::unlockpt(master.get()) != 0)
    GTEST_SKIP() << "no pseudo-terminal can be made here";
  const char* name = ::ptsname(master.get());
  const Fd terminal(::open(name, O_RDWR | O_NOCTTY | O_CLOEXEC));
  ASSERT_TRUE(terminal);
  ASSERT_EQ(::fchmod(terminal.get(), 0620), 0);
  EXPECT_GE(write_to_terminals(::geteuid(), "no \x1b[31m lease"), 1);
  char text[200];
  const ssize_t size = ::read(master.get(), text, sizeof text);
  ASSERT_GT(size, 0);
  const std::string read(text, static_cast<std::size_t>(size));
  EXPECT_NE(read.find("lease"), std::string::npos);
  EXPECT_EQ(read.find('\x1b'), std::string::npos) << "it is made printable";
  const int others = write_to_terminals(::geteuid(), "again");
  ASSERT_EQ(::fchmod(terminal.get(), 0600), 0);
  EXPECT_EQ(write_to_terminals(::geteuid(), "mesg n"), others - 1);
  EXPECT_EQ(write_to_terminals(54321, "of nobody"), 0);
  EXPECT_EQ(write_to_terminals(::geteuid(), "nowhere", "/nonexistent"), 0);
}

}  // namespace
}  // namespace sublet::machine
