// SPDX-License-Identifier: Apache-2.0
#include "cli/web_request.h"

#include <gtest/gtest.h>

#include "cli/web_gate.h"

namespace sublet::cli {
namespace {

constexpr const char* usual =
    "POST /v1/leases?x=1 HTTP/1.1\r\nHost: 127.0.0.1:4711\r\nOrigin: http://127.0.0.1:4711\r\nCookie: a=b\r\n"
    "Authorization: Bearer key\r\nIdempotency-Key: 1\r\nSublet-Lease-Token: t\r\nX-Other: 1\r\nConnection: "
    "keep-alive\r\nContent-Length: "
    "2\r\n\r\n";

TEST(WebRequest, TheHeadForTheDaemonHasTheFieldsOfTheApiAlone) {
  const auto request = parse_web_request(usual);
  ASSERT_TRUE(request) << request.error().detail;
  EXPECT_EQ(request->path(), "/v1/leases");
  EXPECT_EQ(request->body_size, 2u);
  EXPECT_TRUE(check_origin(*request));
  EXPECT_EQ(head_for_daemon(*request, "localhost", ""),
            "POST /v1/leases?x=1 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nidempotency-key: 1\r\n"
            "sublet-lease-token: t\r\n"
            "Content-Length: 2\r\n\r\n");
  EXPECT_NE(head_for_daemon(*request, "localhost", "secret").find("\r\nAuthorization: Bearer secret\r\n"),
            std::string::npos);
}

TEST(WebRequest, HeadsThatCouldBeReadInTwoWaysAreRefused) {
  for (const char* head :
       {"", "\r\n\r\n", "GET /\r\n\r\n", "GET / HTTP/3\r\n\r\n", "get / HTTP/1.1\r\n\r\n", "GET x HTTP/1.1\r\n\r\n",
        "GET / x HTTP/1.1\r\n\r\n", "GET / HTTP/1.1\r\na: b", "GET / HTTP/1.1\r\n a: b\r\n\r\n",
        "GET / HTTP/1.1\r\na : b\r\n\r\n", "GET / HTTP/1.1\r\na: b\r\nA: c\r\n\r\n",
        "GET / HTTP/1.1\r\na: b\nc\r\n\r\n", "GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
        "GET / HTTP/1.1\r\nContent-Length: +1\r\n\r\n",
        "GET / HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n"}) {
    const auto request = parse_web_request(head);
    EXPECT_FALSE(request) << head;
    if (!request) EXPECT_FALSE(request.error().hint.empty());
  }
}

TEST(WebGate, APassNeedsTheSecretOnce) {
  WebGate gate(4711);
  EXPECT_FALSE(gate.exchange(""));
  EXPECT_FALSE(gate.exchange(std::string(32, '0')));
  const auto pass = gate.exchange(gate.secret());
  ASSERT_TRUE(pass);
  EXPECT_FALSE(gate.exchange(gate.secret()));
  const std::string cookie = pass->set_cookie.substr(0, pass->set_cookie.find(';'));
  EXPECT_TRUE(cookie.starts_with("sublet-web-4711="));
  EXPECT_TRUE(gate.admits("x=y; " + cookie, "Bearer " + pass->key));
  EXPECT_FALSE(gate.admits(cookie, pass->key));
  EXPECT_FALSE(gate.admits(cookie + "0", "Bearer " + pass->key));
  EXPECT_FALSE(gate.admits("x" + cookie, "Bearer " + pass->key));
  EXPECT_FALSE(gate.admits("", "Bearer " + pass->key));
  EXPECT_FALSE(gate.admits(cookie, "Bearer " + gate.secret()));
}

}  // namespace
}  // namespace sublet::cli
