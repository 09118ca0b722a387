// SPDX-License-Identifier: Apache-2.0
#include "base/journal.h"

#include "base/fd.h"

#include <gtest/gtest.h>

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <cstdlib>
#include <filesystem>

namespace sublet {
namespace {

using namespace std::string_view_literals;

TEST(Journal, SendsFieldsByItsNativeProtocol) {
  char place[] = "/tmp/sublet-journal-XXXXXX";
  ASSERT_NE(::mkdtemp(place), nullptr);
  const std::string path = std::string(place) + "/socket";
  const Fd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  ASSERT_EQ(::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  const Journal journal("subletd", path);
  ASSERT_TRUE(journal.send({{"PRIORITY", "4"}, {"MESSAGE", "two\nlines"}}));
  char entry[200];
  const ssize_t size = ::recv(socket.get(), entry, sizeof entry, MSG_DONTWAIT);
  ASSERT_GT(size, 0);
  EXPECT_EQ(std::string_view(entry, static_cast<std::size_t>(size)),
            "SYSLOG_IDENTIFIER=subletd\nPRIORITY=4\nMESSAGE\n\x09\0\0\0\0\0\0\0two\nlines\n"sv);
  std::filesystem::remove_all(place);
  EXPECT_FALSE(journal.send({{"MESSAGE", "nobody listens"}}));
}

TEST(Journal, ReadsADescriptorThatItsVariableNames) {
  struct stat info {};
  ASSERT_EQ(::fstat(2, &info), 0);
  const std::string named = std::to_string(info.st_dev) + ":" + std::to_string(info.st_ino);
  ::setenv("JOURNAL_STREAM", named.c_str(), 1);
  EXPECT_TRUE(is_journal(2));
  ::setenv("JOURNAL_STREAM", "1:1", 1);
  EXPECT_FALSE(is_journal(2)) << "another program's log";
  ::unsetenv("JOURNAL_STREAM");
  EXPECT_FALSE(is_journal(2));
}

}  // namespace
}  // namespace sublet
