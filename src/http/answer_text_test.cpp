// SPDX-License-Identifier: Apache-2.0
#include "http/answer_text.h"

#include <gtest/gtest.h>

namespace sublet::http {
namespace {

TEST(AnswerText, IsAWholeAnswer) {
  EXPECT_EQ(answer_text(as_json(201, "{}", "/v1/leases/lease-7"), {}),
            "HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nCache-Control: no-store\r\n"
            "X-Content-Type-Options: nosniff\r\nLocation: /v1/leases/lease-7\r\nContent-Length: 2\r\n\r\n{}");
}

TEST(AnswerText, ARefusalSaysWhatWouldBeRight) {
  Response response = problem(405, bad_request("no", "yes"));
  response.allow = "GET, POST";
  const std::string text = answer_text(response, {.keep_alive = false});
  EXPECT_TRUE(text.starts_with("HTTP/1.1 405 Method Not Allowed\r\nContent-Type: application/problem+json\r\n"))
      << text;
  EXPECT_NE(text.find("\r\nAllow: GET, POST\r\nConnection: close\r\n"), std::string::npos) << text;
  response.status = 401;
  EXPECT_NE(answer_text(response, {}).find("\r\nWWW-Authenticate: Bearer\r\n"), std::string::npos);
}

TEST(AnswerText, NoBodyFollowsAHead) {
  const std::string text = answer_text(as_json(200, "{}"), {.head_only = true});
  EXPECT_TRUE(text.ends_with("\r\nContent-Length: 2\r\n\r\n")) << text;
  const Response stream{200, nullptr, {}, true, {}, "text/event-stream"};
  EXPECT_EQ(answer_text(stream, {.head_only = true}),
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-store\r\n"
            "X-Content-Type-Options: nosniff\r\n\r\n");
}

TEST(AnswerText, NoProblemIsWithoutAHint) {
  for (int code = 0; code <= static_cast<int>(Code::Unavailable); ++code) {
    const Response response = problem(Error{static_cast<Code>(code), "no", {}});
    EXPECT_FALSE(response.body.at("hint").get<std::string>().empty()) << response.body;
  }
  EXPECT_EQ(problem(bad_request("no", "yes")).body.at("hint"), "yes");
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
