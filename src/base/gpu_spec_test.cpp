// SPDX-License-Identifier: Apache-2.0
#include "base/gpu_spec.h"

#include <gtest/gtest.h>

namespace sublet {
namespace {

const DescribedGpu a100{"NVIDIA A100-SXM4-80GB", 80 * GiB, 80, true};
const DescribedGpu t4{"Tesla T4", 16 * GiB, 75, false};
const DescribedGpu strange{"Card", 8 * GiB, {}, {}};

bool matches(const char* text, const DescribedGpu& gpu) {
  const auto spec = GpuSpec::parse(text);
  EXPECT_TRUE(spec.has_value()) << text << ": " << (spec ? "" : spec.error().detail);
  return spec && spec->matches(gpu);
}

TEST(GpuSpec, ComparesEachField) {
  for (const char* text :
       {"name=A100*", "name=a100-sxm4-80gb", "name=NVIDIA*", "name=*SXM?*", "name!=H100*", "memory>=40GiB",
        "memory=80GiB", "memory>=80GB", "memory<81GiB", "cc>=8.0", "cc=8.0", "cc>7.5", "cc<9", "link=nvlink",
        "link!=pcie", "name=A100*, memory>40GiB ,cc>=8.0,link=nvlink"})
    EXPECT_TRUE(matches(text, a100)) << text;
  for (const char* text : {"name=A10", "name=100*", "name!=A100*", "memory>80GiB", "memory<=79GiB", "cc<8.0", "cc!=8.0",
                           "link=pcie", "name=A100*,cc>=9.0"})
    EXPECT_FALSE(matches(text, a100)) << text;
  EXPECT_TRUE(matches("name=T4,link=pcie,cc=7.5", t4));
}

TEST(GpuSpec, AFigureThatTheDriverDoesNotTellMeetsNothing) {
  EXPECT_FALSE(matches("cc>=1.0", strange));
  EXPECT_FALSE(matches("cc!=8.0", strange));
  EXPECT_TRUE(matches("link=pcie", strange));
}

TEST(GpuSpec, AnErrorNamesThePart) {
  const struct {
    const char* text;
    const char* says;
  } rows[]{
      {"", "empty part"},
      {"name=A100*,", "empty part"},
      {"memory", "no operator after memory"},
      {"memory=>40GiB", "no operator after memory"},
      {"memory>=", "no value for memory"},
      {"memory>=lots", "'memory>=lots' has no size for memory"},
      {"memroy>=40GiB", "unknown field 'memroy'"},
      {"cc>=8.0.1", "compute capability"},
      {"cc>=-1", "compute capability"},
      {"cc>=8.12", "compute capability"},
      {"link=infiniband", "not nvlink or pcie"},
      {"name>=A100", "name takes = and !="},
      {"name=A100*,link>nvlink", "'link>nvlink' compares link by >"},
  };
  for (const auto& row : rows) {
    const auto spec = GpuSpec::parse(row.text);
    ASSERT_FALSE(spec.has_value()) << row.text;
    EXPECT_NE(spec.error().detail.find(row.says), std::string::npos) << spec.error().detail;
    EXPECT_NE(spec.error().hint.find("for example"), std::string::npos);
  }
  EXPECT_FALSE(GpuSpec::parse(std::string(1001, 'x')).has_value());
}

TEST(GpuSpec, APatternTakesNoLongTime) {
  const std::string text(60, 'a');
  std::string pattern;
  for (int i = 0; i < 400; ++i) pattern += "*a";
  EXPECT_FALSE(matches(("name=" + pattern + "b").c_str(), {text, GiB, {}, {}}));
}

TEST(GpuSpec, DevicesAreDescribed) {
  EXPECT_EQ(describe(a100), "NVIDIA A100-SXM4-80GB, 80.0 GiB, cc 8.0, nvlink");
  EXPECT_EQ(describe(strange), "Card, 8.0 GiB, pcie");
}

}  // namespace
}  // namespace sublet
