// SPDX-License-Identifier: Apache-2.0
#include "events/target.h"

#include "base/number.h"
#include "base/text.h"
#include "lease/transitions.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

namespace sublet::events {
namespace {

// States and codes of session events.
constexpr std::array<std::string_view, 9> session_words{"starting", "queued", "active", "resting",   "paused",
                                                        "ending",   "parked", "closed", "checkpoint"};

constexpr std::array<std::string_view, 9> known_types{"lease", "device",  "service", "warning", "verdict",
                                                      "stack", "session", "tenants", "daemon"};

// Takes "HOST", "HOST:PORT" or "[v6]:PORT".
Status take_host(std::string_view text, Address& into) {
  std::string_view port;
  if (text.starts_with('[')) {
    const auto end = text.find(']');
    if (end == std::string_view::npos) return bad_request("the URL has '[' without ']'", "write [::1]:PORT");
    into.host = text.substr(1, end - 1);
    const std::string_view rest = text.substr(end + 1);
    if (!rest.empty() && rest[0] != ':') return bad_request("the URL has no port behind ']'", "write [::1]:PORT");
    port = rest.substr(std::min<std::size_t>(1, rest.size()));
  } else {
    const auto colon = text.find(':');
    into.host = text.substr(0, colon);
    if (colon != std::string_view::npos) port = text.substr(colon + 1);
  }
  if (into.host.empty()) return bad_request("the URL names no host", "write SCHEME://HOST:PORT");
  if (port.empty()) return {};
  const auto number = parse_number<std::uint16_t>(port);
  if (!number || *number == 0)
    return bad_request(fmt::format("'{}' is no port", printable(port)), "a port is a number up to 65535");
  into.port = *number;
  return {};
}

// Splits behind the authority.
std::pair<std::string_view, std::string_view> split_authority(std::string_view text) {
  const auto end = std::min(text.find_first_of("/?#"), text.size());
  return {text.substr(0, end), text.substr(end)};
}

std::string decoded(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    unsigned byte = 0;
    const char* const digits = text.data() + 1;
    const bool coded =
        text[0] == '%' && text.size() > 2 && std::from_chars(digits, digits + 2, byte, 16).ptr == digits + 2;
    out += coded ? static_cast<char>(byte) : text[0];
    text.remove_prefix(coded ? 3 : 1);
  }
  return out;
}

std::string_view trimmed(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

// "lease", "-lease.attached"
Wish parse_wish(std::string_view word) {
  Wish wish;
  wish.drop = word.starts_with('-');
  word.remove_prefix(wish.drop ? 1 : 0);
  const auto dot = std::min(word.find('.'), word.size());
  wish.type = word.substr(0, dot);
  wish.what = word.substr(std::min(dot + 1, word.size()));
  return wish;
}

}  // namespace

Result<Address> parse_http_url(std::string_view url) {
  Address address;
  address.tls = url.starts_with("https://");
  if (!address.tls && !url.starts_with("http://"))
    return bad_request("the URL begins with neither http:// nor https://", "write https://HOST/PATH");
  address.port = address.tls ? 443 : 80;
  const auto [authority, rest] = split_authority(url.substr(address.tls ? 8 : 7));
  if (authority.find('@') != std::string_view::npos)
    return bad_request("the URL has a user or a password", "put a token into the path, or use a secret");
  if (const Status taken = take_host(authority, address); !taken) return taken.error();
  const std::string_view path = rest.substr(0, rest.find('#'));
  address.path = path.starts_with('/') ? std::string(path) : "/" + std::string(path);
  if (!is_printable(address.path) || address.path.find(' ') != std::string::npos)
    return bad_request("the path of the URL has blanks or characters that cannot be printed", "write blanks as %20");
  return address;
}

// The errors repeat no part of the URL, which has a password.
Result<Address> parse_redis_url(std::string_view url) {
  constexpr std::string_view scheme = "redis://";
  constexpr const char* form =
      "write redis://USER:PASSWORD@HOST:PORT/NUMBER; write / ? # @ in a password as %2F %3F %23 %40";
  if (!url.starts_with(scheme)) return bad_request("the URL does not begin with redis://", form);
  Address address;
  address.port = 6379;
  std::string_view rest = url.substr(scheme.size());
  if (const auto at = rest.rfind('@'); at != std::string_view::npos) {
    const std::string_view who = rest.substr(0, at);
    const auto colon = who.find(':');
    if (colon != std::string_view::npos) address.user = decoded(who.substr(0, colon));
    address.password = decoded(colon == std::string_view::npos ? who : who.substr(colon + 1));
    rest = rest.substr(at + 1);
  }
  const auto [authority, number] = split_authority(rest);
  if (!take_host(authority, address)) return bad_request("the URL names no host, or a wrong port", form);
  if (number.size() > 1) {
    const auto database = parse_number<int>(number.substr(1));
    if (!database || *database < 0) return bad_request("the part behind the host is no number of a database", form);
    address.database = *database;
  }
  return address;
}

bool Wish::covers(std::string_view its_type, const nlohmann::json& data) const {
  if (its_type != type) return false;
  if (what.empty()) return true;
  // The state of a session has not changed by a checkpoint.
  if (type == "session" && data.contains("code")) return data.at("code") == what;
  return std::ranges::any_of(std::array{"code", "state", "stage"}, [&](const char* field) {
    const auto found = data.find(field);
    return found != data.end() && found->is_string() && found->get<std::string>() == what;
  });
}

bool Filter::wants(std::string_view type, const nlohmann::json& data) const {
  const auto covers = [&](const Wish& wish) { return wish.covers(type, data); };
  if (std::ranges::any_of(types, [&](const Wish& wish) { return wish.drop && covers(wish); })) return false;
  const bool chosen = std::ranges::any_of(types, [&](const Wish& wish) { return !wish.drop && covers(wish); });
  if (!chosen && std::ranges::any_of(types, [](const Wish& wish) { return !wish.drop; })) return false;
  if (user.empty() && tier.empty()) return true;
  if (type != "lease") return false;
  return (user.empty() || data.value("user", "") == user) && (tier.empty() || data.value("tier", "") == tier);
}

Result<Webhook> parse_webhook(const WebhookText& text) {
  const auto name_it = [&](const char* field, const Error& error) {
    return bad_request(fmt::format("events.webhook '{}': {}: {}", text.name, field, error.detail), error.hint);
  };
  if (text.name == redis_name)
    return name_it("name", bad_request(fmt::format("'{}' is the name of events.redis", redis_name), "choose another"));
  Webhook webhook{
      .name = text.name, .address = {}, .filter = {.types = {}, .user = text.user, .tier = {}}, .secret = text.secret};
  auto address = parse_http_url(text.url);
  if (!address) return name_it("url", address.error());
  webhook.address = std::move(*address);
  for (std::string_view rest = text.types; !rest.empty();) {
    const std::string_view word = trimmed(rest.substr(0, rest.find(',')));
    rest.remove_prefix(std::min(rest.find(','), rest.size() - 1) + 1);
    const Wish wish = parse_wish(word);
    if (!std::ranges::count(known_types, wish.type))
      return name_it("types", bad_request(fmt::format("there is no event type '{}'", printable(word)),
                                          fmt::format("types: {}", fmt::join(known_types, ", "))));
    if (wish.type == "lease" && !wish.what.empty() && !core::is_transition(wish.what) && wish.what != "ended")
      return name_it("types", bad_request(fmt::format("no event of a lease has the code '{}'", printable(wish.what)),
                                          "`sublet events` shows the codes, such as lease.attached"));
    if (wish.type == "session" && !wish.what.empty() && !std::ranges::count(session_words, wish.what))
      return name_it("types", bad_request(fmt::format("a session has no state '{}'", printable(wish.what)),
                                          fmt::format("states: {}", fmt::join(session_words, ", "))));
    webhook.filter.types.push_back(wish);
  }
  if (text.tier != "any") webhook.filter.tier = text.tier;
  constexpr std::array<std::string_view, 4> formats{"json", "ntfy", "slack", "discord"};
  webhook.format = static_cast<Format>(std::ranges::find(formats, text.format) - formats.begin());
  return webhook;
}

}  // namespace sublet::events
