// SPDX-License-Identifier: Apache-2.0
#include "compose/engine_watch.h"

#include "base/clock.h"
#include "base/log.h"
#include "compose/description.h"

#include <fmt/format.h>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <algorithm>
#include <array>

namespace sublet::compose {
namespace {

namespace asio = boost::asio;
using nlohmann::json;
constexpr auto quiet = asio::as_tuple(asio::use_awaitable);

constexpr std::chrono::milliseconds first_pause(100), longest_pause(5000), pause_after_failure(1000);
constexpr std::size_t longest_line = std::size_t{1} << 20;
constexpr const char* project_label = "com.docker.compose.project";
constexpr const char* service_label = "com.docker.compose.service";
constexpr const char* single_label = "com.docker.compose.oneoff";

std::string text_of(const json& object, const char* key) {
  if (!object.is_object()) return {};
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

std::int64_t number_of(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number_integer() ? found->get<std::int64_t>() : 0;
}

const json& part(const json& object, const char* key) {
  static const json nothing = json::object();
  if (!object.is_object()) return nothing;
  const auto found = object.find(key);
  return found != object.end() && found->is_object() ? *found : nothing;
}

std::vector<std::string> ports_of(const json& all) {
  std::vector<std::string> ports;
  for (const auto& [inside, places] : all.items()) {
    if (!places.is_array()) continue;
    for (const json& place : places)
      ports.push_back(fmt::format("{}:{}->{}", text_of(place, "HostIp"), text_of(place, "HostPort"), inside));
  }
  return ports;
}

Container container_of(const json& document) {
  const json& state = part(document, "State");
  Container container;
  container.id = text_of(document, "Id");
  container.name = text_of(document, "Name");
  if (container.name.starts_with('/')) container.name.erase(0, 1);
  for (const auto& [key, value] : part(part(document, "Config"), "Labels").items()) {
    if (value.is_string()) container.labels[key] = value.get<std::string>();
  }
  const auto service = container.labels.find(service_label);
  if (service != container.labels.end()) container.service = service->second;
  container.status = text_of(state, "Status");
  container.health = text_of(part(state, "Health"), "Status");
  if (container.health == "none") container.health.clear();
  container.exit_code = static_cast<int>(number_of(state, "ExitCode"));
  container.pid = number_of(state, "Pid");
  container.ports = ports_of(part(part(document, "NetworkSettings"), "Ports"));
  container.state = state.dump(-1, ' ', false, json::error_handler_t::replace);
  return container;
}

// Probes of a healthcheck are events too, several a minute for each container.
bool changes_something(const std::string& action) {
  constexpr std::array ignored{"exec_", "attach", "resize", "top", "copy", "export", "archive", "extract"};
  return std::none_of(ignored.begin(), ignored.end(), [&](const char* start) { return action.starts_with(start); });
}

std::string list_target(const std::string& project) {
  const json filters{{"label", json::array({fmt::format("{}={}", project_label, project)})}};
  return "/containers/json?all=1&filters=" + encode_query(filters.dump());
}

// The engine accepts the call before it begins to listen to itself. Events of the last second are told twice.
std::string events_target() {
  const json filters{{"type", json::array({"container"})}, {"label", json::array({project_label})}};
  const std::int64_t since = wall_time().ns / 1'000'000'000 - 1;
  return fmt::format("/events?since={}&filters={}", since, encode_query(filters.dump()));
}

}  // namespace

EngineWatch::EngineWatch(asio::io_context& io, std::string socket, Duration look_every)
    : io_(io), look_every_(look_every), client_(std::move(socket)), pause_(io), wake_(io) {}

void EngineWatch::start(Listeners listeners) {
  listeners_ = std::move(listeners);
  const auto end = [](const std::exception_ptr& failure) {
    if (failure) std::rethrow_exception(failure);
  };
  asio::co_spawn(
      io_, [self = shared_from_this()]() -> asio::awaitable<void> { co_await self->run(); }, end);
  asio::co_spawn(
      io_, [self = shared_from_this()]() -> asio::awaitable<void> { co_await self->refresh(); }, end);
}

void EngineWatch::stop() {
  stopped_ = true;
  listeners_ = {};
  pause_.cancel();
  wake_.cancel();
  if (stop_stream_) stop_stream_();
}

void EngineWatch::watch(const std::vector<std::string>& projects) {
  std::map<std::string, Observation> kept;
  for (const std::string& project : projects) kept[project] = std::move(known_[project]);
  known_ = std::move(kept);
  told_.clear();
  changed_ = {projects.begin(), projects.end()};
  wake_.cancel();
}

asio::awaitable<void> EngineWatch::run() {
  auto pause = first_pause;
  while (!stopped_) {
    std::string problem = co_await follow();
    if (stopped_) co_return;
    if (engine_.reachable) pause = first_pause;
    Engine away;
    away.why = std::move(problem);
    tell(std::move(away));
    pause_.expires_after(pause);
    co_await pause_.async_wait(quiet);
    pause = std::min(pause * 2, longest_pause);
  }
}

asio::awaitable<std::string> EngineWatch::follow() {
  auto version = co_await client_.negotiate();
  if (!version) co_return version.error().detail;
  const auto info = co_await client_.get("/info");
  if (!info) co_return info.error().detail;
  const bool gpu_runtime = part(info->root, "Runtimes").contains("nvidia");
  if (stopped_) co_return "stopped";
  std::string line;
  net::Reader reader;
  reader.begun = [&] { came(std::move(*version), gpu_runtime); };
  reader.piece = [&](std::string_view piece) -> asio::awaitable<bool> {
    for (std::size_t at = 0; at < piece.size();) {
      const auto end = std::min(piece.find('\n', at), piece.size());
      line.append(piece.substr(at, end - at));
      if (line.size() > longest_line) co_return false;
      if (end < piece.size()) hear(std::exchange(line, {}));
      at = end + 1;
    }
    co_return !stopped_;
  };
  const std::string target = events_target();
  const Status ended = co_await client_.stream(target, std::move(reader), &stop_stream_);
  co_return ended ? "the container engine ended its events" : ended.error().detail;
}

void EngineWatch::came(std::string version, bool gpu_runtime) {
  if (stopped_) return;
  told_.clear();
  for (const auto& [project, before] : known_) changed_.insert(project);
  Engine now;
  now.reachable = true;
  now.version = std::move(version);
  now.gpu_runtime = gpu_runtime;
  tell(std::move(now));
  wake_.cancel();
}

void EngineWatch::tell(Engine engine) {
  const bool same = was_asked_ && engine.reachable == engine_.reachable && engine.version == engine_.version &&
                    engine.gpu_runtime == engine_.gpu_runtime && engine.why == engine_.why;
  if (same) return;
  if (engine.reachable) log::info("the container engine {} is there", engine.version);
  else log::warn("{}", engine.why);
  engine_ = std::move(engine);
  was_asked_ = true;
  if (listeners_.engine) listeners_.engine(engine_);
}

void EngineWatch::hear(std::string_view line) {
  const json event = json::parse(line, nullptr, false);
  std::string action = text_of(event, "Action");
  if (action.empty()) action = text_of(event, "status");
  const std::string project = text_of(part(part(event, "Actor"), "Attributes"), project_label);
  if (!known_.contains(project) || !changes_something(action)) return;
  changed_.insert(project);
  wake_.cancel();
}

asio::awaitable<void> EngineWatch::refresh() {
  while (!stopped_) {
    if (changed_.empty() || !engine_.reachable) {
      wake_.expires_after(std::chrono::duration_cast<std::chrono::steady_clock::duration>(look_every_));
      const auto [cancelled] = co_await wake_.async_wait(quiet);
      if (cancelled || !engine_.reachable) continue;
      for (const auto& [project, before] : known_) changed_.insert(project);
      continue;
    }
    const std::string project = *changed_.begin();
    changed_.erase(changed_.begin());
    auto seen = co_await look(project);
    if (stopped_) co_return;
    const auto known = known_.find(project);
    if (known == known_.end()) continue;
    if (!seen) {
      if (engine_.reachable) log::warn("cannot look at the containers of {}: {}", project, seen.error().detail);
      changed_.insert(project);
      wake_.expires_after(pause_after_failure);
      co_await wake_.async_wait(quiet);
      continue;
    }
    if (told_.contains(project) && known->second.containers == seen->containers) continue;
    told_.insert(project);
    known->second = std::move(*seen);
    const Observation copy = known->second;  // the listener may change what is watched
    if (listeners_.observation) listeners_.observation(copy);
  }
}

asio::awaitable<Result<Observation>> EngineWatch::look(std::string project) {
  const std::string target = list_target(project);
  const auto rows = co_await client_.get(target);
  if (!rows) co_return rows.error();
  Observation seen;
  seen.project = project;
  for (const json& row : rows->root) {
    if (text_of(part(row, "Labels"), single_label) == "True") continue;
    const std::string inspect = fmt::format("/containers/{}/json", encode_query(text_of(row, "Id")));
    const auto document = co_await client_.get(inspect);
    if (!document && document.error().code == Code::NotFound) continue;  // removed in the meantime
    if (!document) co_return document.error();
    seen.containers.push_back(container_of(document->root));
  }
  std::sort(seen.containers.begin(), seen.containers.end(),
            [](const Container& a, const Container& b) { return a.name < b.name; });
  co_return seen;
}

}  // namespace sublet::compose
