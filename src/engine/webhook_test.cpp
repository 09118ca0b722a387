// SPDX-License-Identifier: Apache-2.0
#include "engine/webhook.h"

#include <gtest/gtest.h>

namespace sublet::engine {
namespace {

TEST(Webhook, IsOnThisMachine) {
  const auto tcp = parse_webhook("http://localhost:8080/a/b?c");
  ASSERT_TRUE(tcp.has_value());
  EXPECT_EQ(tcp->host, "127.0.0.1");
  EXPECT_EQ(tcp->port, 8080);
  EXPECT_EQ(tcp->path, "/a/b?c");
  EXPECT_EQ(parse_webhook("http://[::1]:80")->host, "::1");
  EXPECT_EQ(parse_webhook("http://[::1]:80")->path, "/");
  for (const char* url : {"http://example.org:80/", "http://0.0.0.0:80/", "http://127.0.0.1/", "http://127.0.0.1:0/",
                          "http://127.0.0.1:99999/", "https://127.0.0.1:80/", "127.0.0.1:80", "unix:", "unix:/",
                          "http://127.0.0.1:80/ x", "http://127.0.0.1:80/\r\nHost: evil", "http://127.0.0.1@evil:80/"})
    EXPECT_FALSE(parse_webhook(url)) << url;
}

TEST(Webhook, OrAUnixSocket) {
  const auto with_path = parse_webhook("unix:/run/app.sock:/yield");
  ASSERT_TRUE(with_path.has_value());
  EXPECT_EQ(with_path->socket, "/run/app.sock");
  EXPECT_EQ(with_path->path, "/yield");
  EXPECT_EQ(parse_webhook("unix:///run/app.sock")->socket, "/run/app.sock");
  EXPECT_EQ(parse_webhook("unix:///run/app.sock")->path, "/");
  EXPECT_FALSE(parse_webhook("unix:/" + std::string(200, 'x')));
}

}  // namespace
}  // namespace sublet::engine
