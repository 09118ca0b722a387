// SPDX-License-Identifier: Apache-2.0
#include "events/outlets.h"

#include "base/text.h"

#include <fmt/format.h>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>

#include <algorithm>

namespace sublet::events {

namespace asio = boost::asio;

namespace {

asio::awaitable<void> send_test(std::shared_ptr<Tool> tool, Time now, std::function<void(std::string)> done) {
  Sent sent;
  try {
    std::vector<Event> events{
        {"test",
         "test",
         {{"type", "test"}, {"at", format_rfc3339(now)}, {"text", "a test, sent by sublet events"}},
         machine_name()}};
    sent = co_await tool->send(std::move(events));
  } catch (const std::exception& error) {  // out of memory, most likely
    sent.problem = error.what();
  }
  done(sent.problem);
}

}  // namespace

Outlets::Outlets(asio::io_context& io, engine::Engine& engine, Options options)
    : io_(io), engine_(engine), options_(std::move(options)) {
  if (options_.redis) tools_.push_back(make(std::string(redis_name)));
  for (const Webhook& webhook : options_.webhooks) tools_.push_back(make(webhook.name));
}

Outlets::~Outlets() {
  for (const auto& tool : tools_) tool->stop();
}

std::shared_ptr<Tool> Outlets::make(const std::string& name) {
  if (options_.redis && name == redis_name)
    return redis_tool(io_.get_executor(), engine_, *options_.redis, options_.pace);
  return webhook_tool(io_.get_executor(), engine_, *std::ranges::find(options_.webhooks, name, &Webhook::name),
                      options_.pace);
}

// The first events to send are those of the start itself.
void Outlets::loaded(const store::Loaded& rows, Time) {
  if (std::exchange(started_, true)) return;
  for (const auto& tool : tools_)
    asio::co_spawn(io_, Tool::run(tool, engine_.commits().log().life(), rows.last_event), asio::detached);
}

Status Outlets::has(const std::string& name) const {
  std::vector<std::string> names;
  for (const auto& tool : tools_) names.push_back(tool->name());
  if (std::ranges::count(names, name) > 0) return {};
  return not_found(fmt::format("there is no target '{}' for events", printable(name)),
                   names.empty() ? "set events.redis or [[events.webhook]] in the configuration"
                                 : fmt::format("the targets are: {}", fmt::join(names, ", ")));
}

// By a tool of its own, so that the test waits for no other event.
void Outlets::test(const std::string& name, std::function<void(std::string)> done) {
  const auto tool = *std::ranges::find(tools_, name, [](const auto& each) { return each->name(); });
  const auto told = [tool, done = std::move(done)](const std::string& problem) {
    if (problem.empty()) tool->repaired();
    done(problem);
  };
  asio::co_spawn(io_, send_test(make(name), engine_.now(), told), asio::detached);
}

std::map<std::string, Counts> Outlets::counts() const {
  std::map<std::string, Counts> all;
  for (const auto& tool : tools_) all[tool->name()] = tool->counts();
  return all;
}

// Without figures: a text that changes would be a new warning, and so an event, each time.
std::vector<engine::Warning> Outlets::warnings(Time) const {
  std::vector<engine::Warning> all;
  for (const auto& tool : tools_) {
    if (tool->problem().empty()) continue;
    all.push_back({"events-target", fmt::format("events are not delivered to {}: {}", tool->name(), tool->problem()),
                   fmt::format("`sublet events --test-target {}` tries the target now", tool->name()),
                   tool->problem_since()});
  }
  return all;
}

}  // namespace sublet::events
