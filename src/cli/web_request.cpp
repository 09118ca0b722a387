// SPDX-License-Identifier: Apache-2.0
#include "cli/web_request.h"

#include "base/number.h"
#include "base/text.h"
#include "base/web_origin.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace sublet::cli {
namespace {

constexpr std::array<std::string_view, 4> known_methods{"GET", "HEAD", "POST", "DELETE"};
constexpr std::array<std::string_view, 6> passed_fields{"accept",        "content-type",       "idempotency-key",
                                                        "last-event-id", "sublet-lease-token", "user-agent"};

constexpr std::string_view token_marks = "!#$%&'*+-.^_`|~";  // of RFC 9110, 5.6.2

Error unreadable(const std::string& why) {
  return bad_request("the request cannot be read: " + why, "use a browser, or the API of the daemon: docs/api.md");
}

bool is_token(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
           token_marks.find(c) != std::string_view::npos;
  });
}

// No character that could end a line or a word of the head that is made of it.
bool is_clean(std::string_view text, bool spaces) {
  return std::ranges::all_of(text, [spaces](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte > 0x20 ? byte != 0x7f : spaces && (c == ' ' || c == '\t');
  });
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

Status take_first_line(std::string_view line, WebRequest& request) {
  const auto space = line.find(' ');
  const auto last = line.rfind(' ');
  if (space == std::string_view::npos || last == space)
    return unreadable("its first line is not METHOD TARGET VERSION");
  request.method = line.substr(0, space);
  request.target = line.substr(space + 1, last - space - 1);
  if (const auto version = line.substr(last + 1); version != "HTTP/1.1" && version != "HTTP/1.0")
    return unreadable(fmt::format("its version is {}, not HTTP/1.1", printable(version)));
  if (std::ranges::count(known_methods, request.method) == 0)
    return unreadable(fmt::format("its method is {}", printable(request.method)));
  if (!request.target.starts_with('/') || !is_clean(request.target, false))
    return unreadable("its target is not a path");
  return {};
}

Status take_field(std::string_view line, WebRequest& request) {
  const auto colon = line.find(':');
  if (colon == std::string_view::npos || !is_token(line.substr(0, colon)))
    return unreadable(fmt::format("'{}' is not a header", printable(line)));
  std::string name(line.substr(0, colon));
  std::ranges::transform(name, name.begin(),
                         [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  const std::string_view value = trimmed(line.substr(colon + 1));
  if (!is_clean(value, true)) return unreadable(fmt::format("the header {} has control characters", printable(name)));
  if (!request.fields.emplace(name, value).second)
    return unreadable(fmt::format("the header {} is given twice", printable(name)));
  return {};
}

}  // namespace

std::string_view WebRequest::field(std::string_view name) const {
  const auto found = fields.find(name);
  return found == fields.end() ? std::string_view() : found->second;
}

std::string_view WebRequest::path() const { return std::string_view(target).substr(0, target.find('?')); }

Result<WebRequest> parse_web_request(std::string_view head) {
  WebRequest request;
  for (bool first = true;; first = false) {
    const auto end = head.find("\r\n");
    if (end == std::string_view::npos) return unreadable("its head has no end");
    const auto line = head.substr(0, end);
    head.remove_prefix(end + 2);
    if (line.empty() && !first) break;
    if (auto taken = first ? take_first_line(line, request) : take_field(line, request); !taken) return taken.error();
  }
  if (!request.field("transfer-encoding").empty()) return unreadable("it has no Content-Length");
  if (const auto text = request.field("content-length"); !text.empty()) {
    const auto size = parse_number<std::size_t>(text);
    if (!size) return unreadable(fmt::format("its Content-Length is {}", printable(text)));
    request.body_size = *size;
  }
  return request;
}

Status check_origin(const WebRequest& request) {
  const auto host = request.field("host");
  if (!is_this_machine(host))
    return denied(fmt::format("the Host header names {}", host.empty() ? "no host" : printable(host)),
                  "use 127.0.0.1, [::1] or localhost as the host");
  const auto site = request.field("sec-fetch-site");
  const bool foreign = !site.empty() && site != "same-origin" && site != "none";
  // The first file may be asked for by a link: it has no data.
  const bool first = request.method == "GET" && request.path() == "/";
  if (!is_own_origin(request.field("origin"), host) || (foreign && !first))
    return denied("the page of another server made the browser send this request",
                  "open the address that `sublet web` printed");
  return {};
}

std::string head_for_daemon(const WebRequest& request, std::string_view authority, std::string_view token) {
  std::string head =
      fmt::format("{} {} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n", request.method, request.target, authority);
  for (const auto name : passed_fields) {
    if (const auto value = request.field(name); !value.empty()) head += fmt::format("{}: {}\r\n", name, value);
  }
  if (!token.empty()) head += fmt::format("Authorization: Bearer {}\r\n", token);
  if (request.body_size > 0 || request.method == "POST")
    head += fmt::format("Content-Length: {}\r\n", request.body_size);
  return head + "\r\n";
}

}  // namespace sublet::cli
