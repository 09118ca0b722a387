// SPDX-License-Identifier: Apache-2.0
#include "simgpu/tools/load_options.h"

#include <gtest/gtest.h>

namespace simgpu::tools {
namespace {

std::string refusal(const std::vector<std::string_view>& arguments) {
  const auto options = parse_load_options(arguments);
  return options ? "accepted" : options.error().detail;
}

TEST(LoadOptions, ReadsEveryOption) {
  const auto options = parse_load_options({"--alloc", "6GiB", "--step=64MiB", "--rate", "1GiB/s", "--seconds", "5",
                                           "--busy", "75", "--seed", "42", "--verify", "--dense", "--json"});
  ASSERT_TRUE(options.has_value());
  EXPECT_EQ(options->alloc, 6 * sublet::GiB);
  EXPECT_EQ(options->step, 64 * sublet::MiB);
  EXPECT_EQ(options->rate, sublet::GiB);
  EXPECT_EQ(options->seconds, std::chrono::seconds(5));
  EXPECT_EQ(options->busy, 75);
  EXPECT_EQ(options->seed, 42U);
  EXPECT_TRUE(options->verify && options->dense && options->json);
}

TEST(LoadOptions, RefusesWithTheReason) {
  EXPECT_EQ(refusal({}), "--alloc SIZE is missing: how much VRAM to fill");
  EXPECT_NE(refusal({"--alloc", "8Q"}).find("8Q"), std::string::npos);
  EXPECT_NE(refusal({"--alloc", "0"}), "accepted");
  EXPECT_NE(refusal({"--alloc", "1000"}).find("4 KiB"), std::string::npos);
  EXPECT_NE(refusal({"--alloc", "1GiB", "--step", "5000"}).find("--step"), std::string::npos);
  EXPECT_NE(refusal({"--alloc", "1GiB", "--busy", "101"}).find("101"), std::string::npos);
  EXPECT_NE(refusal({"--alloc", "1GiB", "--seed", "0"}), "accepted");
  EXPECT_EQ(refusal({"--alloc"}), "--alloc needs a value");
  EXPECT_EQ(refusal({"--verify=yes", "--alloc", "1GiB"}), "--verify takes no value");
}

TEST(LoadOptions, NamesTheNearestOption) { EXPECT_NE(refusal({"--aloc", "1GiB"}).find("--alloc"), std::string::npos); }

TEST(LoadOptions, KnowsEveryWayToBePaused) {
  const auto options = parse_load_options({"--alloc", "1GiB", "--on-pause", "half"});
  ASSERT_TRUE(options.has_value());
  EXPECT_EQ(options->on_pause, OnPause::half);
  EXPECT_EQ(parse_load_options({"--alloc", "1GiB", "--on-pause", "again-at-usr1"})->on_pause, OnPause::again_at_usr1);
  EXPECT_EQ(parse_load_options({"--alloc", "1GiB"})->on_pause, OnPause::not_asked);
  EXPECT_NE(refusal({"--alloc", "1GiB", "--on-pause", "politely"}).find("honest, liar"), std::string::npos);
}

}  // namespace
}  // namespace simgpu::tools
