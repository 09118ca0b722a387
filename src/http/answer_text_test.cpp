// SPDX-License-Identifier: Apache-2.0
#include "http/answer_text.h"

#include <gtest/gtest.h>

namespace sublet::http {
namespace {

TEST(AnswerText, IsAWholeAnswer) {
  EXPECT_EQ(answer_text(as_json(201, "{}", "/v1/leases/lease-7"), {}),
            "HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nCache-Control: no-store\r\n"
            "Location: /v1/leases/lease-7\r\nContent-Length: 2\r\n\r\n{}");
}

TEST(AnswerText, ARefusalSaysWhatWouldBeRight) {
  Response response = problem(bad_request("no"));
  response.status = 405;
  const std::string text = answer_text(response, {.keep_alive = false, .allow = "GET, POST"});
  EXPECT_TRUE(text.starts_with("HTTP/1.1 405 Method Not Allowed\r\nContent-Type: application/problem+json\r\n"))
      << text;
  EXPECT_NE(text.find("\r\nAllow: GET, POST\r\nConnection: close\r\n"), std::string::npos) << text;
  response.status = 401;
  EXPECT_NE(answer_text(response, {}).find("\r\nWWW-Authenticate: Bearer\r\n"), std::string::npos);
}

TEST(AnswerText, SaysOnlyHowItDiffersFromItsVersion) {
  const Response response = as_json(200, "{}");
  EXPECT_EQ(answer_text(response, {}).find("Connection"), std::string::npos);
  EXPECT_EQ(answer_text(response, {.keep_alive = false, .old_version = true}).find("Connection"), std::string::npos);
  EXPECT_NE(answer_text(response, {.keep_alive = true, .old_version = true}).find("Connection: keep-alive"),
            std::string::npos);
}

TEST(AnswerText, WhatIsNotUtf8IsReplaced) {
  EXPECT_TRUE(answer_text({200, {{"name", "a\xff"}}, {}}, {}).ends_with("{\"name\":\"a\xef\xbf\xbd\"}\n"));
}

}  // namespace
}  // namespace sublet::http
