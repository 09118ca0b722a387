// SPDX-License-Identifier: Apache-2.0
#include "events/tool.h"

#include "base/log.h"
#include "base/text.h"
#include "engine/event_reader.h"
#include "events/http_post.h"
#include "events/redis.h"

#include <fmt/format.h>

#include <unistd.h>

#include <algorithm>
#include <array>

namespace sublet::events {

namespace asio = boost::asio;
using nlohmann::json;

namespace {

constexpr std::size_t page = 256;  // events of one step
constexpr int patience = 3;        // failures in a row, before there is a warning

Event gap_event(std::uint64_t missed, Time now) {
  return {"", "gap", {{"type", "gap"}, {"at", format_rfc3339(now)}, {"missed", missed}}, machine_name()};
}

class RedisTool final : public Tool {
 public:
  RedisTool(asio::any_io_executor executor, engine::Engine& engine, const Address& address, const Pace& pace)
      : Tool(engine, std::string(redis_name), pace, std::move(executor)), redis_(address) {}

  asio::awaitable<Sent> send(std::vector<Event> events) override {
    std::vector<std::pair<std::string, std::string>> messages;
    for (const Event& event : events) messages.emplace_back("sublet." + event.type, object_of(event));
    const Published done = co_await redis_.publish(std::move(messages), pace_.timeout);
    Sent sent;
    sent.taken = done.answered;
    sent.refused = done.refused;
    sent.problem = done.problem;
    co_return sent;
  }

 private:
  bool wants(const Event&) const override { return true; }
  bool is_told_of_gaps() const override { return true; }

  Redis redis_;
};

class WebhookTool final : public Tool {
 public:
  WebhookTool(asio::any_io_executor executor, engine::Engine& engine, const Webhook& webhook, const Pace& pace)
      : Tool(engine, webhook.name, pace, std::move(executor)), webhook_(webhook), poster_(webhook.address) {}

  asio::awaitable<Sent> send(std::vector<Event> events) override {
    Sent sent;
    for (const Event& event : events) {
      const Posted posted = co_await poster_.post(message_for(webhook_, event), pace_.timeout);
      if (posted.taken()) {
        ++sent.taken;
        continue;
      }
      sent.problem = problem_of(posted);
      sent.retry_after = posted.retry_after;
      if (!posted.passing()) ++sent.taken, ++sent.refused;
      break;
    }
    co_return sent;
  }

 private:
  bool wants(const Event& event) const override { return webhook_.filter.wants(event.type, event.data); }
  std::string problem_of(const Posted& posted) const {
    if (posted.status == 0) return posted.problem;
    const bool moved = posted.status >= 300 && posted.status < 400;
    return fmt::format("{} answers with status {}{}", webhook_.address.shown(), posted.status,
                       moved              ? "; redirects are not followed, and the event is dropped"
                       : posted.passing() ? ""
                                          : "; the event is dropped: correct the url or the secret");
  }

  Webhook webhook_;
  Poster poster_;
};

}  // namespace

// Asked once: a machine rarely gets another name.
const std::string& machine_name() {
  static const std::string name = [] {
    std::array<char, 256> text{};
    return ::gethostname(text.data(), text.size() - 1) == 0 ? printable(text.data()) : std::string();
  }();
  return name;
}

Tool::Tool(engine::Engine& engine, std::string name, const Pace& pace, asio::any_io_executor executor)
    : pace_(pace), engine_(engine), name_(std::move(name)), timer_(std::move(executor)) {}

void Tool::stop() {
  stopped_ = true;
  timer_.cancel();
}

Counts Tool::counts() const {
  Counts counts = counts_;
  counts.dropped += missed_;
  const std::uint64_t last = engine_.commits().log().last();
  counts.behind = last > after_ ? last - after_ : 0;
  return counts;
}

// A tool that is slow for a moment is no problem yet: a warning is an event, and so more to send.
void Tool::note(const Sent& sent) {
  failures_ = sent.problem.empty() ? 0 : failures_ + 1;
  wish_ = sent.retry_after;
  const std::string problem = failures_ >= patience || sent.refused > 0 ? sent.problem : "";
  if (problem == problem_ || (problem.empty() && failures_ > 0)) return;
  if (problem.empty()) log::info("events are delivered to {} again", name_);
  else log::warn("events are not delivered to {}: {}", name_, problem);
  if (problem_.empty()) since_ = engine_.now();
  problem_ = problem;
}

void Tool::repaired() {
  failures_ = 0;
  problem_.clear();
  timer_.cancel();
}

// The next events that the tool wants. `after_` moves over the unwanted ones before the first of them.
std::vector<std::pair<std::uint64_t, Event>> Tool::choose(const Logged& all) {
  std::vector<std::pair<std::uint64_t, Event>> chosen;
  for (const auto& each : all) {
    Event event{fmt::format("{}-{}", life_, each->number), each->type, json::parse(each->data, nullptr, false),
                machine_name()};
    if (event.data.is_object() && wants(event)) chosen.emplace_back(each->number, std::move(event));
    else if (chosen.empty()) after_ = each->number;
  }
  return chosen;
}

// Sends one step's events. Returns whether the next step may follow at once.
asio::awaitable<bool> Tool::step(const Logged& all) {
  if (all.front()->number > after_ + 1) {
    missed_ += all.front()->number - after_ - 1;
    after_ = all.front()->number - 1;  // counted once, also if this step fails
  }
  const auto chosen = choose(all);
  if (chosen.empty()) co_return true;
  std::vector<Event> events;
  const bool gap = missed_ > 0 && is_told_of_gaps();
  if (gap) events.push_back(gap_event(missed_, engine_.now()));
  for (const auto& [number, event] : chosen) events.push_back(event);
  const Sent sent = co_await send(std::move(events));
  if (sent.taken > 0) {
    const std::size_t own = sent.taken - (gap ? 1 : 0);
    counts_.dropped += std::exchange(missed_, 0) + sent.refused;
    counts_.sent += own - sent.refused;
    if (own > 0) after_ = own == chosen.size() ? all.back()->number : chosen[own - 1].first;
  }
  note(sent);
  co_return sent.problem.empty() || sent.taken > 0;
}

void Tool::drop_oldest() {
  const std::uint64_t newest = engine_.commits().log().last();
  if (newest - after_ <= pace_.most_behind) return;
  const std::uint64_t lost = newest - after_ - pace_.most_behind;
  missed_ += lost;
  after_ += lost;
}

asio::awaitable<void> Tool::pause(Duration wait) {
  timer_.expires_after(std::chrono::duration_cast<std::chrono::steady_clock::duration>(wait));
  co_await timer_.async_wait(net::quiet);
}

asio::awaitable<void> Tool::run(std::shared_ptr<Tool> tool, std::string life, std::uint64_t after) {
  const engine::EventLog& log = tool->engine_.commits().log();
  tool->life_ = std::move(life);
  tool->after_ = after;
  Duration wait = tool->pace_.first_retry;
  while (!tool->stopped_) {
    if (tool->life_ != log.life()) {  // another store: its events begin anew
      tool->life_ = log.life();
      tool->after_ = log.last();
    }
    if (tool->after_ >= log.last()) {
      co_await tool->engine_.commits().new_events(std::chrono::steady_clock::time_point::max());
      continue;
    }
    tool->drop_oldest();
    const auto events = co_await engine::read_events(tool->engine_, tool->after_, page);
    if (tool->stopped_) co_return;
    bool moved = false;
    Sent failed;
    try {
      if (events && !events->empty()) moved = co_await tool->step(*events);
    } catch (const std::exception& error) {  // out of memory, most likely
      failed.problem = error.what();
    }
    if (!failed.problem.empty()) tool->note(failed);
    if (moved) wait = tool->pace_.first_retry;
    if (moved && tool->failures_ == 0) continue;
    co_await tool->pause(std::max(wait, tool->wish_.value_or(Duration{})));
    wait = std::min(wait * 2, tool->pace_.last_retry);
  }
}

std::shared_ptr<Tool> redis_tool(asio::any_io_executor executor, engine::Engine& engine, const Address& address,
                                 const Pace& pace) {
  return std::make_shared<RedisTool>(std::move(executor), engine, address, pace);
}

std::shared_ptr<Tool> webhook_tool(asio::any_io_executor executor, engine::Engine& engine, const Webhook& webhook,
                                   const Pace& pace) {
  return std::make_shared<WebhookTool>(std::move(executor), engine, webhook, pace);
}

}  // namespace sublet::events
