// SPDX-License-Identifier: Apache-2.0
#include "http/answer_text.h"

#include <boost/beast/http/status.hpp>

#include <charconv>

namespace sublet::http {
namespace {

constexpr std::size_t head_size = 256;  // enough for most headers

// A browser must not take the output of a program for a page.
constexpr std::string_view no_store = "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n";

void add_number(std::string& text, std::size_t number) {
  char digits[20];
  text.append(digits, std::to_chars(digits, digits + sizeof digits, number).ptr);
}

void add_field(std::string& text, std::string_view name, std::string_view value) {
  text.append(name).append(": ").append(value).append("\r\n");
}

}  // namespace

AnswerParts answer_parts(Response response, const Framing& framing) {
  AnswerParts parts;
  std::string& text = parts.head;
  std::string& body = parts.body;
  if (response.type.empty()) body = response.body.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
  else body = std::move(response.text);
  const std::string_view json_type =
      response.status >= 400 && response.body.contains("code") ? "application/problem+json" : "application/json";
  const auto reason = boost::beast::http::obsolete_reason(static_cast<boost::beast::http::status>(response.status));

  text.reserve(head_size + response.location.size());
  text += framing.old_version ? "HTTP/1.0 " : "HTTP/1.1 ";
  add_number(text, static_cast<std::size_t>(response.status));
  text.append(" ").append(reason.data(), reason.size()).append("\r\n");
  add_field(text, "Content-Type", response.type.empty() ? json_type : response.type);
  text += response.head.empty() ? no_store : response.head;
  if (response.status == 405) add_field(text, "Allow", response.allow);
  if (response.status == 401) text += "WWW-Authenticate: Bearer\r\n";
  if (!response.location.empty()) add_field(text, "Location", response.location);
  // The default of the HTTP version needs no header.
  if (framing.keep_alive == framing.old_version)
    add_field(text, "Connection", framing.keep_alive ? "keep-alive" : "close");
  // A stream has no known length.
  if (!framing.head_only || !body.empty()) {
    text += "Content-Length: ";
    add_number(text, body.size());
    text += "\r\n";
  }
  text += "\r\n";
  if (framing.head_only) body.clear();
  return parts;
}

std::string answer_text(const Response& response, const Framing& framing) {
  AnswerParts parts = answer_parts(response, framing);
  return std::move(parts.head) + parts.body;
}

}  // namespace sublet::http
