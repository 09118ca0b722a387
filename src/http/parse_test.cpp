// SPDX-License-Identifier: Apache-2.0
#include "http/parse.h"

#include <gtest/gtest.h>

namespace sublet::http {
namespace {

void expect_target(std::string_view text, std::string_view host, std::string_view path, std::string_view query) {
  const Target target = parse_target(text);
  EXPECT_EQ(target.host, host) << text;
  EXPECT_EQ(target.path, path) << text;
  EXPECT_EQ(target.query, query) << text;
}

TEST(ParseTarget, TakesBothForms) {
  expect_target("/v1/leases", "", "/v1/leases", "");
  expect_target("/v1/leases?all=true", "", "/v1/leases", "all=true");
  expect_target("http://127.0.0.1:4711/v1/leases?after=http://x/", "127.0.0.1:4711", "/v1/leases", "after=http://x/");
  expect_target("HTTP://x/healthz", "x", "/healthz", "");
  expect_target("http://x", "x", "", "");
  expect_target("http://x?a=b", "x", "", "a=b");
  expect_target("http:/x", "", "http:/x", "");
  expect_target("", "", "", "");
}

TEST(ParseQuery, EveryParameterIsGivenOnce) {
  const auto query = parse_query("a=1&b=%20x&c");
  ASSERT_TRUE(query);
  EXPECT_EQ(*query, (std::map<std::string, std::string>{{"a", "1"}, {"b", " x"}, {"c", ""}}));
  for (const char* text : {"a=1&a=1", "a=1&b=2&a=3", "a&%61=1"}) {
    const auto refused = parse_query(text);
    ASSERT_FALSE(refused) << text;
    EXPECT_EQ(refused.error().detail, "the parameter 'a' is given twice");
    EXPECT_EQ(refused.error().code, Code::BadRequest);
  }
}

TEST(ParseBody, EveryFieldIsGivenOnceInItsObject) {
  nlohmann::json body;
  const Status parsed = parse_body(R"({"a": 1, "b": {"a": 2}, "c": [{"a": 3}, {"a": 4}]})", 16, body);
  ASSERT_TRUE(parsed) << parsed.error().detail;
  EXPECT_EQ(body["c"][1]["a"], 4);
  for (const char* text : {R"({"a": 1, "a": 1})", R"({"b": {"a": 1, "c": [], "a": 2}})", R"([{}, {"a": {}, "a": {}}])",
                           R"({"a": {"b": 1}, "\u0061": 2})"}) {
    const Status refused = parse_body(text, 16, body);
    ASSERT_FALSE(refused) << text;
    EXPECT_EQ(refused.error().detail, "the field 'a' is given twice");
  }
}

TEST(ParseBody, RefusesWhatIsNoObjectOfFields) {
  nlohmann::json body;
  EXPECT_TRUE(parse_body("", 16, body));
  EXPECT_TRUE(body.is_null());
  for (const char* text : {"null", "{", R"({"a": 1, "a")"}) EXPECT_FALSE(parse_body(text, 16, body)) << text;
  EXPECT_TRUE(parse_body("[[[{}]]]", 4, body));
  const Status deep = parse_body("[[[{}]]]", 2, body);
  ASSERT_FALSE(deep);
  EXPECT_NE(deep.error().detail.find("deeper than 2"), std::string::npos);
}

}  // namespace
}  // namespace sublet::http
