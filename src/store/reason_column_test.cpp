// SPDX-License-Identifier: Apache-2.0
#include "store/reason_column.h"

#include <gtest/gtest.h>

namespace sublet::store::test {
namespace {

using core::args;

core::ReasonArgs one_of_each() {
  return args("count", 3, "vram", 6 * GiB, "waited", std::chrono::milliseconds(1500), "device", "gpu0 \"x\"", "begun",
              true, "devices", std::vector<std::string>{"gpu0", "gpu1"}, "holders",
              std::vector<core::ReasonPart>{{"lease-1 (train)", GiB}});
}

TEST(ReasonColumn, IsReadAsItWasWritten) {
  EXPECT_EQ(decode_args(encode_args(one_of_each())), one_of_each());
  const core::PauseCause cause{core::PauseCauseKind::slice, LeaseId{7}, one_of_each()};
  EXPECT_EQ(decode_cause(encode_cause(cause)), cause);
}

TEST(ReasonColumn, NamesSizesAndDurations) {
  EXPECT_EQ(encode_args(args("vram", Bytes{5}, "waited", std::chrono::seconds(2))),
            R"({"vram_bytes":5,"waited_ms":2000})");
}

TEST(ReasonColumn, MakesANoteOfAKindThatIsUnknown) {
  const auto reason = decode_reason("from_tomorrow", "{}");
  ASSERT_TRUE(reason);
  EXPECT_EQ(reason->kind, core::ReasonKind::note);
  EXPECT_EQ(core::text_of(*reason), "from_tomorrow");
}

TEST(ReasonColumn, RefusesWhatItCannotHaveWritten) {
  for (const char* text : {"", "[]", "{", R"({"a":null})", R"({"a":1.5})", R"({"a":[1]})", R"({"a":[{"what":"x"}]})"})
    EXPECT_FALSE(decode_args(text)) << text;
  for (const char* text : {"", "{}", R"({"kind":"nobody","preemptor":0,"args":{}})",
                           R"({"kind":"tier","preemptor":-1,"args":{}})", R"({"kind":"tier","preemptor":1,"args":[]})"})
    EXPECT_FALSE(decode_cause(text)) << text;
}

}  // namespace
}  // namespace sublet::store::test
