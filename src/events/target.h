// SPDX-License-Identifier: Apache-2.0
// A tool that is told of events: its address, its format, and the events that it wants. Plain data and pure functions.
#pragma once

#include "base/error.h"
#include "net/connect.h"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sublet::events {

struct Address : net::Address {
  std::string user;      // Redis only; "": the default user
  std::string password;  // Redis only; "": none
  int database = 0;      // Redis only
};

Result<Address> parse_http_url(std::string_view url);   // http://, https://
Result<Address> parse_redis_url(std::string_view url);  // redis://[[user:]password@]host[:port][/number]

// Events of a type, or only those with this code, state or stage.
struct Wish {
  std::string type;
  std::string what;   // "": any
  bool drop = false;  // such events are not sent
  bool covers(std::string_view its_type, const nlohmann::json& data) const;
};

struct Filter {
  std::vector<Wish> types;  // none that is to be sent: all
  std::string user;         // "": all
  std::string tier;         // "": all

  // `data`: the event's JSON object. With a user or a tier, only events about leases pass.
  bool wants(std::string_view type, const nlohmann::json& data) const;
};

enum class Format { json, ntfy, slack, discord };

struct Webhook {
  std::string name;
  Address address;
  Format format = Format::json;
  Filter filter;
  std::string secret;  // "": the calls are not signed
};

// One webhook as it stands in the configuration.
struct WebhookText {
  std::string name, url, types, user, tier, format, secret;
};
// An error names the webhook and the field.
Result<Webhook> parse_webhook(const WebhookText& text);

inline constexpr std::string_view redis_name = "redis";  // no webhook may have this name

}  // namespace sublet::events
