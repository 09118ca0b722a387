// SPDX-License-Identifier: Apache-2.0
#include "events/message.h"

#include "base/text.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace sublet::events {
namespace {

using nlohmann::json;

Event lease_event(const std::string& tag = "train") {
  return {"1f2e-17",
          "lease",
          {{"type", "lease"},
           {"lease", "lease-3"},
           {"code", "granted"},
           {"text", "8.0 GiB on gpu0"},
           {"tag", tag},
           {"consumer", "python"},
           {"user", "ana"}}};
}

Webhook webhook(Format format, std::string secret = "") {
  Webhook one;
  one.name = "bot";
  one.format = format;
  one.secret = std::move(secret);
  return one;
}

std::string header(const Message& message, const std::string& name) {
  const auto found = std::ranges::find(message.headers, name, &std::pair<std::string, std::string>::first);
  return found == message.headers.end() ? "" : found->second;
}

TEST(Message, EachFormatIsThatOfItsReceiver) {
  const Message as_json = message_for(webhook(Format::json), lease_event());
  EXPECT_EQ(json::parse(as_json.body)["lease"], "lease-3");
  EXPECT_EQ(json::parse(as_json.body)["id"], "1f2e-17");
  EXPECT_EQ(header(as_json, "Sublet-Event"), "lease");
  EXPECT_EQ(header(as_json, "Sublet-Delivery"), "1f2e-17");
  EXPECT_EQ(header(as_json, "Sublet-Signature"), "");

  const std::string line = "lease-3 granted: 8.0 GiB on gpu0 (train, ana)";
  EXPECT_EQ(json::parse(message_for(webhook(Format::slack), lease_event()).body), json({{"text", line}}));
  EXPECT_EQ(json::parse(message_for(webhook(Format::discord), lease_event()).body),
            json({{"content", line}, {"allowed_mentions", {{"parse", json::array()}}}}));
  const Message ntfy = message_for(webhook(Format::ntfy), lease_event());
  EXPECT_EQ(ntfy.body, line);
  EXPECT_EQ(ntfy.content_type, "text/plain; charset=utf-8");
  EXPECT_EQ(header(ntfy, "Title"), "Sublet: lease-3 granted");
  EXPECT_EQ(header(ntfy, "Priority"), "default");
  const Event warning{"", "warning", {{"code", "store"}, {"state", "begun"}, {"text", "the disk is full"}}};
  EXPECT_EQ(header(message_for(webhook(Format::ntfy), warning), "Priority"), "high");
}

TEST(Message, TheMachineTheSessionAndItsUserAreNamed) {
  Event event{
      "", "session", {{"session", "session-1"}, {"state", "ending"}, {"tag", "nb"}, {"user", "ana"}}, "gpu-box"};
  EXPECT_EQ(sentence(event), "gpu-box: session-1 ending (nb, ana)");
  EXPECT_EQ(json::parse(object_of(event))["host"], "gpu-box");
  EXPECT_EQ(header(message_for(webhook(Format::ntfy), event), "Title"), "Sublet on gpu-box: session-1 ending");
  event.data["tag"] = "session-1";
  EXPECT_EQ(sentence(event), "gpu-box: session-1 ending (ana)");
  event.data["code"] = "checkpoint";
  event.data["why"] = "closed by its user";
  EXPECT_EQ(sentence(event), "gpu-box: session-1 has saved its work (ana)") << "nothing else has changed";
}

TEST(Message, TheSignatureIsTheHmacOfTheBody) {
  Event event{"", "test", json::object()};
  Webhook one = webhook(Format::json, "Jefe");
  const Message message = message_for(one, event);
  EXPECT_EQ(message.body, "{}");
  // echo -n '{}' | openssl dgst -sha256 -hmac Jefe
  EXPECT_EQ(header(message, "Sublet-Signature"),
            "sha256=7bb7ae87018c3fb8b9be866ac39dea2bcc1ad2c907c314bbcad059bdeee591d6");
}

TEST(Message, HostileNamesStayInsideTheirField) {
  const std::string hostile = "a\"b\\c\nd\r\nX-Evil: 1 <!channel> @everyone \x1b[31m";
  for (const Format format : {Format::json, Format::slack, Format::discord, Format::ntfy}) {
    const Message message = message_for(webhook(format, "key"), lease_event(hostile));
    if (format != Format::ntfy) {
      EXPECT_FALSE(json::parse(message.body, nullptr, false).is_discarded());
    }
    for (const auto& [name, value] : message.headers) {
      EXPECT_TRUE(std::ranges::all_of(value, [](char c) { return c >= ' ' && c < 127; })) << name;
    }
    if (format == Format::slack) {
      EXPECT_EQ(message.body.find("<!channel>"), std::string::npos);
    }
    if (format == Format::ntfy) {
      EXPECT_EQ(message.body.find('\n'), std::string::npos);
    }
  }
  const Event long_event{"", "warning", {{"code", "x"}, {"text", std::string(5000, 'a') + "ü"}}};
  EXPECT_LE(sentence(long_event).size(), 1500U);
  std::string many;
  for (int i = 0; i < 2000; ++i) many += "ü";
  const std::string cut = sentence({"", "warning", {{"code", "x"}, {"text", many}}});
  EXPECT_TRUE(cut.size() <= 1500 && is_printable(cut)) << "no half of a character";
}

}  // namespace
}  // namespace sublet::events
