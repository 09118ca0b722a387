// SPDX-License-Identifier: Apache-2.0
#include "actor.h"

#include <fmt/format.h>

#include <cstdio>

namespace sublet::sim {

using namespace std::chrono_literals;
using actor::Code;
using actor::Order;
using actor::Reply;
using actor::Verb;

SimActor::SimActor(std::shared_ptr<Life> life) : life_(std::move(life)) {}

void SimActor::start(std::function<void()> came) {
  came_ = std::move(came);
  if (!life_->world.config().actor) return;
  problem_ = "it has not come yet";
  come_in(life_->random.time(0ns, 2s));
}

void SimActor::come_in(Duration from_now) {
  later(life_, from_now, [this] {
    if (stopped_ || ready_) return;
    ready_ = true;
    ++number_;
    said_.uid = life_->world.config().actor_is_root ? 0 : 1000;
    known_.clear();
    kept_.clear();
    all_named_ = false;
    problem_.clear();
    came_();
    if (told_) told_();
  });
}

// All that it knew is lost with it; what it wrote to groups stays there.
void SimActor::lose(const char* why) {
  if (!ready_) return;
  ready_ = false;
  problem_ = why;
  for (auto& waiting : std::exchange(waiting_, {}))
    later(life_, 0ns, [done = std::move(waiting.done)] { done({.code = Code::lost}, Fd()); });
  come_in(life_->random.time(200ms, 20s));
}

void SimActor::fetch(Order order, std::span<const int>, Fetched done) {
  const std::uint64_t id = ++last_;
  waiting_.push_back({id, std::move(done)});
  if (!ready_) {
    later(life_, 0ns, [this, id] { answer(id, {.code = Code::lost}); });
    return;
  }
  const double faults = life_->faults ? life_->world.config().actor_faults : 0;
  Random& random = life_->random;
  const bool late = random.chance(faults);
  const bool refuses = random.chance(faults) && order.verb != Verb::follow && order.verb != Verb::all_named &&
                       order.flags != actor::let_swap;
  const auto ends = random.chance(faults / 3) ? std::optional(random.below(2)) : std::nullopt;
  const std::int64_t now = life_->agenda.now_ns();
  free_at_ns_ = std::max(free_at_ns_, now) + (late ? random.time(10ms, 3s) : random.time(0ns, 5ms)).count();
  later(life_, Duration(free_at_ns_ - now), [this, id, order, refuses, ends, number = number_] {
    if (!ready_ || number != number_) return answer(id, {.code = Code::lost});
    if (ends == 0) return lose("it has ended");
    const Process* process = order.verb == Verb::swap ? life_->world.process(order.main_pid) : nullptr;
    const bool stopped = process != nullptr && life_->world.ram().group(process->group).stopped;  // nothing to write
    Reply reply = refuses && !stopped ? Reply{.code = Code::failed} : obey(order);
    if (refuses && !stopped) std::snprintf(reply.path, sizeof reply.path, "the kernel does not let it");
    if (ends == 1) return lose("it has ended");
    answer(id, reply);
  });
}

void SimActor::answer(std::uint64_t id, const Reply& reply) {
  for (auto at = waiting_.begin(); at != waiting_.end(); ++at) {
    if (at->id != id) continue;
    const Fetched done = std::move(at->done);
    waiting_.erase(at);
    return done(reply, Fd());
  }
}

Reply SimActor::obey(const Order& order) {
  const LeaseId lease{order.lease};
  switch (order.verb) {
    case Verb::follow: known_.insert(lease); return {};
    case Verb::forget: known_.erase(lease), let(lease); return {};
    case Verb::signal:
      if (!known_.contains(lease)) return {.code = Code::not_followed};
      strike_(lease, order.signal);
      return {};
    case Verb::swap:
      if (order.flags == actor::let_swap) return let(lease), Reply{};
      return keep(lease, order);
    case Verb::all_named: all_named_ = true, give_back(); return {};
    default: return {};
  }
}

Reply SimActor::keep(LeaseId lease, const Order& order) {
  const Process* process = life_->world.process(order.main_pid);
  if (process == nullptr) return {.code = Code::gone};
  Ram& ram = life_->world.ram();
  Ram::Group& group = ram.group(process->group);
  Reply refused{.code = Code::failed};
  const auto why = [&refused](const char* text) {
    std::snprintf(refused.path, sizeof refused.path, "%s", text);
    return refused;
  };
  if (!group.limited) return why("no control group that it is in has a limit on swap space");
  if (group.noted) return kept_[process->group].insert(lease), Reply{};
  if (group.stopped) return {};  // not by us
  if (!life_->world.config().actor_is_root) return why("it may not write there");
  if (group.others) return why("others are in it");
  group.stopped = group.noted = true;
  kept_[process->group] = {lease};
  return {};
}

void SimActor::let(LeaseId lease) {
  for (auto& [number, by] : kept_) by.erase(lease);
  if (all_named_) give_back();
}

// Gives back all stored limits that no lease needs any more, whatever actor set them.
void SimActor::give_back() {
  Ram& ram = life_->world.ram();
  for (std::size_t number = 0; number < ram.groups(); ++number) {
    Ram::Group& group = ram.group(number);
    if (group.noted && kept_[number].empty()) group.stopped = group.noted = false;
  }
}

}  // namespace sublet::sim
