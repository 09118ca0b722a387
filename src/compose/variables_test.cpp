// SPDX-License-Identifier: Apache-2.0
#include "compose/variables.h"

#include <gtest/gtest.h>

namespace sublet::compose {
namespace {

Variables read(std::string_view text, const Variables& outer = {}) {
  Variables own;
  parse_variables(text, outer, own);
  return own;
}

TEST(Variables, LinesOfAFileAreRead) {
  const Variables own = read(
      "# a comment\nA=1\n export B = two words # more\nC=\"quoted # text\"\nD='plain'\nE=\nnonsense\nF=x=y\r\n");
  EXPECT_EQ(own, (Variables{{{"A", "1"},
                             {"B", "two words"},
                             {"C", "quoted # text"},
                             {"D", "plain"},
                             {"E", ""},
                             {"F", "x=y"}}}));
}

TEST(Variables, VariablesOfAFileAreReplacedAsComposeDoes) {
  const Variables outer{{{"HOME", "/root"}, {"PWD", std::nullopt}}};
  const struct {
    const char* text;
    std::optional<std::string> value;  // of A
  } cases[] = {
      {"BASE=/srv\nA=${BASE}/conf", "/srv/conf"},
      {"A=${HOME}/conf", "/root/conf"},
      {"A=\"${HOME}/conf\"", "/root/conf"},
      {"A=${NONE:-/d}", "/d"},
      {"A=${PWD}/conf", std::nullopt},
      {"HOME=/other\nA=${HOME}/conf", std::nullopt},
      {"BASE=/srv\nA=$BASE/conf", std::nullopt},
      {"A='${HOME}'", std::nullopt},
      {"A: /srv", std::nullopt},
      {"A=a\\tb", std::nullopt},
      {"A=\"open\nB=2", std::nullopt},
      {"A=1\nB=\"open\nA=2\nC=\"", std::nullopt},
  };
  for (const auto& one : cases) {
    const Variables own = read(one.text, outer);
    ASSERT_EQ(own.values.count("A"), 1U) << one.text;
    EXPECT_EQ(own.values.at("A"), one.value) << one.text;
  }
  for (const char* lost : {"B=\"open\nA=2\n\"", "?=\"x", "B=\\\nA=2"}) {
    Variables all = outer;
    all.merge(read(lost, outer));
    EXPECT_FALSE(interpolate("$OTHER", all)) << lost;
    EXPECT_EQ(interpolate("$HOME", all), "/root") << "the environment wins";
  }
}

TEST(Variables, EachFormIsReplaced) {
  const Variables known{{{"A", "one"}, {"EMPTY", ""}, {"HIDDEN", std::nullopt}}};
  for (const auto& [text, expected] : {std::pair<const char*, const char*>{"plain", "plain"},
                                       {"$A/${A}/x", "one/one/x"},
                                       {"$NONE.", "."},
                                       {"$$A", "$A"},
                                       {"${NONE-d}${EMPTY-d}", "d"},
                                       {"${NONE:-d}${EMPTY:-e}", "de"},
                                       {"${A:+set}${NONE:+set}${EMPTY+set}", "setset"},
                                       {"${A:?must be set}", "one"},
                                       {"${NONE:-${A}}", "one"},
                                       {"${NONE:-a}b}", "ab}"}})
    EXPECT_EQ(interpolate(text, known), expected) << text;
  for (const char* wrong : {"$", "${A", "${}", "${A|b}", "${A:}", "$1", "$HIDDEN", "${HIDDEN:-x}"})
    EXPECT_FALSE(interpolate(wrong, known)) << wrong;
}

}  // namespace
}  // namespace sublet::compose
