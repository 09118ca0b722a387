// SPDX-License-Identifier: Apache-2.0
#include "stacks/size.h"

#include <gtest/gtest.h>

namespace sublet::stacks {
namespace {

using core::Tier;

TEST(Size, TheExtensionIsReadStrictly) {
  const struct {
    const char* text;
    Settings found;
    const char* error;
  } rows[] = {
      {"", {}, ""},
      {"{}", {}, ""},
      {R"({"vram":"16GiB","tier":"batch"})", {.vram = 16 * GiB, .tier = Tier::batch}, ""},
      {R"({"vram":1073741824,"gpus":2,"exclusive":false})", {.vram = GiB, .devices = 2, .exclusive = false}, ""},
      {R"({"vram":"much"})", {}, R"(x-sublet of stack chat has vram: "much")"},
      {R"({"vram":0})", {}, "x-sublet of stack chat has vram: 0"},
      {R"({"vram":1.5})", {}, "x-sublet of stack chat has vram: 1.5"},
      {R"({"gpus":0})", {}, "x-sublet of stack chat has gpus: 0"},
      {R"({"tier":"high"})", {}, R"(x-sublet of stack chat has tier: "high")"},
      {R"({"tier":3})", {}, "x-sublet of stack chat has tier: 3"},
      {R"({"exclusive":"yes"})", {}, R"(x-sublet of stack chat has exclusive: "yes")"},
      {R"({"gpu_spec":"cc>=8.0"})", {.gpu_spec = "cc>=8.0"}, ""},
      {R"({"gpu_spec":"fast"})", {}, R"(x-sublet of stack chat has gpu_spec: "fast")"},
      {R"({"gpu_spec":8})", {}, "x-sublet of stack chat has gpu_spec: 8"},
      {R"({"interposer":true,"share":30})", {.interposer = true, .share = 30}, ""},
      {R"({"interposer":false})", {.interposer = false}, ""},
      {R"({"interposer":1})", {}, "x-sublet of stack chat has interposer: 1"},
      {R"({"interposer":true,"share":0})", {}, "x-sublet of stack chat has share: 0"},
      {R"({"interposer":true,"share":101})", {}, "x-sublet of stack chat has share: 101"},
      {R"({"interposer":false,"share":30})",
       {},
       "x-sublet of stack chat has share without interposer: the library in its programs keeps them to the share"},
      {R"({"vrm":"1GiB"})", {}, "x-sublet of stack chat has the unknown field 'vrm'"},
      {"[]", {}, "x-sublet of stack chat is no mapping"},
      {"16GiB", {}, "x-sublet of stack chat is no mapping"},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.text);
    const auto found = parse_extension("chat", row.text);
    EXPECT_EQ(found ? "" : found.error().detail, row.error);
    EXPECT_EQ(found ? *found : Settings{}, row.found);
    EXPECT_TRUE(found || !found.error().hint.empty());
  }
}

TEST(Size, TheFirstThatIsKnownCounts) {
  const std::vector<Bytes> cards{8 * GiB, 24 * GiB, 16 * GiB};
  const struct {
    const char* name;
    Settings set, file;
    Bytes peak;
    Bytes vram;
    const char* source;
  } rows[] = {
      {"set", {.vram = 3 * GiB}, {.vram = 4 * GiB}, 5 * GiB, 3 * GiB, "set"},
      {"file", {}, {.vram = 4 * GiB}, 5 * GiB, 4 * GiB, "file"},
      {"peak and a tenth", {}, {}, 10 * GiB, 11 * GiB, "peak"},
      {"a peak near the whole", {}, {}, 23 * GiB, 24 * GiB, "peak"},
      {"a tiny peak", {}, {}, Bytes{1}, KiB, "peak"},
      {"the largest device", {}, {}, {}, 24 * GiB, "device"},
      {"two devices", {.devices = 2}, {}, {}, 16 * GiB, "device"},
      {"more devices than there are", {.devices = 5}, {}, {}, 8 * GiB, "device"},
      {"exclusive by file", {.vram = 3 * GiB}, {.exclusive = true}, GiB, 24 * GiB, "exclusive"},
      {"exclusive is lifted", {.exclusive = false}, {.vram = 4 * GiB, .exclusive = true}, GiB, 4 * GiB, "file"},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.name);
    const Size size = choose_size(row.set, row.file, row.peak, cards);
    EXPECT_EQ(size.vram, row.vram) << format_size(size.vram);
    EXPECT_EQ(to_string(size.source), row.source);
  }
  EXPECT_EQ(choose_size({.tier = Tier::batch}, {.tier = Tier::spot}, {}, cards).tier, Tier::batch);
  EXPECT_EQ(choose_size({}, {.tier = Tier::spot}, {}, cards).tier, Tier::spot);
  EXPECT_EQ(choose_size({}, {}, {}, cards).tier, Tier::standard);
  const Size bounded = choose_size({}, {.interposer = true, .share = 30}, {}, cards);
  EXPECT_EQ(std::pair(bounded.interposer, bounded.share), std::pair(true, 30));
  EXPECT_EQ(choose_size({}, {}, {}, {}).vram, Bytes{}) << "no device was read yet";
}

}  // namespace
}  // namespace sublet::stacks
