// SPDX-License-Identifier: Apache-2.0
// A daemon for tests/interposer, which only answers the questions of wire/credit.h: every process that asks belongs to
// its one lease, on one device. `credit_serve SOCKET UUID LIMIT CONTEXT`: the uuid as 32 hexadecimal digits, the others
// in bytes. Prints a line once it listens, and ends with its stdin.
#include "credit/channel.h"
#include "credit/desk.h"

#include <fmt/format.h>
#include <poll.h>

#include <array>
#include <charconv>
#include <cstdio>
#include <string_view>

namespace {

using namespace sublet;

template <typename Number>
Number number_of(std::string_view text, int base = 10) {
  Number number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number, base);
  return number;
}

credit::DeviceLimit device_of(std::string_view uuid, std::string_view limit, std::string_view context) {
  credit::DeviceLimit device{.limit = {number_of<std::int64_t>(limit)}, .context = {number_of<std::int64_t>(context)}};
  for (std::size_t i = 0; i < device.uuid.size() && 2 * i + 2 <= uuid.size(); ++i)
    device.uuid.at(i) = number_of<std::uint8_t>(uuid.substr(2 * i, 2), 16);
  return device;
}

Status serve(const proc::ProcRoot& root, credit::Desk& desk, int connection) {
  const auto question = credit::receive(root, connection);
  if (!question) return question.error();
  const ProcessRef process = question->sender.process;
  if (question->kind == SUBLET_CREDIT_BEGIN) {
    const auto pages = desk.begin(process);
    if (!pages) return credit::answer(connection, SUBLET_CREDIT_UNKNOWN);
    return credit::answer(connection, SUBLET_CREDIT_GRANTED, *pages);
  }
  if (!desk.knows(process)) return credit::answer(connection, SUBLET_CREDIT_UNKNOWN);
  const bool is_enough = desk.more(process, question->device, question->needed);
  desk.tell_others();
  return credit::answer(connection, is_enough ? SUBLET_CREDIT_GRANTED : SUBLET_CREDIT_REFUSED);
}

}  // namespace

int main(int count, char** words) {
  if (count != 5) return 2;
  credit::Desk desk({device_of(words[2], words[3], words[4])});
  const auto root = proc::ProcRoot::open();
  const auto listener = credit::listen(words[1]);
  if (!root || !listener) return 1;
  fmt::print("ready\n");
  std::fflush(stdout);
  for (;;) {
    std::array<pollfd, 2> ready{{{listener->get(), POLLIN, 0}, {STDIN_FILENO, POLLIN, 0}}};
    if (::poll(ready.data(), ready.size(), -1) < 0 || ready[1].revents != 0) return 0;
    const auto connection = credit::accept(listener->get());
    if (!connection || !*connection) continue;
    // One question at a time, from programs of the test that send it at once.
    pollfd asked{connection->get(), POLLIN, 0};
    if (::poll(&asked, 1, -1) < 0) return 1;
    if (const auto done = serve(*root, desk, connection->get()); !done)
      fmt::print(stderr, "credit_serve: {}\n", done.error().detail);
  }
}
