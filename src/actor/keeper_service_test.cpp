// SPDX-License-Identifier: Apache-2.0
// Orders for keepers over the socket of the keeper service, whose part a child of the test plays.
#include "actor/keeper_service.h"

#include "actor/test_support.h"
#include "proc/detached.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

namespace sublet::actor {
namespace {

struct KeeperService : ::testing::Test {
  KeeperService() {
    ::chmod(dir.path().c_str(), 0755);
    dir.write("keep", "#!/bin/sh\ncat <&3 >\"$0.document\"\necho \"$$ 77\" >&4\n");
    ::chmod(dir.path("keep").c_str(), 0755);
    listener = Fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    EXPECT_EQ(::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::listen(listener.get(), 8), 0);
  }
  // Serves one connection, as the service manager has it served. The status is 3 if no keeper was made of it.
  proc::Child serve() {
    return proc::Child([this] {
      const int connected = ::accept(listener.get(), nullptr, nullptr);
      return become_ordered_keeper(connected, options).empty() ? 0 : 3;
    });
  }
  static std::string read_all(const Fd& report) {
    char buffer[512];
    std::string text;
    for (ssize_t got; (got = ::read(report.get(), buffer, sizeof buffer)) > 0;)
      text.append(buffer, static_cast<std::size_t>(got));
    return text;
  }
  // Returns the report after an order for this user with this document.
  std::string reported(std::uint32_t uid, const Fd& document) {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    const Fd report(ends[0]);
    Fd written(ends[1]);
    EXPECT_EQ(hand_keeper_over(path, uid, document.get(), written.get()), "");
    written.reset();
    const proc::Child service = serve();
    return read_all(report);
  }

  proc::TempDir dir;
  std::string path = dir.path("socket");
  KeeperOptions options{.program = dir.path("keep"), .logs = dir.path("logs"), .group = ::getegid(), .for_root = true};
  Fd listener;
};

TEST_F(KeeperService, BecomesTheOrderedKeeper) {
  const auto document = proc::document_file("the document");
  ASSERT_TRUE(document);
  const std::string line = reported(::geteuid(), *document);
  const auto keeper = proc::parse_report(line);
  ASSERT_TRUE(keeper) << line;
  std::ifstream file(dir.path("keep.document"));
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), "the document");
  struct stat info {};
  ASSERT_EQ(::stat(fmt::format("{}/logs/{}", dir.path(), ::geteuid()).c_str(), &info), 0);
  EXPECT_EQ(info.st_mode, S_IFDIR | 02770u);
}

TEST_F(KeeperService, ReportsItsRefusals) {
  NEEDS_ROOT();
  options.for_root = false;
  const auto sealed = proc::document_file("the document");
  const Fd open(::memfd_create("open", MFD_ALLOW_SEALING));
  ASSERT_TRUE(sealed && open);
  const struct {
    std::uint32_t uid;
    const Fd& document;
    const char* says;
  } refusals[] = {
      {0, *sealed, "failed: only a daemon of root starts programs of root\n"},
      {65534, *sealed, "failed: uid 65534 is no user\n"},
      {ana, open, "failed: the document is not sealed\n"},
      {ana, *sealed, "failed: uid 54321 has no account\n"},
  };
  for (const auto& each : refusals) EXPECT_EQ(reported(each.uid, each.document), each.says);
  EXPECT_FALSE(std::filesystem::exists(dir.path("keep.document")));
}

TEST_F(KeeperService, IgnoresWhatIsNoOrder) {
  for (const std::string_view message : {"", "short", "a message that is far too long"}) {
    const Fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    ASSERT_EQ(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    ASSERT_EQ(::send(socket.get(), message.data(), message.size(), 0), static_cast<ssize_t>(message.size()));
    const proc::Child service = serve();
    int status = 0;
    ASSERT_EQ(::waitpid(service.pid(), &status, 0), service.pid());
    EXPECT_EQ(WEXITSTATUS(status), 3) << message;
  }
}

TEST_F(KeeperService, NamesTheSocketThatIsNotThere) {
  const auto document = proc::document_file("the document");
  listener.reset();
  options.service = path;
  const StartedKeeper started = start_keeper(options, ::geteuid(), *document, true);
  EXPECT_EQ(started.code, Code::failed);
  EXPECT_EQ(started.why, path + ": Connection refused; start it: systemctl start sublet-keeper.socket");
}

}  // namespace
}  // namespace sublet::actor
