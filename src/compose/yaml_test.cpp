// SPDX-License-Identifier: Apache-2.0
#include "compose/yaml.h"

#include <gtest/gtest.h>

namespace sublet::compose {
namespace {

using nlohmann::json;

TEST(Yaml, PlainScalarsHaveTypesAndQuotedOnesAreText) {
  struct Case {
    const char* text;
    json expected;
  };
  for (const Case& one : std::vector<Case>{
           {"a: 1", {{"a", 1}}},
           {"a: '1'", {{"a", "1"}}},
           {"a: \"true\"", {{"a", "true"}}},
           {"a: true", {{"a", true}}},
           {"a: 1.5", {{"a", 1.5}}},
           {"a: 3.9-rc", {{"a", "3.9-rc"}}},
           {"a: 16GiB", {{"a", "16GiB"}}},
           {"a:", {{"a", nullptr}}},
           {"a: !!str 1", {{"a", "1"}}},
           {"[a, {b: c}]", json::array({"a", {{"b", "c"}}})},
           {"x: &y {z: 1}\nw: *y", {{"x", {{"z", 1}}}, {"w", {{"z", 1}}}}},
           {"{\"a\": [\"$$b\"]}", {{"a", json::array({"$$b"})}}},
           {"", nullptr},
       }) {
    const auto read = read_yaml(one.text, "f");
    ASSERT_TRUE(read) << one.text << ": " << read.error().detail;
    EXPECT_EQ(read->root, one.expected) << one.text;
  }
}

TEST(Yaml, ErrorsNameTheFileAndTheLine) {
  struct Case {
    std::string text, start;
  };
  for (const Case& one : std::vector<Case>{
           {"a: 1\nb: [1, 2\nc: 3\n", "f.yml:3"},
           {"a: 1\n\tb: 2\n", "f.yml:2"},
           {"a: 1\na: 2\n", "f.yml:2: the key 'a' is given twice"},
           {"a: *b\n", "f.yml:1"},
           {"a: 1\n[1]: 2\n", "f.yml:2"},
           {std::string(200, '[') + std::string(200, ']'), "f.yml:1: more than 100 levels deep"},
           {std::string(3000, '['), "f.yml:1"},
           {std::string(most_yaml + 1, 'a'), "f.yml has 4194305 bytes"},
       }) {
    const auto read = read_yaml(one.text, "f.yml");
    ASSERT_FALSE(read) << one.text.substr(0, 100);
    EXPECT_EQ(read.error().code, Code::BadRequest);
    EXPECT_TRUE(read.error().detail.starts_with(one.start)) << read.error().detail;
  }
}

// Each level names the level below ten times.
TEST(Yaml, ATextThatGrowsWithoutEndIsRefused) {
  std::string text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 12; ++i) {
    text += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [";
    for (int j = 0; j < 10; ++j) text += (j > 0 ? ", *a" : "*a") + std::to_string(i - 1);
    text += "]\n";
  }
  const auto read = read_yaml(text, "f");
  ASSERT_FALSE(read);
  EXPECT_NE(read.error().detail.find("too large"), std::string::npos) << read.error().detail;
}

}  // namespace
}  // namespace sublet::compose
