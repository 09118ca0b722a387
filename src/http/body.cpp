// SPDX-License-Identifier: Apache-2.0
#include "http/body.h"

#include "base/text.h"
#include "http/message.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace sublet::http {

bool plain_name(std::string_view name) {
  return !name.empty() && name.size() <= 64 && std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '.' || c == '_' || c == '-' || c == '/' || c == ':' || c == '+';
  });
}

void erase_nulls(nlohmann::json& body) {
  if (!body.is_object()) return;
  for (auto field = body.begin(); field != body.end();) field = field->is_null() ? body.erase(field) : std::next(field);
}

Body::Body(const nlohmann::json& body, std::string prefix) : body_(body), prefix_(std::move(prefix)) {
  if (!body.is_null() && !body.is_object()) {
    error_ = bad_request(
        fmt::format("{}is a JSON {}, not an object", prefix_.empty() ? "the body " : prefix_ + " ", body.type_name()),
        R"(send an object of names and values: {"name": value})");
  }
}

namespace {

// People write a number differently from a program.
std::string hint_for(std::string_view name, const nlohmann::json& found) {
  if (found.is_string()) {
    const auto text = found.get<std::string>();
    const auto size = parse_size(text);
    if (name.ends_with("_bytes") && size) return fmt::format("as a number of bytes: {}", size->count);
    const auto duration = parse_duration(text);
    if (name.ends_with("_seconds") && duration)
      return fmt::format("as a number of seconds: {}", *duration / std::chrono::seconds(1));
  }
  return "GET /v1/openapi.json describes each field; most are optional";
}

}  // namespace

const nlohmann::json* Body::field(std::string_view name) {
  known_.push_back(name);
  if (!body_.is_object()) return nullptr;
  const auto found = body_.find(name);
  if (found == body_.end() || found->is_null()) return nullptr;
  return &*found;
}

void Body::fail(std::string_view name, std::string_view expected, const nlohmann::json& found) {
  if (error_) return;
  const std::string shown = printable(found.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  error_ = bad_request(fmt::format("{}{} is {}; it must be {}", prefix_, name, shown, expected), hint_for(name, found));
}

std::optional<std::string> Body::text(std::string_view name, std::size_t max_length) {
  const auto* value = field(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) {
    fail(name, "a text", *value);
    return std::nullopt;
  }
  auto result = value->get<std::string>();
  if (result.size() > max_length || !is_printable(result)) {
    fail(name, fmt::format("at most {} printable characters", max_length), *value);
    return std::nullopt;
  }
  return result;
}

std::optional<std::string> Body::word(std::string_view name, bool (*is_valid)(std::string_view),
                                      std::string_view expected) {
  const auto* value = field(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_string() && is_valid(value->get_ref<const std::string&>())) return value->get<std::string>();
  fail(name, expected, *value);
  return std::nullopt;
}

std::optional<std::string> Body::label(std::string_view field, bool may_be_empty) {
  const auto label_or_empty = +[](std::string_view text) { return text.empty() || is_label(text); };
  return word(field, may_be_empty ? label_or_empty : is_label, "1 to 64 printable characters without '/'");
}

std::optional<std::string> Body::name(std::string_view field) {
  return word(field, plain_name, "1 to 64 of the letters a-z and A-Z, digits and . _ - / : +");
}

std::optional<std::int64_t> Body::integer(std::string_view name, std::int64_t least, std::int64_t most) {
  const auto* value = field(name);
  if (value == nullptr) return std::nullopt;
  const auto expected = [&] { return fmt::format("an integer from {} to {}", least, most); };
  if (!value->is_number_integer() ||
      (value->is_number_unsigned() && value->get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX))) {
    fail(name, expected(), *value);
    return std::nullopt;
  }
  const auto number = value->get<std::int64_t>();
  if (number < least || number > most) {
    fail(name, expected(), *value);
    return std::nullopt;
  }
  return number;
}

std::optional<bool> Body::boolean(std::string_view name) {
  const auto* value = field(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) {
    fail(name, "true or false", *value);
    return std::nullopt;
  }
  return value->get<bool>();
}

const nlohmann::json* Body::object(std::string_view name) {
  const auto* value = field(name);
  if (value == nullptr) return nullptr;
  if (!value->is_object()) {
    fail(name, "an object", *value);
    return nullptr;
  }
  return value;
}

const nlohmann::json* Body::list(std::string_view name) {
  const auto* value = field(name);
  if (value == nullptr) return nullptr;
  if (!value->is_array()) {
    fail(name, "a list", *value);
    return nullptr;
  }
  return value;
}

std::optional<int> Body::thousandths(std::string_view name, int least, int most) {
  const auto* value = field(name);
  if (value == nullptr) return std::nullopt;
  const double number = value->is_number() ? value->get<double>() * 1000 : -1;
  const double whole = std::round(number);
  if (!value->is_number() || whole < least || whole > most || std::abs(number - whole) > 1e-6 * std::max(whole, 1.0)) {
    fail(name, fmt::format("a number from {} to {} with at most 3 decimals", least / 1000.0, most / 1000.0), *value);
    return std::nullopt;
  }
  return static_cast<int>(whole);
}

Status Body::finish() {
  if (!error_ && body_.is_object()) {
    for (const auto& [name, value] : body_.items()) {
      if (std::find(known_.begin(), known_.end(), name) != known_.end()) continue;
      error_ = bad_request(fmt::format("unknown field '{}{}'{}", prefix_, printable(name), did_you_mean(name, known_)),
                           known_.empty() ? std::string("the call takes no fields: send no body, or {}")
                                          : fmt::format("known fields: {}", fmt::join(known_, ", ")));
      break;
    }
  }
  if (error_) return *error_;
  return {};
}

}  // namespace sublet::http
