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

}  // namespace
}  // namespace sublet
