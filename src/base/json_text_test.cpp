// SPDX-License-Identifier: Apache-2.0
#include "base/json_text.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace sublet {
namespace {

TEST(JsonText, WritesEveryKindOfValueWithItsCommas) {
  JsonText out;
  out.begin_object().field("a", 1).field("b", "x").field("c", true).field("d", nullptr);
  out.key("e").begin_array().value(-1).value(std::optional<int>()).begin_object().end_object().end_array();
  out.key("f").raw(R"({"g":2})").field("h", std::optional<std::string>("y")).field("i", UINT64_MAX);
  out.end_object();
  EXPECT_EQ(out.text(),
            R"({"a":1,"b":"x","c":true,"d":null,"e":[-1,null,{}],"f":{"g":2},"h":"y","i":18446744073709551615})");
}

TEST(JsonText, EscapesWhatMustBeAndReplacesWhatIsNoText) {
  for (const std::string text : {"plain", "quo\"te", "back\\slash", "line\nend", "\x01", "ümläut", ""}) {
    JsonText out;
    out.value(text);
    EXPECT_EQ(nlohmann::json::parse(out.text()), text);
  }
  JsonText out;
  out.value("\xff");
  EXPECT_EQ(nlohmann::json::parse(out.text()), "\xEF\xBF\xBD");
}

TEST(JsonText, GrowsBeyondWhatWasExpectedAndEndsWithWhatWasWritten) {
  for (const std::size_t expected : {0, 1, 7, 5000}) {
    JsonText out(expected);
    out.begin_array();
    nlohmann::json same = nlohmann::json::array();
    for (int i = 0; i < 300; ++i) {
      out.value(std::string(static_cast<std::size_t>(i), 'x')).value(i);
      same.push_back(std::string(static_cast<std::size_t>(i), 'x'));
      same.push_back(i);
    }
    out.end_array();
    EXPECT_EQ(out.text(), same.dump());
    EXPECT_EQ(out.take(), same.dump());
  }
}

}  // namespace
}  // namespace sublet
