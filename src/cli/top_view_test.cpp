// SPDX-License-Identifier: Apache-2.0
#include "cli/top_view.h"

#include <gtest/gtest.h>

namespace sublet::cli {
namespace {

using nlohmann::json;

json lease(const char* id, const char* state, std::int64_t vram, const char* user, int place = 0) {
  json row{{"id", id},
           {"consumer", "job"},
           {"state", state},
           {"vram_bytes", vram},
           {"used_bytes", 0},
           {"user", user},
           {"created_at", "2026-11-21T16:00:00.000Z"}};
  if (place > 0) row["queue"] = {{"place", place}, {"short_bytes", 5}};
  return row;
}

TopData data() {
  TopData out;
  out.status = {
      {"daemon", {{"version", "1"}, {"since", "2026-11-21T16:00:00.000Z"}}},
      {"leases", {{"active", 2}, {"queued", 2}}},
      {"devices",
       {{{"id", "gpu0"},
         {"state", "ok"},
         {"total_bytes", 100},
         {"leased_bytes", 50},
         {"used_bytes", 25},
         {"other_bytes", 0},
         {"effective_free_bytes", 50}}}},
      {"unleased_processes", {{{"pid", 77}, {"user", "eve"}, {"used_bytes", 5}, {"command", "game"}}}},
      {"warnings", {{{"code", "External"}, {"text", "somebody"}}}},
  };
  out.leases = {{"leases",
                 {lease("lease-4", "queued", 9, "ana", 2), lease("lease-1", "active", 10, "zoe"),
                  lease("lease-3", "queued", 1, "ana", 1), lease("lease-2", "active", 40, "ben")}}};
  return out;
}

std::vector<std::string> first_words(const std::vector<TopLine>& lines) {
  std::vector<std::string> words;
  for (const TopLine& line : lines) {
    const std::string word = line.text.substr(0, line.text.find(' '));
    if (word.starts_with("lease-") && word.back() != ':') words.push_back(word);
  }
  return words;
}

using Words = std::vector<std::string>;

TEST(TopView, ThoseThatWaitStandLastInTheQueuesOrderHoweverItIsSorted) {
  TopState state;
  EXPECT_EQ(first_words(top_lines(data(), state, {30, 120}, {})), (Words{"lease-1", "lease-2", "lease-3", "lease-4"}));
  state.sort = TopSort::vram;
  EXPECT_EQ(first_words(top_lines(data(), state, {30, 120}, {})), (Words{"lease-2", "lease-1", "lease-3", "lease-4"}));
  state.sort = TopSort::user;
  EXPECT_EQ(first_words(top_lines(data(), state, {30, 120}, {})), (Words{"lease-2", "lease-1", "lease-3", "lease-4"}));
}

TEST(TopView, ItSaysWhatIsWrongAndWhoIsUnderNoLease) {
  TopState state;
  TopData seen = data();
  seen.problem = "no daemon";
  std::string all;
  for (const TopLine& line : top_lines(seen, state, {30, 120}, {})) all += line.text + "\n";
  for (const char* part : {"! no daemon; retrying", "! External: somebody", "pid 77 of eve, unleased: 5 B  game",
                           "gpu0  [#", "2 active", "q quit"}) {
    EXPECT_NE(all.find(part), std::string::npos) << part << "\n" << all;
  }
}

TEST(TopView, ItTellsOfWhoIsParkedAndWhere) {
  TopState state;
  TopData seen = data();
  json paused = lease("lease-5", "paused", 2LL << 30, "ana");
  paused["parked_bytes"] = 1LL << 30;
  paused["pause"] = {{"method", "driver"}, {"reason", "requested by its owner"}, {"resume_requested", false}};
  seen.leases["leases"].push_back(paused);
  seen.status["leases"] = {{"active", 1}, {"paused", 1}};
  seen.status["ledger"] = {{"parked_bytes", 1LL << 30}, {"limit_bytes", 32LL << 30}};
  seen.status["waiting_bytes"] = 3LL << 30;
  seen.status["devices"][0]["other_bytes"] = 10;
  std::string all;
  for (const TopLine& line : top_lines(seen, state, {30, 160}, {})) all += line.text + "\n";
  for (const char* part : {"1 active, 1 paused   3.0 GiB requested", "1.0 GiB of 32.0 GiB parked in host memory",
                           "1.0 GiB parked: requested by its owner", "50 B free of 100 B, 10 B unleased"})
    EXPECT_NE(all.find(part), std::string::npos) << part << "\n" << all;
  seen.status["devices"][0]["state"] = "unknown";
  EXPECT_NE(top_lines(seen, state, {30, 160}, {})[3].text.find("] unknown"), std::string::npos);
}

TEST(TopView, NothingIsLargerThanTheWindowAndTheSelectedRowIsInSight) {
  for (std::size_t rows = 0; rows < 14; ++rows) {
    for (const std::size_t columns : {1U, 20U, 80U}) {
      TopState state;
      state.selected = SIZE_MAX;
      const auto lines = top_lines(data(), state, {rows, columns}, {});
      EXPECT_LE(lines.size(), rows);
      for (const TopLine& line : lines) EXPECT_LE(display_width(line.text), columns) << line.text;
      EXPECT_EQ(state.selected, 4U);
      bool seen = false;
      for (const TopLine& line : lines) seen |= line.selected;
      EXPECT_TRUE(seen || rows < 8) << rows;
    }
  }
}

TEST(TopView, WhyTheSelectedOrTheFirstOneWaitsIsReadWhole) {
  TopState state;
  TopData seen = data();
  for (json& row : seen.leases["leases"]) {
    if (!row.contains("queue")) continue;
    row["tag"] = "mine";
    row["queue"]["holders"] = {{{"lease", "lease-2"}, {"what", "lease-2 (job, ben)"}, {"bytes", 40LL << 30}}};
  }
  const auto foot = [&] {
    std::string out;
    for (const TopLine& line : top_lines(seen, state, {24, 60}, {})) {
      const bool begins = line.text.starts_with("lease-") && line.text.find(':') != std::string::npos;
      if (begins) out = line.text;
      else if (!out.empty()) out += "|" + line.text;
    }
    return out;
  };
  const char* lines =
      "lease-3: place 1, 5 B short; start unknown; the memory is|held by lease-2 (job, ben) 40.0 GiB|q quit";
  EXPECT_TRUE(foot().starts_with(lines)) << foot();
  state.selected = 3;
  EXPECT_TRUE(foot().starts_with("lease-4: place 2")) << foot();
  state.selected = 0;
  EXPECT_NE(top_lines(seen, state, {24, 60}, {})[5].text.find("TAG"), std::string::npos);
}

TEST(TopView, WithoutALeaseNothingIsSelected) {
  TopState state;
  state.selected = 3;
  TopData empty;
  const auto lines = top_lines(empty, state, {20, 80}, {});
  EXPECT_EQ(state.selected, 0U);
  EXPECT_EQ(lines.size(), 20U);
}

}  // namespace
}  // namespace sublet::cli
