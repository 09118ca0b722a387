// SPDX-License-Identifier: Apache-2.0
#include "proc/process_event.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace sublet::proc {
namespace {

// A datagram as the kernel builds it: the netlink header, the connector's header, the event and its words.
std::vector<std::uint32_t> datagram(std::uint32_t what, std::vector<std::uint32_t> words) {
  const auto event = static_cast<std::uint32_t>(16 + 4 * words.size());
  std::vector<std::uint32_t> all{36 + event, 3, 0, 0, 1, 1, 0, 0, event, what, 0, 1'000'000'001, 2};
  all.insert(all.end(), words.begin(), words.end());
  return all;
}

std::span<const std::byte> bytes(const std::vector<std::uint32_t>& data) { return std::as_bytes(std::span(data)); }

using Kind = ProcessEvent::Kind;
constexpr std::int64_t moment = 1'000'000'001 + (std::int64_t{2} << 32);

TEST(ProcessEvents, AreReadAsTheKernelWritesThem) {
  const struct {
    const char* name;
    std::uint32_t what;
    std::vector<std::uint32_t> words;
    std::optional<ProcessEvent> event;
  } rows[] = {
      {"started", 0, {0}, ProcessEvent{.at_ns = moment}},
      {"refused", 0, {1}, ProcessEvent{.at_ns = moment, .error = 1}},
      {"fork", 1, {41, 40, 50, 50}, ProcessEvent{Kind::fork, 50, 40, moment, 0}},
      {"a new thread", 1, {41, 40, 51, 50}, std::nullopt},
      {"exec", 2, {50, 50}, ProcessEvent{Kind::exec, 50, 0, moment, 0}},
      {"exit", 0x80000000, {50, 50, 9, 17, 40, 40}, ProcessEvent{Kind::exit, 50, 40, moment, 0}},
      {"exit without a parent", 0x80000000, {50, 50, 9, 17}, ProcessEvent{Kind::exit, 50, 0, moment, 0}},
      {"the end of a thread", 0x80000000, {51, 50, 0, 0, 40, 40}, std::nullopt},
      {"a change of the user", 4, {50, 50, 0, 0}, std::nullopt},
      {"no process", 1, {41, 40, 0, 0}, std::nullopt},
      {"cut", 1, {41, 40}, std::nullopt},
  };
  for (const auto& row : rows)
    EXPECT_EQ(parse_process_event(bytes(datagram(row.what, row.words))), row.event) << row.name;
}

TEST(ProcessEvents, AreRefusedIfAHeaderIsWrong) {
  const auto good = datagram(1, {41, 40, 50, 50});
  ASSERT_TRUE(parse_process_event(bytes(good)));
  const struct {
    std::size_t word;
    std::uint32_t value;
  } rows[] = {{0, 0xffffffff}, {0, 20}, {1, 2}, {4, 2}, {5, 2}, {8, 0xffff}, {8, 4}};
  for (const auto& row : rows) {
    auto bad = good;
    bad[row.word] = row.value;
    EXPECT_FALSE(parse_process_event(bytes(bad))) << row.word << " " << row.value;
  }
  for (std::size_t size = 0; size < good.size() * 4; ++size)
    EXPECT_FALSE(parse_process_event(bytes(good).first(size))) << size;
}

}  // namespace
}  // namespace sublet::proc
