// SPDX-License-Identifier: Apache-2.0
#include "credit/channel.h"

#include "credit/desk.h"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <functional>

namespace sublet::credit {
namespace {

constexpr sublet_credit_question begins{sizeof(sublet_credit_question), SUBLET_CREDIT_ABI, SUBLET_CREDIT_BEGIN, 0, 0};

struct Channel : ::testing::Test {
  Channel() {
    std::string pattern = (std::filesystem::temp_directory_path() / "credit-XXXXXX").string();
    folder = ::mkdtemp(pattern.data());
    path = folder + "/socket";
    auto made = listen(path);
    EXPECT_TRUE(made);
    if (made) listener = std::move(*made);
  }
  ~Channel() override { std::filesystem::remove_all(folder); }

  int connected() const {
    const int socket = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    sockaddr_un place{};
    place.sun_family = AF_UNIX;
    path.copy(static_cast<char*>(place.sun_path), sizeof place.sun_path - 1);
    return ::connect(socket, reinterpret_cast<const sockaddr*>(&place), sizeof place) == 0 ? socket : -1;
  }

  // Runs the part of a process in a child, and gives its pid.
  static pid_t process(const std::function<int()>& part) {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(part());
    return child;
  }
  static int status_of(pid_t child) {
    int status = -1;
    return ::waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  Fd take() const {
    pollfd ready{listener.get(), POLLIN, 0};
    EXPECT_EQ(::poll(&ready, 1, 60'000), 1);
    auto connection = accept(listener.get());
    EXPECT_TRUE(connection);
    return connection ? std::move(*connection) : Fd();
  }
  Result<Question> next(const Fd& connection) const {
    pollfd ready{connection.get(), POLLIN, 0};
    EXPECT_EQ(::poll(&ready, 1, 60'000), 1);
    return receive(root, connection.get());
  }

  // Asks for pages, and gets so many files.
  int begin(std::size_t wanted) const {
    const int socket = connected();
    if (::send(socket, &begins, sizeof begins, 0) != sizeof begins) return 1;
    sublet_credit_answer said{};
    alignas(cmsghdr) char control[CMSG_SPACE(8 * sizeof(int))];
    iovec part{&said, sizeof said};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    if (::recvmsg(socket, &message, 0) != sizeof said || said.result != SUBLET_CREDIT_GRANTED) return 2;
    const cmsghdr* files = CMSG_FIRSTHDR(&message);
    return files != nullptr && files->cmsg_len == CMSG_LEN(wanted * sizeof(int)) ? 0 : 3;
  }

  std::string folder, path;
  Fd listener;
  proc::ProcRoot root = *proc::ProcRoot::open();
};

TEST_F(Channel, AProcessOfALeaseWithAShareGetsAThirdFile) {
  const pid_t child = process([this] { return begin(3); });
  const Fd connection = take();
  const auto question = next(connection);
  ASSERT_TRUE(question) << question.error().detail;
  Desk desk({{.limit = 100 * MiB, .share = 30}});
  const auto pages = desk.begin(question->sender.process);
  ASSERT_TRUE(pages);
  const Fd share(::memfd_create("share", MFD_CLOEXEC));
  EXPECT_TRUE(answer(connection.get(), SUBLET_CREDIT_GRANTED, *pages, share.get()));
  EXPECT_EQ(status_of(child), 0);
}

TEST_F(Channel, AProcessAsksAndGetsItsPages) {
  const pid_t child = process([this] { return begin(2); });
  const Fd connection = take();
  const auto question = next(connection);
  ASSERT_TRUE(question) << question.error().detail;
  EXPECT_EQ(question->kind, SUBLET_CREDIT_BEGIN);
  EXPECT_EQ(question->sender.process.pid, child);
  EXPECT_TRUE(question->sender.pidfd);
  Desk desk({{.limit = 100 * MiB}});
  const auto pages = desk.begin(question->sender.process);
  ASSERT_TRUE(pages);
  EXPECT_TRUE(answer(connection.get(), SUBLET_CREDIT_GRANTED, *pages));
  EXPECT_EQ(status_of(child), 0);
}

TEST_F(Channel, AnotherProcessMayNotAskOnAConnectionThatItWasGiven) {
  const pid_t child = process([this] {
    const int socket = connected();
    // A child of it uses the connection: it may be the program of another lease.
    return status_of(process([socket] { return ::send(socket, &begins, sizeof begins, 0) == sizeof begins ? 0 : 1; }));
  });
  const auto question = next(take());
  ASSERT_FALSE(question);
  EXPECT_EQ(question.error().code, Code::Denied);
  EXPECT_EQ(status_of(child), 0);
}

TEST_F(Channel, OddMessagesAreRefused) {
  const auto refused = [this](const void* bytes, std::size_t size) {
    const Fd socket(connected());
    EXPECT_EQ(::send(socket.get(), bytes, size, 0), static_cast<ssize_t>(size));
    const auto question = next(take());
    return !question && question.error().code == Code::BadRequest;
  };
  EXPECT_TRUE(refused("x", 1));
  const std::string large(4096, 'x');
  EXPECT_TRUE(refused(large.data(), large.size()));
  auto odd = begins;
  odd.abi = SUBLET_CREDIT_ABI + 1;
  EXPECT_TRUE(refused(&odd, sizeof odd));
  odd = begins;
  odd.size = 7;
  EXPECT_TRUE(refused(&odd, sizeof odd));
  odd = begins;
  odd.kind = 99;
  EXPECT_TRUE(refused(&odd, sizeof odd));
  struct {
    sublet_credit_question question = begins;
    char more = 'x';
  } longer;
  EXPECT_TRUE(refused(&longer, sizeof longer));
}

TEST_F(Channel, AConnectionWithoutAQuestionIsNotWaitedFor) {
  const Fd socket(connected());
  const Fd connection = take();
  const auto nothing = receive(root, connection.get());
  ASSERT_FALSE(nothing);
  EXPECT_EQ(nothing.error().code, Code::Unavailable);
  const auto nobody = accept(listener.get());
  EXPECT_TRUE(nobody && !*nobody) << "nobody else has come";
}

TEST_F(Channel, DescriptorsThatComeWithAQuestionAreClosed) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  Fd reading(ends[0]);
  {
    const Fd writing(ends[1]), socket(connected());
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    auto question = begins;
    iovec part{&question, sizeof question};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    *header = {.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    *reinterpret_cast<int*>(CMSG_DATA(header)) = writing.get();
    ASSERT_EQ(::sendmsg(socket.get(), &message, 0), static_cast<ssize_t>(sizeof question));
    EXPECT_TRUE(next(take()));
  }
  char byte = 0;
  EXPECT_EQ(::read(reading.get(), &byte, 1), 0) << "nobody has the other end any more";
}

TEST_F(Channel, ASocketOfAnEarlierDaemonIsReplaced) {
  auto again = listen(path);
  ASSERT_TRUE(again);
  listener = std::move(*again);
  const Fd socket(connected());
  EXPECT_TRUE(socket);
  EXPECT_TRUE(take());
  struct stat about {};
  ASSERT_EQ(::stat(path.c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777, 0666U);
  EXPECT_FALSE(listen("/" + std::string(200, 'x')));
  EXPECT_FALSE(listen(folder + "/missing/socket"));
}

}  // namespace
}  // namespace sublet::credit
