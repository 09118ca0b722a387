// SPDX-License-Identifier: Apache-2.0
#include "events/target.h"

#include <gtest/gtest.h>

namespace sublet::events {
namespace {

using nlohmann::json;

std::string as_text(const Result<Address>& address) {
  if (!address) return "error: " + address.error().detail;
  return address->shown() + " " + address->path + (address->tls ? " tls" : "") +
         (address->user.empty() && address->password.empty() ? "" : " " + address->user + ":" + address->password) +
         (address->database == 0 ? "" : " #" + std::to_string(address->database));
}

TEST(Target, HttpUrls) {
  for (const auto& [url, result] : {
           std::pair("http://h", "h:80 /"),
           {"https://ntfy.sh/topic?x=1#part", "ntfy.sh:443 /topic?x=1 tls"},
           {"http://127.0.0.1:8080/a/b", "127.0.0.1:8080 /a/b"},
           {"http://[::1]:81/", "[::1]:81 /"},
           {"http://[::1]?q", "[::1]:80 /?q"},
           {"ftp://h", "error: the URL begins with neither http:// nor https://"},
           {"http://", "error: the URL names no host"},
           {"http://:80", "error: the URL names no host"},
           {"http://h:99999/", "error: '99999' is no port"},
           {"http://h:0/", "error: '0' is no port"},
           {"http://[::1/", "error: the URL has '[' without ']'"},
           {"http://user:secret@h/", "error: the URL has a user or a password"},
           {"http://h/a\nX: y", "error: the path of the URL has blanks or characters that cannot be printed"},
       })
    EXPECT_EQ(as_text(parse_http_url(url)), result) << url;
}

TEST(Target, RedisUrls) {
  for (const auto& [url, result] : {
           std::pair("redis://h", "h:6379 /"),
           {"redis://:pa%40ss@h:1/3", "h:1 / :pa@ss #3"},
           {"redis://ana:p:w@[::1]:7/", "[::1]:7 / ana:p:w"},
           {"redis://secret@h", "h:6379 / :secret"},
           {"redis://:a/b?c@h/1", "h:6379 / :a/b?c #1"},
           {"redis://h/x", "error: the part behind the host is no number of a database"},
           {"redis://h/-1", "error: the part behind the host is no number of a database"},
           {"redis://h:abc", "error: the URL names no host, or a wrong port"},
           {"rediss://h", "error: the URL does not begin with redis://"},
       })
    EXPECT_EQ(as_text(parse_redis_url(url)), result) << url;
}

TEST(Target, AFilterChoosesByTypeUserAndTier) {
  const json lease{{"user", "ana"}, {"tier", "batch"}, {"code", "granted"}};
  struct Case {
    Filter filter;
    bool lease, warning;
  };
  for (const Case& one :
       {Case{{}, true, true}, Case{{{Wish{"lease"}}, "", ""}, true, false},
        Case{{{Wish{"warning"}}, "", ""}, false, true}, Case{{{Wish{"lease", "granted"}}, "", ""}, true, false},
        Case{{{Wish{"lease", "attached"}}, "", ""}, false, false},
        Case{{{Wish{"lease", "granted", true}}, "", ""}, false, true},
        Case{{{Wish{"lease"}, Wish{"lease", "attached", true}}, "", ""}, true, false},
        Case{{{}, "ana", ""}, true, false}, Case{{{}, "bob", ""}, false, false}, Case{{{}, "", "batch"}, true, false},
        Case{{{}, "ana", "spot"}, false, false}}) {
    EXPECT_EQ(one.filter.wants("lease", lease), one.lease);
    EXPECT_EQ(one.filter.wants("warning", json::object()), one.warning);
  }
}

TEST(Target, AWebhookNamesItsFault) {
  const WebhookText good{"bot", "http://h/", "lease, -lease.granted", "", "any", "slack", ""};
  const auto webhook = parse_webhook(good);
  ASSERT_TRUE(webhook);
  ASSERT_EQ(webhook->filter.types.size(), 2U);
  EXPECT_EQ(webhook->filter.types[0].type, "lease");
  EXPECT_EQ(webhook->filter.types[1].what, "granted");
  EXPECT_TRUE(webhook->filter.types[1].drop);
  EXPECT_EQ(webhook->format, Format::slack);
  EXPECT_EQ(webhook->filter.tier, "");
  WebhookText text = good;
  text.types = "lease,leese";
  EXPECT_EQ(parse_webhook(text).error().detail, "events.webhook 'bot': types: there is no event type 'leese'");
  text.types = "lease,-lease.atached";
  EXPECT_EQ(parse_webhook(text).error().detail,
            "events.webhook 'bot': types: no event of a lease has the code 'atached'");
  text.types = "session.activ";
  EXPECT_EQ(parse_webhook(text).error().detail, "events.webhook 'bot': types: a session has no state 'activ'");
  text.types = "session.active,-session.checkpoint";
  const auto sessions = parse_webhook(text);
  ASSERT_TRUE(sessions);
  EXPECT_TRUE(sessions->filter.wants("session", {{"state", "active"}}));
  EXPECT_FALSE(sessions->filter.wants("session", {{"state", "active"}, {"code", "checkpoint"}}));
  text = good;
  text.url = "gopher://h";
  EXPECT_EQ(parse_webhook(text).error().detail,
            "events.webhook 'bot': url: the URL begins with neither http:// nor https://");
  text = good;
  text.name = "redis";
  EXPECT_EQ(parse_webhook(text).error().detail, "events.webhook 'redis': name: 'redis' is the name of events.redis");
}

}  // namespace
}  // namespace sublet::events
