// SPDX-License-Identifier: Apache-2.0
#include "maintenance/errors.h"

#include <gtest/gtest.h>

namespace sublet::maintenance {
namespace {

const Causes all{Cause::ecc, Cause::xid, Cause::retired};

Errors well() { return {.double_bit = 0, .falls = 0, .retirement = {}, .remapping = 0, .failed = 0}; }

TEST(Errors, AreTheFiguresOfTheDriver) {
  gpu::Facts facts;
  facts.uncorrected_errors = 2, facts.falls = 1, facts.retirement_pending = 1;
  EXPECT_EQ(errors_of(facts), (Errors{.double_bit = 2, .falls = 1, .retirement = 1}));
  EXPECT_EQ(errors_of(gpu::Facts{}), (Errors{.falls = 0})) << "events that nobody saw did not happen";
}

TEST(Errors, AreNewUntilTheyAreKnown) {
  EXPECT_EQ(new_errors({}, well(), all), "");
  Errors bad = well();
  bad.double_bit = 2;
  EXPECT_EQ(new_errors({}, bad, all), "2 double-bit memory errors");
  EXPECT_EQ(new_errors(bad, bad, all), "");
  EXPECT_EQ(new_errors({}, bad, {Cause::xid, Cause::retired}), "");
  Errors worse = bad;
  worse.double_bit = 3, worse.falls = 1, worse.retirement = 1, worse.remapping = 1, worse.failed = 1;
  EXPECT_EQ(new_errors(bad, worse, all),
            "3 double-bit memory errors; it has fallen off the bus (Xid 79); pages of its memory are to be retired; "
            "rows of its memory are to be remapped; a row of its memory could not be remapped");
}

TEST(Errors, ThatAreNotToldStayKnown) {
  const Errors known{.double_bit = 2, .falls = 1};
  EXPECT_EQ(learn(known, {.falls = 0}), (Errors{.double_bit = 2, .falls = 0}));
  EXPECT_EQ(forget_gone(known, {}), known);
}

TEST(Errors, ThatAreGoneAreNewWhenTheyComeAgain) {
  const Errors known{.double_bit = 2, .falls = 0, .remapping = 1};
  const Errors left = forget_gone(known, well());
  EXPECT_EQ(left, (Errors{.double_bit = 0, .falls = 0, .remapping = 0}));
  Errors again = well();
  again.double_bit = 1;
  EXPECT_EQ(forget_gone(known, again).double_bit, 1) << "the driver was loaded again: that one was not seen to come";
  EXPECT_NE(new_errors(left, again, all), "");
}

TEST(Errors, AreReadAsTheyWereStored) {
  const Errors known{.double_bit = 2, .falls = 0, .retirement = 1};
  const auto read = errors_from_row(to_row("GPU-1", known));
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(*read, known);
  for (const char* data : {"", "7", R"({"falls":"x"})"})
    EXPECT_FALSE(errors_from_row({"device_errors", "GPU-1", data}).has_value()) << data;
}

TEST(Causes, HaveTheWordsOfTheConfiguration) {
  EXPECT_EQ(parse_cause("ecc"), Cause::ecc);
  EXPECT_EQ(parse_cause("xid"), Cause::xid);
  EXPECT_EQ(parse_cause("retired"), Cause::retired);
  EXPECT_EQ(parse_cause("heat"), std::nullopt);
}

}  // namespace
}  // namespace sublet::maintenance
