// SPDX-License-Identifier: Apache-2.0
#include "stacks/slot.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <utility>

namespace sublet::stacks {
namespace {

using nlohmann::json;

Answer refuse(std::string detail) { return {Answer::Kind::refused, std::move(detail), {}}; }

bool is_before(const Waiter& a, const Waiter& b) {
  return a.priority != b.priority ? a.priority > b.priority : a.number < b.number;
}

json time_or_null(const std::optional<Time>& time) { return time ? json(time->ns) : json(nullptr); }

std::optional<Time> read_time(const json& value) {
  if (value.is_null()) return {};
  return Time{value.get<std::int64_t>()};
}

}  // namespace

std::optional<std::size_t> Slot::place(const std::string& token) const {
  const auto found = std::ranges::find(queue_, token, &Waiter::token);
  if (token.empty() || found == queue_.end()) return {};
  return static_cast<std::size_t>(found - queue_.begin());
}

Answer Slot::acquire(const Ask& ask, std::string fresh, Duration claim_window, Time now) {
  tick(claim_window, now);
  if (holder_) return while_held(ask, std::move(fresh), now);
  const auto index = place(ask.token);
  if (!index) {
    if (!queue_.empty())
      return ask.priority ? enqueue(ask, std::move(fresh), now) : refuse("gpu busy: queued claimant pending");
    if (!ask.token.empty() && !ask.priority)
      return refuse("the lease_token is unknown or expired; acquire without lease_token for a new one");
    return hold(ask, ask.token.empty() ? std::move(fresh) : ask.token, ask.owner);
  }
  const Waiter waiter = queue_[*index];
  if (waiter.target != ask.target)
    return refuse(fmt::format("target mismatch: queued:{}; requested:{}", waiter.target, ask.target));
  if (*index > 0) return refuse(fmt::format("gpu busy: queue_index:{}", *index));
  queue_.erase(queue_.begin());
  return hold(ask, waiter.token, ask.owner.empty() ? waiter.owner : ask.owner);
}

Answer Slot::while_held(const Ask& ask, std::string fresh, Time now) {
  Holder& holder = *holder_;
  if (ask.token == holder.token) {
    if (ask.target != holder.target)
      return refuse(fmt::format("target mismatch: active:{}; requested:{}", holder.target, ask.target));
    ++changes_;
    holder.ttl = ask.ttl;
    if (holder.expires_at) holder.expires_at = stands_since_.value_or(now) + ask.ttl;
    return {Answer::Kind::refreshed, {}, holder.token};
  }
  if (const auto index = place(ask.token))
    return refuse(fmt::format("gpu busy: service:{}; queue_index:{}", holder.target, *index));
  if (!ask.priority) return refuse("gpu busy: service:" + holder.target);
  return enqueue(ask, std::move(fresh), now);
}

Answer Slot::enqueue(const Ask& ask, std::string fresh, Time now) {
  if (queue_.size() >= most_waiters)
    return refuse(fmt::format("gpu busy: the queue is full ({} callers)", most_waiters));
  ++changes_;
  Waiter waiter{ask.token.empty() ? std::move(fresh) : ask.token,
                ask.owner,
                ask.target,
                *ask.priority,
                ++entered_,
                {},
                ask.unnamed,
                now};
  const std::string token = waiter.token;
  // A head inside its claim window keeps its place.
  const auto first = queue_.begin() + (!queue_.empty() && queue_.front().claim_ends ? 1 : 0);
  queue_.insert(std::upper_bound(first, queue_.end(), waiter, is_before), std::move(waiter));
  return {Answer::Kind::queued, {}, token};
}

Answer Slot::hold(const Ask& ask, std::string token, std::string owner) {
  ++changes_;
  holder_ = Holder{token, std::move(owner), ask.target, ask.ttl, {}};
  return {Answer::Kind::start, {}, std::move(token)};
}

void Slot::begin() {
  if (holder_ && !std::exchange(holder_->begun, true)) ++changes_;
}

void Slot::take_back(const Slot& before) {
  const std::uint64_t next = changes_ + 1;
  *this = before;
  changes_ = next;
}

void Slot::forgive(Duration least, Time now) {
  const auto extend = [&](std::optional<Time>& end) {
    if (!end || *end >= now + least) return;
    end = now + least;
    ++changes_;
  };
  if (holder_ && !stands_since_) extend(holder_->expires_at);
  for (Waiter& each : queue_) extend(each.claim_ends);
}

void Slot::stand_still(Duration stood_still) {
  if (!holder_ || !holder_->expires_at) return;
  ++changes_;
  holder_->expires_at = after(*holder_->expires_at, stood_still);
}

void Slot::started(const std::string& token, Time now) {
  if (!holder_ || holder_->token != token || std::exchange(holder_->started, true)) return;
  ++changes_;
  last_target_ = holder_->target;
  last_start_ = now;
}

void Slot::ready(const std::string& token, Time now) {
  if (!holder_ || holder_->token != token || holder_->expires_at) return;
  ++changes_;
  holder_->expires_at = now + holder_->ttl;
  last_target_ = holder_->target;
}

void Slot::failed(const std::string& token, Duration claim_window, Time now) {
  if (!holder_ || holder_->token != token) return;
  ++changes_;
  holder_.reset();
  open_window(claim_window, now);
}

Status Slot::release(const std::string& token, bool force, Duration claim_window, Time now) {
  tick(claim_window, now);
  if (!holder_ && force) return {};
  if (!holder_) return Error{Code::Stale, "no active lease", "acquire one first"};
  if (!force && holder_->token != token) return Error{Code::Stale, "lease mismatch", "send the token of the acquire"};
  ++changes_;
  holder_.reset();
  open_window(claim_window, now);
  return {};
}

void Slot::name(const std::string& token) {
  const auto found = std::ranges::find(queue_, token, &Waiter::token);
  if (found != queue_.end() && std::exchange(found->unnamed, false)) ++changes_;
}

void Slot::leave(const std::string& token, Duration claim_window, Time now) {
  if (std::erase_if(queue_, [&](const Waiter& each) { return each.token == token; }) == 0) return;
  ++changes_;
  open_window(claim_window, now);
}

void Slot::leave_unnamed(Duration claim_window, Time now) {
  if (std::erase_if(queue_, [](const Waiter& each) { return each.unnamed; }) == 0) return;
  ++changes_;
  open_window(claim_window, now);
}

void Slot::open_window(Duration claim_window, Time now) {
  if (holder_ || queue_.empty() || queue_.front().claim_ends) return;
  ++changes_;
  queue_.front().claim_ends = now + claim_window;
}

Time Slot::tick(Duration claim_window, Time now) {
  if (holder_ && holder_->expires_at && *holder_->expires_at <= stands_since_.value_or(now)) {
    ++changes_;
    holder_.reset();
  }
  open_window(claim_window, now);
  while (!holder_ && !queue_.empty() && *queue_.front().claim_ends <= now) {
    ++changes_;
    queue_.erase(queue_.begin());
    open_window(claim_window, now);
  }
  if (holder_) return stands_since_ ? Time::never() : holder_->expires_at.value_or(Time::never());
  return queue_.empty() ? Time::never() : *queue_.front().claim_ends;
}

Slot Slot::taken_over(std::optional<Holder> holder, std::vector<Waiter> queue, std::string last_target,
                      Time last_start) {
  Slot slot;
  slot.holder_ = std::move(holder);
  slot.queue_ = std::move(queue);
  for (Waiter& each : slot.queue_) each.number = ++slot.entered_;
  std::ranges::stable_sort(slot.queue_, is_before);
  slot.last_target_ = std::move(last_target);
  slot.last_start_ = last_start;
  ++slot.changes_;
  return slot;
}

std::string Slot::to_json() const {
  json document{{"entered", entered_}, {"last_target", last_target_}, {"last_start", last_start_.ns}};
  document["queue"] = json::array();
  for (const Waiter& each : queue_)
    document["queue"].push_back({{"token", each.token},
                                 {"owner", each.owner},
                                 {"target", each.target},
                                 {"priority", each.priority},
                                 {"number", each.number},
                                 {"claim_ends", time_or_null(each.claim_ends)},
                                 {"unnamed", each.unnamed},
                                 {"entered_at", each.entered_at.ns}});
  if (holder_)
    document["holder"] = {{"token", holder_->token},
                          {"owner", holder_->owner},
                          {"target", holder_->target},
                          {"ttl_ns", holder_->ttl.count()},
                          {"begun", holder_->begun},
                          {"started", holder_->started},
                          {"expires_at", time_or_null(holder_->expires_at)}};
  return document.dump(-1, ' ', true);
}

Result<Slot> Slot::from_json(const std::string& text) try {
  const json document = json::parse(text);
  Slot slot;
  slot.entered_ = document.at("entered").get<std::uint64_t>();
  slot.last_target_ = document.at("last_target").get<std::string>();
  slot.last_start_ = Time{document.at("last_start").get<std::int64_t>()};
  for (const json& each : document.at("queue"))
    slot.queue_.push_back({each.at("token").get<std::string>(), each.at("owner").get<std::string>(),
                           each.at("target").get<std::string>(), each.at("priority").get<std::int64_t>(),
                           each.at("number").get<std::uint64_t>(), read_time(each.at("claim_ends")),
                           each.value("unnamed", false), Time{each.value("entered_at", std::int64_t{0})}});
  if (const auto found = document.find("holder"); found != document.end())
    slot.holder_ = Holder{found->at("token").get<std::string>(),  found->at("owner").get<std::string>(),
                          found->at("target").get<std::string>(), Duration(found->at("ttl_ns").get<std::int64_t>()),
                          read_time(found->at("expires_at")),     found->at("begun").get<bool>(),
                          found->at("started").get<bool>()};
  return slot;
} catch (const json::exception& error) {
  return unavailable(fmt::format("the stored queue of the compatible service is unreadable: {}", error.what()));
}

}  // namespace sublet::stacks
