// SPDX-License-Identifier: Apache-2.0
#include "compose/protocol.h"

#include <fmt/format.h>

namespace sublet::compose {
namespace {

using nlohmann::json;

Code code_named(std::string_view text) {
  for (int i = 0; i < static_cast<int>(Code::Unavailable); ++i) {
    if (to_string(static_cast<Code>(i)) == text) return static_cast<Code>(i);
  }
  return Code::Unavailable;
}

std::int64_t milliseconds(Duration duration) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(duration).count();
}

// Longer times would overflow as nanoseconds.
Duration duration_of(const json& number) {
  constexpr std::int64_t most = std::int64_t{1000} * 3600 * 24 * 365;
  return std::chrono::milliseconds(std::clamp<std::int64_t>(number.get<std::int64_t>(), 0, most));
}

Origin origin_named(const std::string& word) {
  return word == "config" ? Origin::config : word == "adopted" ? Origin::adopted : Origin::directory;
}

GpuRequest request_named(const std::string& word) {
  return word == "nvidia" ? GpuRequest::nvidia : word == "cdi" ? GpuRequest::cdi : GpuRequest::none;
}

const char* to_word(GpuRequest request) {
  return request == GpuRequest::nvidia ? "nvidia" : request == GpuRequest::cdi ? "cdi" : "";
}

const char* to_word(Origin origin) {
  switch (origin) {
    case Origin::directory: return "directory";
    case Origin::config: return "config";
    case Origin::adopted: return "adopted";
  }
  return "";
}

// Each throws json::exception if a field is missing or has a wrong type.

void read(const json& from, std::string& to) { to = from.get<std::string>(); }
void read(const json& from, std::uint64_t& to) { to = from.get<std::uint64_t>(); }

void read(const json& from, Error& to) {
  to = {code_named(from.at("code").get<std::string>()), from.at("detail"), from.at("hint")};
}

void read(const json& from, Sources& to) {
  to.dir = from.at("dir");
  to.config = from.at("config");
  to.env_file = from.at("env_file");
  to.env_file_may_lack = from.at("env_file_may_lack");
  for (const json& one : from.at("adopted")) to.adopted.push_back({one.at("name"), one.at("path")});
}

void read(const json& from, Service& to) {
  to.name = from.at("name");
  to.labels = from.at("labels").get<std::map<std::string, std::string>>();
  to.healthcheck = from.at("healthcheck");
  to.replicas = from.at("replicas");
  to.gpu = request_named(from.at("gpu"));
  to.gpu_capabilities = from.at("gpu_capabilities").get<std::vector<std::string>>();
  to.gpu_options = from.at("gpu_options").get<std::map<std::string, std::string>>();
}

void read(const json& from, Description& to) {
  to.name = from.at("name");
  to.origin = origin_named(from.at("origin"));
  to.file = from.at("file");
  to.directory = from.at("directory");
  to.project = from.at("project");
  if (from.contains("error")) read(from.at("error"), to.error.emplace());
  for (const json& one : from.at("services")) read(one, to.services.emplace_back());
  to.extension = from.at("extension");
  to.resolved = from.at("resolved");
}

void read(const json& from, Container& to) {
  to.id = from.at("id");
  to.service = from.at("service");
  to.name = from.at("name");
  to.labels = from.at("labels").get<std::map<std::string, std::string>>();
  to.status = from.at("status");
  to.health = from.at("health");
  to.exit_code = from.at("exit_code");
  to.pid = from.at("pid");
  to.state = from.at("state");
  to.ports = from.at("ports").get<std::vector<std::string>>();
}

void read(const json& from, Observation& to) {
  to.project = from.at("project");
  for (const json& one : from.at("containers")) read(one, to.containers.emplace_back());
}

void read(const json& from, Engine& to) {
  to.reachable = from.at("reachable");
  to.version = from.at("version");
  to.program = from.at("program");
  to.why = from.at("why");
  to.gpu_runtime = from.at("gpu_runtime");
}

void read(const json& from, Start& to) {
  to.name = from.at("name");
  to.project = from.at("project");
  to.directory = from.at("directory");
  to.resolved = from.at("resolved");
  to.overlay = from.at("overlay");
  to.timeout = duration_of(from.at("timeout_ms"));
  to.recreate = from.at("recreate");
  to.credit = from.at("credit");
  to.interposed = from.at("interposed").get<std::vector<std::string>>();
}

void read(const json& from, Stop& to) {
  to.name = from.at("name");
  to.project = from.at("project");
  to.directory = from.at("directory");
  to.resolved = from.at("resolved");
  to.timeout = duration_of(from.at("timeout_ms"));
}

void read(const json& from, LogQuery& to) {
  to.project = from.at("project");
  to.service = from.at("service");
  to.tail = from.at("tail");
  to.follow = from.at("follow");
}

template <typename T>
void read(const json& from, std::vector<T>& to) {
  for (const json& one : from.get_ref<const json::array_t&>()) read(one, to.emplace_back());
}

}  // namespace

std::string to_line(const json& message) { return message.dump(-1, ' ', false, json::error_handler_t::replace) + "\n"; }

Result<Document> parse_line(std::string_view line) {
  json message = json::parse(line, nullptr, false);
  if (!message.is_object()) return bad_request("a message is no JSON object");
  return Document{std::move(message)};
}

json to_json(const Error& error) {
  return {{"code", to_string(error.code)}, {"detail", error.detail}, {"hint", error.hint}};
}

json to_json(const Sources& sources) {
  json adopted = json::array();
  for (const Adopted& one : sources.adopted) adopted.push_back({{"name", one.name}, {"path", one.path}});
  return {{"dir", sources.dir},
          {"config", sources.config},
          {"env_file", sources.env_file},
          {"env_file_may_lack", sources.env_file_may_lack},
          {"adopted", std::move(adopted)}};
}

json to_json(const Description& stack) {
  json services = json::array();
  for (const Service& one : stack.services) {
    services.push_back({{"name", one.name},
                        {"labels", one.labels},
                        {"healthcheck", one.healthcheck},
                        {"replicas", one.replicas},
                        {"gpu", to_word(one.gpu)},
                        {"gpu_capabilities", one.gpu_capabilities},
                        {"gpu_options", one.gpu_options}});
  }
  json whole{{"name", stack.name},           {"origin", to_word(stack.origin)}, {"file", stack.file},
             {"directory", stack.directory}, {"project", stack.project},        {"services", std::move(services)},
             {"extension", stack.extension}, {"resolved", stack.resolved}};
  if (stack.error) whole["error"] = to_json(*stack.error);
  return whole;
}

json to_json(const Observation& seen) {
  json containers = json::array();
  for (const Container& one : seen.containers) {
    containers.push_back({{"id", one.id},
                          {"service", one.service},
                          {"name", one.name},
                          {"labels", one.labels},
                          {"status", one.status},
                          {"health", one.health},
                          {"exit_code", one.exit_code},
                          {"pid", one.pid},
                          {"state", one.state},
                          {"ports", one.ports}});
  }
  return {{"project", seen.project}, {"containers", std::move(containers)}};
}

json to_json(const Engine& engine) {
  return {{"reachable", engine.reachable},
          {"version", engine.version},
          {"program", engine.program},
          {"why", engine.why},
          {"gpu_runtime", engine.gpu_runtime}};
}

json to_json(const Start& start) {
  return {{"name", start.name},         {"project", start.project}, {"directory", start.directory},
          {"resolved", start.resolved}, {"overlay", start.overlay}, {"timeout_ms", milliseconds(start.timeout)},
          {"recreate", start.recreate}, {"credit", start.credit},   {"interposed", start.interposed}};
}

json to_json(const Stop& stop) {
  return {{"name", stop.name},
          {"project", stop.project},
          {"directory", stop.directory},
          {"resolved", stop.resolved},
          {"timeout_ms", milliseconds(stop.timeout)}};
}

json to_json(const LogQuery& query) {
  return {{"project", query.project}, {"service", query.service}, {"tail", query.tail}, {"follow", query.follow}};
}

template <typename T>
std::optional<T> from_json(const json& object) {
  try {
    T value{};
    read(object, value);
    return value;
  } catch (const json::exception&) {
    return std::nullopt;
  }
}

template std::optional<Sources> from_json(const json&);
template std::optional<std::vector<Description>> from_json(const json&);
template std::optional<Observation> from_json(const json&);
template std::optional<Engine> from_json(const json&);
template std::optional<Start> from_json(const json&);
template std::optional<Stop> from_json(const json&);
template std::optional<LogQuery> from_json(const json&);
template std::optional<Error> from_json(const json&);
template std::optional<std::vector<std::string>> from_json(const json&);
template std::optional<std::uint64_t> from_json(const json&);

bool Lines::feed(std::string_view bytes) {
  if (begin_ > 0 && begin_ >= text_.size() / 2) {
    text_.erase(0, begin_);
    searched_ -= begin_;
    begin_ = 0;
  }
  text_.append(bytes);
  return text_.size() - begin_ <= most_message;
}

std::optional<std::string> Lines::next() {
  const auto end = text_.find('\n', searched_);
  if (end == text_.npos) {
    searched_ = text_.size();
    return std::nullopt;
  }
  std::string line = text_.substr(begin_, end - begin_);
  begin_ = searched_ = end + 1;
  return line;
}

}  // namespace sublet::compose
