// SPDX-License-Identifier: Apache-2.0
#include "limit/questions.h"

#include <gtest/gtest.h>

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <thread>
#include <vector>

namespace sublet::limit {
namespace {

constexpr int most_of_user = 32;

class QuestionsTest : public testing::Test {
 protected:
  QuestionsTest() : path_(testing::TempDir() + "questions-" + std::to_string(::getpid()) + ".sock") {
    EXPECT_TRUE(questions_.start(path_));
  }
  ~QuestionsTest() override { std::filesystem::remove(path_); }

  Fd connected() const {
    Fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    sockaddr_un place{};
    place.sun_family = AF_UNIX;
    path_.copy(static_cast<char*>(place.sun_path), sizeof place.sun_path - 1);
    EXPECT_EQ(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&place), sizeof place), 0);
    return socket;
  }
  static bool is_open(const Fd& socket) {
    pollfd end{socket.get(), POLLIN, 0};
    return ::poll(&end, 1, 0) == 0;
  }
  void turn() {
    for (int round = 0; round < 20; ++round) {
      io_.restart();
      io_.poll();
    }
  }

  std::string path_;
  boost::asio::io_context io_;
  proc::ProcRoot root_ = *proc::ProcRoot::open();
  Questions questions_{io_, root_, [this](Asked) { ++asked_; }};
  int asked_ = 0;
};

// All come before the loop has sent anybody away.
TEST_F(QuestionsTest, TheOldestCallersOfAUserThatSayNothingAreSentAway) {
  std::vector<Fd> callers;
  for (int i = 0; i < most_of_user + 9; ++i) callers.push_back(connected());
  turn();
  for (std::size_t i = 0; i < callers.size(); ++i) EXPECT_EQ(is_open(callers[i]), i >= 9) << i;
  // The places of those that left are free again.
  callers.clear();
  turn();
  for (int i = 0; i < most_of_user; ++i) callers.push_back(connected());
  turn();
  EXPECT_EQ(std::ranges::count_if(callers, is_open), most_of_user);
}

// The loop was busy meanwhile, so that the end of the caller's time and its question come together.
TEST_F(QuestionsTest, AQuestionThatComesWithTheEndOfItsTimeIsTaken) {
  std::vector<Fd> callers;
  for (int i = 0; i < 3; ++i) callers.push_back(connected());
  turn();
  const auto is_late = boost::asio::steady_timer::clock_type::now() + std::chrono::milliseconds(2100);
  while (boost::asio::steady_timer::clock_type::now() < is_late) std::this_thread::yield();
  for (const Fd& caller : callers) EXPECT_EQ(::send(caller.get(), "x", 1, 0), 1);
  turn();
  EXPECT_TRUE(std::ranges::none_of(callers, is_open)) << "a question that is none";
  callers.push_back(connected());
  turn();
  EXPECT_TRUE(is_open(callers.back())) << "others are heard";
}

}  // namespace
}  // namespace sublet::limit
