// SPDX-License-Identifier: Apache-2.0
#include "http/parse.h"

#include "base/text.h"
#include "http/message.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <vector>

namespace sublet::http {
namespace {

bool same_letters(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

Error twice(std::string_view what, std::string_view name) {
  return bad_request(fmt::format("{} '{}' is given twice", what, printable(std::string(name.substr(0, 80)))),
                     "leave one of the two out");
}

// The names in the objects that are open, the innermost last, and the first that one of them has twice.
class Names {
 public:
  void see(json::parse_event_t event, const json& value) {
    if (event == json::parse_event_t::object_start) open_.emplace_back();
    else if (event == json::parse_event_t::object_end && !open_.empty()) open_.pop_back();
    else if (event == json::parse_event_t::key && !open_.empty() && !found_) {
      auto name = value.get<std::string>();
      if (!open_.back().insert(name).second) found_ = std::move(name);
    }
  }
  const std::optional<std::string>& twice() const { return found_; }

 private:
  std::vector<std::set<std::string>> open_;
  std::optional<std::string> found_;
};

}  // namespace

Target parse_target(std::string_view text) {
  constexpr std::string_view scheme = "http://";
  Target target;
  if (same_letters(text.substr(0, scheme.size()), scheme)) {
    text.remove_prefix(scheme.size());
    target.host = text.substr(0, text.find_first_of("/?"));
    text.remove_prefix(target.host.size());
  }
  target.path = text.substr(0, text.find('?'));
  if (target.path.size() < text.size()) target.query = text.substr(target.path.size() + 1);
  return target;
}

Result<std::map<std::string, std::string>> parse_query(std::string_view text) {
  std::map<std::string, std::string> query;
  while (!text.empty()) {
    const auto part = text.substr(0, text.find('&'));
    text.remove_prefix(std::min(part.size() + 1, text.size()));
    const auto equals = std::min(part.find('='), part.size());
    const auto value = equals < part.size() ? part.substr(equals + 1) : std::string_view();
    const auto [entry, fresh] = query.emplace(url_decode(part.substr(0, equals)), url_decode(value));
    if (!fresh) return twice("the parameter", entry->first);
  }
  return query;
}

Status parse_body(const std::string& text, int depth_limit, json& body) {
  if (text.empty()) return {};
  bool too_deep = false;
  Names names;
  body = json::parse(
      text,
      [&](int depth, json::parse_event_t event, json& value) {
        too_deep = too_deep || depth > depth_limit;
        names.see(event, value);
        return !too_deep;
      },
      false);
  if (too_deep)
    return bad_request(fmt::format("the body is nested deeper than {} levels", depth_limit),
                       "nest the body less deeply; no call needs this depth");
  if (body.is_discarded()) {
    return bad_request(fmt::format("the body is not JSON: {}", printable(text.substr(0, 80))),
                       R"(send one object, for example {"vram_bytes": 8589934592})");
  }
  if (body.is_null()) return bad_request("the body is null", "leave the body out, or send an object");
  if (names.twice()) return twice("the field", *names.twice());
  return {};
}

}  // namespace sublet::http
