// SPDX-License-Identifier: Apache-2.0
#include "engine/choose.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace sublet::engine {
namespace {

using namespace std::chrono_literals;

std::string show(const std::vector<Choice>& choices) {
  std::string text;
  for (const Choice& choice : choices)
    text += fmt::format("{}{} for {}", text.empty() ? "" : ", ", choice.pause.number, choice.waiter.number);
  return text;
}

Candidate idle(std::uint64_t lease, Duration since, std::map<std::string, Bytes> frees) {
  return {LeaseId{lease}, since, std::move(frees)};
}
Waiter waits(std::uint64_t lease, std::map<std::string, Bytes> needs, int devices = 1) {
  return {LeaseId{lease}, devices, std::move(needs)};
}

TEST(Choose, PausesWhatAWaiterNeeds) {
  const std::map<std::string, Bytes> one{{"a", GiB}}, two{{"a", GiB}, {"b", GiB}};
  struct Row {
    const char* what;
    std::vector<Candidate> candidates;
    std::vector<Waiter> waiters;
    std::map<std::string, Bytes> free;
    std::set<std::string> taken;
    std::string choices;
  };
  const Row rows[] = {
      {"nobody waits", {idle(1, 5min, {{"a", 4 * GiB}})}, {}, one, {}, ""},
      {"one waits", {idle(1, 5min, {{"a", 4 * GiB}})}, {waits(9, {{"a", 5 * GiB}})}, one, {}, "1 for 9"},
      {"its pause is not enough", {idle(1, 5min, {{"a", 4 * GiB}})}, {waits(9, {{"a", 6 * GiB}})}, one, {}, ""},
      {"the memory is free already", {idle(1, 5min, {{"a", 4 * GiB}})}, {waits(9, {{"a", GiB}})}, one, {}, ""},
      {"another device", {idle(1, 5min, {{"a", 4 * GiB}})}, {waits(9, {{"b", 2 * GiB}})}, two, {}, ""},
      {"the longest idle goes first",
       {idle(1, 5min, {{"a", 4 * GiB}}), idle(2, 9min, {{"a", 4 * GiB}})},
       {waits(9, {{"a", 5 * GiB}})},
       one,
       {},
       "2 for 9"},
      {"two are needed, one at a time",
       {idle(1, 5min, {{"a", 4 * GiB}}), idle(2, 9min, {{"a", 4 * GiB}})},
       {waits(9, {{"a", 8 * GiB}})},
       one,
       {},
       "2 for 9"},
      {"a small lease does not help and stays",
       {idle(1, 5min, {{"a", 8 * GiB}}), idle(2, 9min, {{"a", GiB}})},
       {waits(9, {{"a", 9 * GiB}})},
       one,
       {},
       "1 for 9"},
      {"another lease moves there", {idle(1, 5min, {{"a", 4 * GiB}})}, {waits(9, {{"a", 5 * GiB}})}, one, {"a"}, ""},
      {"the first that can be helped",
       {idle(1, 5min, {{"a", 4 * GiB}})},
       {waits(8, {{"a", 20 * GiB}}), waits(9, {{"a", 5 * GiB}})},
       one,
       {},
       "1 for 9"},
      {"two devices at once",
       {idle(1, 5min, {{"a", 4 * GiB}}), idle(2, 9min, {{"b", 4 * GiB}})},
       {waits(9, {{"a", 5 * GiB}, {"b", 5 * GiB}}, 2)},
       two,
       {},
       "2 for 9, 1 for 9"},
      {"one of two devices is not enough",
       {idle(1, 5min, {{"a", 4 * GiB}})},
       {waits(9, {{"a", 5 * GiB}, {"b", 5 * GiB}}, 2)},
       two,
       {},
       ""},
      {"a waiter of a lower tier",
       {{LeaseId{1}, 5min, {{"a", 4 * GiB}}, core::Tier::interactive}},
       {{LeaseId{8}, 1, {{"a", 5 * GiB}}, core::Tier::batch},
        {LeaseId{9}, 1, {{"a", 5 * GiB}}, core::Tier::interactive}},
       one,
       {},
       "1 for 9"},
      {"any of two devices",
       {idle(1, 5min, {{"a", 4 * GiB}}), idle(2, 9min, {{"b", 4 * GiB}})},
       {waits(9, {{"a", 5 * GiB}, {"b", 5 * GiB}})},
       two,
       {},
       "2 for 9"},
      {"a device that cannot be read", {idle(1, 5min, {{"a", 4 * GiB}})}, {waits(9, {{"a", 2 * GiB}})}, {}, {}, ""},
  };
  for (const Row& row : rows) {
    EXPECT_EQ(show(choose(row.candidates, row.waiters, row.free, row.taken)), row.choices) << row.what;
  }
}

TEST(Choose, AlwaysPausesOneOnEachDevice) {
  const std::vector<Candidate> all{idle(1, 5min, {{"a", GiB}}), idle(2, 9min, {{"a", GiB}}),
                                   idle(3, 1min, {{"b", GiB}}), idle(4, 7min, {{"c", GiB}})};
  EXPECT_EQ(show(choose_always(all, {"c"})), "2 for 0, 3 for 0");
}

}  // namespace
}  // namespace sublet::engine
