// SPDX-License-Identifier: Apache-2.0
#include "http/compatible.h"

#include "http/parse.h"
#include "stacks/mirror.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

namespace sublet::http::compatible {
namespace {

constexpr double longest_seconds = 10.0 * 365 * 24 * 3600;
constexpr std::size_t longest_text = 256;  // of a target, an owner and a token
constexpr int deepest = 16;                // levels of a body

std::string lowered(std::string text) {
  std::ranges::transform(text, text.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? char(c + 32) : c; });
  return text;
}

// A number as Python reads it from a text: with blanks around it and a sign.
std::optional<double> read_number(std::string_view text) {
  constexpr std::string_view blank = " \t\n\r\f\v";
  const auto first = text.find_first_not_of(blank);
  if (first == text.npos) return {};
  text = text.substr(first, text.find_last_not_of(blank) + 1 - first);
  if (text[0] == '+' && text.size() > 1 && text[1] != '-') text.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return {};
  return value;
}

// Collects the findings about a body, in the form that callers of the service know.
class Fields {
 public:
  explicit Fields(const json& body) : body_(body) {}

  std::string text(const char* name, bool required = false) {
    const json* found = field(name);
    if (found == nullptr) {
      if (required) add("missing", name, "Field required", body_);
      return {};
    }
    if (!found->is_string()) {
      add("string_type", name, "Input should be a valid string", *found);
      return {};
    }
    if (found->get_ref<const std::string&>().size() <= longest_text) return found->get<std::string>();
    add("string_too_long", name, fmt::format("String should have at most {} characters", longest_text), nullptr);
    return {};
  }

  bool boolean(const char* name, bool fallback) {
    const json* found = field(name);
    if (found == nullptr) return fallback;
    if (found->is_boolean()) return found->get<bool>();
    if (found->is_null() || found->is_structured()) {
      add("bool_type", name, "Input should be a valid boolean", *found);
      return fallback;
    }
    if (found->is_number_integer() && (*found == 0 || *found == 1)) return *found == 1;
    if (found->is_string()) {
      const std::string word = lowered(found->get<std::string>());
      for (const char* yes : {"true", "1", "yes", "on", "t", "y"})
        if (word == yes) return true;
      for (const char* no : {"false", "0", "no", "off", "f", "n"})
        if (word == no) return false;
    }
    add("bool_parsing", name, "Input should be a valid boolean, unable to interpret input", *found);
    return fallback;
  }

  std::optional<std::int64_t> integer(const char* name) {
    const json* found = field(name);
    if (found == nullptr || found->is_null()) return {};
    if (found->is_number_unsigned() && found->get<std::uint64_t>() > INT64_MAX) return INT64_MAX;
    if (found->is_number_integer()) return found->get<std::int64_t>();
    if (found->is_number_float()) {
      const double value = found->get<double>();
      if (value == std::trunc(value) && std::abs(value) < 9e15) return static_cast<std::int64_t>(value);
      add("int_from_float", name, "Input should be a valid integer, got a number with a fractional part", *found);
      return {};
    }
    if (found->is_string()) {
      const auto& text = found->get_ref<const std::string&>();
      std::int64_t value = 0;
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
      if (error == std::errc{} && end == text.data() + text.size()) return value;
      add("int_parsing", name, "Input should be a valid integer, unable to parse string as an integer", *found);
      return {};
    }
    add("int_type", name, "Input should be a valid integer", *found);
    return {};
  }

  // A number of seconds, a text with one, or null or "" for the default. `wrong`: why it is none, in the words of the
  // service.
  Duration seconds(const char* name, Duration fallback, std::string& wrong) {
    const json* found = field(name);
    if (found == nullptr || found->is_null() || *found == "") return fallback;
    double value = 0;
    if (found->is_number()) {
      value = found->get<double>();
    } else if (found->is_string()) {
      const auto& text = found->get_ref<const std::string&>();
      const auto number = read_number(text);
      if (!number) wrong = fmt::format("could not convert string to float: '{}'", text);
      value = number.value_or(1);
    } else {
      add("float_type", name, "Input should be a valid number", *found);
      return fallback;
    }
    if (std::isnan(value)) wrong = "cannot convert float NaN to integer";
    else if (wrong.empty() && value <= 0) wrong = fmt::format("{} must be > 0", name);
    if (!wrong.empty()) return fallback;
    return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(std::min(value, longest_seconds)));
  }

  std::optional<Response> refusal() const {
    if (!findings_.empty()) return Response{422, {{"detail", findings_}}, {}, false};
    return {};
  }

 private:
  const json* field(const char* name) const {
    const auto found = body_.find(name);
    return found == body_.end() ? nullptr : &*found;
  }
  void add(const char* type, const char* name, const std::string& message, const json& input) {
    findings_.push_back({{"type", type}, {"loc", {"body", name}}, {"msg", message}, {"input", input}});
  }

  const json& body_;
  json findings_ = json::array();
};

Response one_finding(json finding) { return {422, {{"detail", json::array({std::move(finding)})}}, {}, false}; }

bool is_null(std::string_view body) {
  constexpr std::string_view blank = " \t\r\n";
  const auto first = std::min(body.find_first_not_of(blank), body.size());
  const auto last = body.find_last_not_of(blank);
  return last != body.npos && body.substr(first, last + 1 - first) == "null";
}

std::variant<json, Response> parse_object(const std::string& body) {
  if (body.empty())
    return one_finding({{"type", "missing"}, {"loc", {"body"}}, {"msg", "Field required"}, {"input", nullptr}});
  json parsed;
  if (!is_null(body) && !parse_body(body, deepest, parsed))
    return one_finding({{"type", "json_invalid"},
                        {"loc", {"body", 0}},
                        {"msg", "JSON decode error"},
                        {"input", json::object()},
                        {"ctx", {{"error", "the body is not valid JSON"}}}});
  if (!parsed.is_object())
    return one_finding({{"type", "model_attributes_type"},
                        {"loc", {"body"}},
                        {"msg", "Input should be a valid dictionary or object to extract fields from"},
                        {"input", parsed}});
  return parsed;
}

json state_body(const View& view) {
  json state = stacks::service_state(*view.slot, view.now);
  for (std::size_t i = 0; i < view.slot->queue().size(); ++i)
    state["queue"][i]["token"] = view.shows_tokens ? json(view.slot->queue()[i].token) : json(nullptr);
  if (view.slot->holder() && !view.slot->holder()->expires_at) state["starting"] = true;
  return state;
}

json endpoint_body(const View& view) {
  json endpoint{{"compose_file", view.target->file}};
  if (view.newest) endpoint["name"] = view.target->name;
  return endpoint;
}

json service_body(const View& view) {
  const compose::Container* master = master_of(view);
  if (master == nullptr) return json::object();
  json service = json::parse(master->state, nullptr, false);
  if (!service.is_object()) service = json::object();
  service["logs_tail"] = view.logs_tail;
  service["endpoint"] = endpoint_body(view);
  service["container_count"] = view.containers->containers.size();
  if (!view.newest) {
    service["healthcheck_master_label"] = view.label + "=" + view.label_value;
    return service;
  }
  int healthy = 0, unhealthy = 0, none = 0;
  for (const compose::Container& each : view.containers->containers) {
    healthy += each.health == "healthy" ? 1 : 0;
    unhealthy += each.health == "unhealthy" ? 1 : 0;
    none += each.health.empty() ? 1 : 0;
  }
  service["healthy_container_count"] = healthy;
  service["unhealthy_container_count"] = unhealthy;
  service["no_healthcheck_container_count"] = none;
  return service;
}

}  // namespace

std::variant<AcquireCall, Response> parse_acquire(const std::string& body, const Defaults& defaults) {
  auto parsed = parse_object(body);
  if (auto* refused = std::get_if<Response>(&parsed)) return std::move(*refused);
  Fields fields(std::get<json>(parsed));
  AcquireCall call;
  call.ask.target = fields.text("target", true);
  call.ask.owner = fields.text("owner");
  call.ask.token = fields.text("lease_token");
  call.ask.ttl = fields.seconds("lease_ttl_s", defaults.ttl, call.wrong_ttl);
  call.wait = fields.seconds("wait_s", defaults.wait, call.wrong_wait);
  call.wait_ready = fields.boolean("wait_ready", true);
  call.wait_turn = fields.boolean("wait_turn", false);
  call.ask.priority = fields.integer("priority");
  if (auto refused = fields.refusal()) return std::move(*refused);
  return call;
}

std::variant<ReleaseCall, Response> parse_release(const std::string& body) {
  auto parsed = parse_object(body);
  if (auto* refused = std::get_if<Response>(&parsed)) return std::move(*refused);
  Fields fields(std::get<json>(parsed));
  ReleaseCall call{fields.text("lease_token"), fields.boolean("force", false)};
  if (auto refused = fields.refusal()) return std::move(*refused);
  return call;
}

Response detail(int status, std::string text) { return {status, {{"detail", std::move(text)}}, {}, false}; }

const compose::Container* master_of(const View& view) {
  if (view.target == nullptr || view.containers == nullptr) return nullptr;
  const compose::Container* master = nullptr;
  for (const compose::Container& each : view.containers->containers) {
    const auto label = each.labels.find(view.label);
    if (label == each.labels.end() || label->second != view.label_value) continue;
    if (master != nullptr) return nullptr;
    master = &each;
  }
  return master;
}

json status_body(const View& view) {
  json services = json::object();
  for (const compose::Description* each : view.stacks)
    services[each->name] = view.newest ? json{{"compose_file", each->file}, {"name", each->name}} : json(each->file);
  return {{"state", state_body(view)}, {"service", service_body(view)}, {"services", std::move(services)}};
}

json granted_body(const View& view, const stacks::Holder& holder) {
  json body = status_body(view);
  body["lease_token"] = holder.token;
  body["lease_expires_at"] = stacks::unix_second(holder.expires_at.value_or(view.now + holder.ttl));
  body["endpoint"] = view.target == nullptr ? json::object() : endpoint_body(view);
  return body;
}

json queued_body(const View& view, const std::string& token) {
  json body = status_body(view);
  body["queued"] = true;
  body["lease_token"] = token;
  body["queue_index"] = view.slot->place(token).value_or(0);
  return body;
}

namespace {

// JSON with the blanks of Python.
std::string spaced(const json& value) {
  if (!value.is_structured()) return value.dump(-1, ' ', true, json::error_handler_t::replace);
  std::string out;
  for (const auto& [key, each] : value.items()) {
    if (!out.empty()) out += ", ";
    if (value.is_object()) out += json(key).dump(-1, ' ', true, json::error_handler_t::replace) + ": ";
    out += spaced(each);
  }
  return value.is_object() ? "{" + out + "}" : "[" + out + "]";
}

}  // namespace

Response not_ready(int status, const std::string& message, const std::string& logs_tail, const std::string& state) {
  json text{{"logs_tail", logs_tail}};
  if (!message.empty()) text["message"] = message;
  if (!state.empty()) text["state"] = json::parse(state, nullptr, false);
  return detail(status, spaced(text));
}

std::optional<Response> refuse_headers(const Headers& headers, const std::string& host, std::uint16_t port) {
  if (headers.has_origin)
    return detail(403, fmt::format("requests of web pages are refused (Origin: {})", headers.origin));
  const std::string shown = host.find(':') == std::string::npos ? host : fmt::format("[{}]", host);
  bool known = headers.host == fmt::format("{}:{}", shown, port) || headers.host == fmt::format("localhost:{}", port);
  if (port == 80) known = known || headers.host == shown || headers.host == "localhost";
  if (!known)
    return detail(403, fmt::format("the Host header is '{}'; this service is {}:{}", headers.host, host, port));
  std::string type = lowered(headers.content_type.substr(0, headers.content_type.find(';')));
  while (!type.empty() && type.back() == ' ') type.pop_back();
  if (headers.is_post && type != "application/json")
    return detail(415, fmt::format("the Content-Type is '{}'; send application/json", headers.content_type));
  return {};
}

}  // namespace sublet::http::compatible
