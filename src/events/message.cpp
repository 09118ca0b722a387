// SPDX-License-Identifier: Apache-2.0
#include "events/message.h"

#include "base/text.h"

#include <fmt/format.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

namespace sublet::events {
namespace {

using nlohmann::json;

constexpr std::size_t longest = 1500;  // bytes; Discord takes 2000 characters

std::string dump(const json& value) { return value.dump(-1, ' ', false, json::error_handler_t::replace); }

std::string word(const json& data, const char* name) {
  const auto found = data.find(name);
  return found != data.end() && found->is_string() ? found->get<std::string>() : std::string();
}

std::string subject(const Event& event) {
  const json& data = event.data;
  if (event.type == "lease") return fmt::format("{} {}", word(data, "lease"), word(data, "code"));
  if (event.type == "device" || event.type == "service")
    return fmt::format("{} {}", word(data, "device"), word(data, "state"));
  if (event.type == "warning") return fmt::format("warning {} {}", word(data, "code"), word(data, "state"));
  if (event.type == "daemon") return fmt::format("subletd {}", word(data, "state"));
  if (event.type == "gap") return fmt::format("{} events were lost", data.value("missed", 0));
  if (event.type == "session")
    return fmt::format("{} {}", word(data, "session"),
                       word(data, "code") == "checkpoint" ? "has saved its work" : word(data, "state"));
  if (event.type == "tenants")
    return fmt::format("tenants: {} added, {} changed, {} removed by {}", data.value("added_count", 0),
                       data.value("changed_count", 0), data.value("removed_count", 0), word(data, "by"));
  if (event.type == "stack") return fmt::format("stack {} {}", word(data, "stack"), word(data, "state"));
  if (event.type == "verdict") return fmt::format("verdict {} {}", data.value("verdict", 0), word(data, "stage"));
  return event.type;
}

// At most `longest` bytes, and no part of a character.
std::string cut(std::string text) {
  if (text.size() <= longest) return text;
  std::size_t end = longest - 3;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return text.substr(0, end) + "…";
}

std::string escaped_for_slack(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '&') out += "&amp;";
    else if (c == '<') out += "&lt;";
    else if (c == '>') out += "&gt;";
    else out += c;
  }
  return out;
}

// A header takes printable ASCII only.
std::string header_text(const std::string& text) {
  std::string out;
  for (const char c : text) out += c >= ' ' && c < 127 ? c : '?';
  return out;
}

bool is_problem(const Event& event) {
  return event.type == "warning" || event.type == "verdict" || event.type == "gap" ||
         (event.type == "device" && word(event.data, "state") != "ok") ||
         (event.type == "service" && word(event.data, "state") == "late");
}

std::string signature(const std::string& key, const std::string& body) {
  unsigned char code[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), reinterpret_cast<const unsigned char*>(body.data()),
       body.size(), code, &size);
  std::string text = "sha256=";
  for (unsigned i = 0; i < size; ++i) text += fmt::format("{:02x}", code[i]);
  return text;
}

}  // namespace

std::string sentence(const Event& event) {
  const bool is_checkpoint = event.type == "session" && word(event.data, "code") == "checkpoint";
  std::string text = is_checkpoint ? "" : word(event.data, event.type == "session" ? "why" : "text");
  if (text.empty()) text = word(event.data, "problem");
  std::string line = subject(event) + (text.empty() ? "" : ": " + text);
  if (event.type == "lease" || event.type == "session") {
    std::string name = word(event.data, "tag");
    if (name.empty()) name = word(event.data, "consumer");
    if (name == word(event.data, "session")) name.clear();
    line += fmt::format(" ({}{}{})", name, name.empty() ? "" : ", ", word(event.data, "user"));
  }
  return cut(visible(event.host.empty() ? line : event.host + ": " + line));
}

std::string object_of(const Event& event) {
  json data = event.data;
  if (!event.id.empty()) data["id"] = event.id;
  if (!event.host.empty()) data["host"] = event.host;
  return dump(data);
}

Message message_for(const Webhook& webhook, const Event& event) {
  Message message{"application/json", {}, {{"Sublet-Event", event.type}}};
  if (!event.id.empty()) message.headers.emplace_back("Sublet-Delivery", event.id);
  std::string where;
  switch (webhook.format) {
    case Format::json: message.body = object_of(event); break;
    case Format::slack: message.body = dump({{"text", escaped_for_slack(sentence(event))}}); break;
    case Format::discord:
      message.body = dump({{"content", sentence(event)}, {"allowed_mentions", {{"parse", json::array()}}}});
      break;
    case Format::ntfy:
      where = event.host.empty() ? "Sublet" : "Sublet on " + event.host;
      message.content_type = "text/plain; charset=utf-8";
      message.body = sentence(event);
      message.headers.emplace_back("Title", header_text(where + ": " + subject(event)));
      message.headers.emplace_back("Priority", is_problem(event) ? "high" : "default");
      message.headers.emplace_back("Tags", is_problem(event) ? "warning" : "computer");
      break;
  }
  if (!webhook.secret.empty())
    message.headers.emplace_back("Sublet-Signature", signature(webhook.secret, message.body));
  return message;
}

}  // namespace sublet::events
