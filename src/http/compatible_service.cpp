// SPDX-License-Identifier: Apache-2.0
#include "http/compatible_service.h"

#include "store/secret.h"

#include <fmt/format.h>
#include <boost/asio/steady_timer.hpp>

#include <algorithm>
#include <memory>

namespace sublet::http {

using compatible::detail;
using Kind = stacks::SlotAnswer::Kind;

namespace {

constexpr int status_lines = 40, failure_lines = 80;
constexpr auto log_time = std::chrono::seconds(2);  // an engine that hangs costs an answer its log lines, and no more
constexpr std::size_t longest_log = 64 * 1024;
constexpr auto first_look = std::chrono::minutes(1);  // at the Compose files, after a start of the daemon

std::string trimmed(const std::string& text) {
  const auto first = std::min(text.find_first_not_of(" \t\r\n"), text.size());
  return text.substr(first, text.find_last_not_of(" \t\r\n") + 1 - first);
}

// The service's words for what its callers know; else our own.
std::string message_of(const stacks::SlotAnswer& got, const stacks::Label& label) {
  const std::string named = fmt::format("label {}={}", label.key, label.value);
  switch (got.health.value_or(stacks::Health::starting)) {
    case stacks::Health::no_label: return "compose project must define exactly one service with " + named;
    case stacks::Health::many_labels: return "compose project has multiple services with " + named;
    case stacks::Health::no_healthcheck: return "healthcheck master is missing a Docker healthcheck: " + named;
    case stacks::Health::exited:
    case stacks::Health::unhealthy: return "";  // its state tells
    default: return got.detail;
  }
}

}  // namespace

CompatibleService::CompatibleService(boost::asio::io_context& io, engine::Engine& engine, stacks::Stacks& stacks,
                                     stacks::OneSlot& one_slot, bool is_admin)
    : io_(io), engine_(engine), stacks_(stacks), one_slot_(one_slot), is_admin_(is_admin) {}

CompatibleServer::Handler CompatibleService::handler() {
  return {.status = [this](Done done) { status(std::move(done)); },
          .acquire = [this](const std::string& body, Done done) { return acquire(body, std::move(done)); },
          .release = [this](const std::string& body, Done done) { release(body, std::move(done)); }};
}

// The containers of a stack that another user has are nobody's business here.
bool CompatibleService::may_show(const stacks::Entry& entry) const {
  const auto& holder = one_slot_.slot().holder();
  if (entry.stack.acquired())
    return holder && holder->target == entry.stack.name && store::is_secret(holder->token, entry.stack.use.token_hash);
  return !entry.stack.use.lease || entry.stack.use.uid == one_slot_.options().uid;
}

compatible::View CompatibleService::view(const std::string& target) const {
  compatible::View view;
  view.slot = &one_slot_.slot();
  for (const auto& [name, entry] : stacks_.entries())
    if (entry.found && !entry.found->file.empty()) view.stacks.push_back(&*entry.found);
  if (const stacks::Entry* entry = stacks_.find(target); entry != nullptr) {
    if (entry->found) view.target = &*entry->found;
    const bool leaves = entry->stack.phase == stacks::Phase::stopping;  // the service removes them before it answers
    if (entry->seen && !leaves && may_show(*entry)) view.containers = &*entry->seen;
  }
  view.label = stacks_.options().label.key;
  view.label_value = stacks_.options().label.value;
  view.newest = !stacks_.options().sources.config.empty();
  view.shows_tokens = is_admin_;
  view.now = engine_.now();
  return view;
}

void CompatibleService::with_logs(const std::string& target, int lines, bool of_master,
                                  std::function<void(std::string)> then) {
  const compatible::View shown = view(target);
  const compose::Container* master = compatible::master_of(shown);
  if (shown.target == nullptr || shown.containers == nullptr || shown.containers->containers.empty() ||
      (of_master && master == nullptr))
    return then("");
  struct Reading {
    explicit Reading(boost::asio::io_context& io) : timer(io, log_time) {}
    boost::asio::steady_timer timer;
    std::string text;
    std::function<void(std::string)> then;
    void end() {
      if (auto call = std::exchange(then, nullptr)) call(std::move(text));
    }
  };
  auto reading = std::make_shared<Reading>(io_);
  reading->then = std::move(then);
  const std::uint64_t number = stacks_.worker().logs(
      {.project = shown.containers->project, .service = master != nullptr ? master->service : "", .tail = lines},
      [reading](const std::string& chunk) {
        if (reading->text.size() < longest_log) reading->text += chunk;
      },
      [reading](const Status&) { reading->timer.cancel(); });
  reading->timer.async_wait([this, reading, number](const boost::system::error_code& cancelled) {
    if (!cancelled) stacks_.worker().stop_logs(number);
    reading->end();
  });
}

// The stacks are in the first answer, too.
void CompatibleService::status(Done done) {
  if (!stacks_.has_looked()) {
    stacks_.when_known(first_look, [this, done = std::move(done)] { tell_status(done); });
    return;
  }
  tell_status(std::move(done));
}

std::string CompatibleService::current_target() const {
  const auto& slot = one_slot_.slot();
  return slot.holder() ? slot.holder()->target : slot.last_target();
}

void CompatibleService::tell_status(Done done) {
  const std::string target = current_target();
  with_logs(target, status_lines, true, [this, target, done](std::string logs) {
    compatible::View shown = view(target);
    shown.logs_tail = trimmed(logs);
    Response answer{200, compatible::status_body(shown), {}, false};
    done(std::move(answer));
  });
}

std::function<void()> CompatibleService::acquire(const std::string& body, Done done) {
  const engine::Engine::Transaction transaction(engine_);
  const auto nothing = [] {};
  if (const Status may = engine_.may_decide(); !may) {
    done(detail(503, may.error().detail));
    return nothing;
  }
  auto parsed =
      compatible::parse_acquire(body, {.ttl = stacks_.options().ttl, .wait = stacks_.options().ready_timeout});
  if (auto* refused = std::get_if<Response>(&parsed)) {
    done(std::move(*refused));
    return nothing;
  }
  const auto& call = std::get<compatible::AcquireCall>(parsed);
  const std::string target = call.ask.target;
  const auto number = std::make_shared<std::uint64_t>(0);
  const auto left = std::make_shared<bool>(false);
  const auto ask = [this, call, target, done, number, left] {
    if (*left) return;
    *number = one_slot_.acquire({.ask = call.ask,
                                 .wait = call.wait,
                                 .wait_ready = call.wait_ready,
                                 .wait_turn = call.wait_turn,
                                 .wrong_ttl = call.wrong_ttl,
                                 .wrong_wait = call.wrong_wait},
                                [this, target, done](const stacks::SlotAnswer& got) { answer(got, target, done); });
  };
  // A stack that is not known may be new.
  const stacks::Entry* entry = stacks_.find(target);
  if (entry != nullptr && entry->found) ask();
  else if (!stacks_.has_looked()) stacks_.when_known(first_look, ask);
  else stacks_.refresh(std::chrono::seconds(5), ask);
  return [this, number, left] {
    *left = true;
    if (*number != 0) one_slot_.cancel(*number);
  };
}

void CompatibleService::answer(const stacks::SlotAnswer& got, const std::string& target, Done done) {
  if (got.kind == Kind::unknown_target || got.kind == Kind::invalid) return done(detail(400, got.detail));
  if (got.kind == Kind::unavailable) return done(detail(503, got.detail));
  if (got.kind == Kind::busy) {
    Response busy = detail(409, got.detail);
    busy.of_leases = true;
    return done(std::move(busy));
  }
  const bool good = got.kind == Kind::granted || got.kind == Kind::queued;
  const std::string about = got.kind == Kind::queued ? current_target() : target;
  with_logs(about, good ? status_lines : failure_lines, good, [this, got, target, about, done](std::string logs) {
    compatible::View shown = view(about);
    const auto& holder = one_slot_.slot().holder();
    if (got.kind == Kind::failed || got.kind == Kind::late) {
      const stacks::Entry* ended = stacks_.find(target);
      const bool may = ended != nullptr && may_show(*ended);
      if (may && !ended->last_lines.empty()) logs = ended->last_lines;
      const bool has_state = may && got.kind == Kind::failed && got.health;
      Response failed =
          compatible::not_ready(got.kind == Kind::late ? 504 : 500, message_of(got, stacks_.options().label),
                                trimmed(logs), has_state ? ended->last_state : "");
      failed.of_leases = true;
      return done(std::move(failed));
    }
    shown.logs_tail = trimmed(logs);
    if (got.kind == Kind::queued) return done({200, compatible::queued_body(shown, got.token), {}});
    if (holder && holder->token == got.token) return done({200, compatible::granted_body(shown, *holder), {}});
    done(detail(409, "lease mismatch"));  // it was given back while its log was read
  });
}

void CompatibleService::release(const std::string& body, Done done) {
  const engine::Engine::Transaction transaction(engine_);
  auto parsed = compatible::parse_release(body);
  if (auto* refused = std::get_if<Response>(&parsed)) return done(std::move(*refused));
  const auto& call = std::get<compatible::ReleaseCall>(parsed);
  if (call.force && !is_admin_) return done(detail(403, "force is refused: stacks.http_role is \"user\""));
  if (const Status may = engine_.may_decide(); !may) return done(detail(503, may.error().detail));
  const Status released = one_slot_.release(call.token, call.force);
  if (!released) return done(detail(released.error().code == Code::Unavailable ? 503 : 409, released.error().detail));
  status([done](Response answer) {
    answer.of_leases = true;
    done(std::move(answer));
  });
}

}  // namespace sublet::http
