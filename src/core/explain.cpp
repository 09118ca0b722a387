// SPDX-License-Identifier: Apache-2.0
#include "core/explain.h"

#include "core/words.h"

#include <algorithm>

namespace sublet::core {
namespace {

constexpr std::size_t holders_named = 8;
// An estimate that depends on more waiters than this would be a guess, and would cost too much to make.
constexpr std::size_t waiters_followed = 200;

std::optional<Duration> median_run(const State& state, const std::string& consumer) {
  const ConsumerHistory* history = state.history(consumer);
  if (history == nullptr || history->runs.empty()) return std::nullopt;
  std::vector<Duration> runs = history->runs;
  std::nth_element(runs.begin(), runs.begin() + static_cast<std::ptrdiff_t>(runs.size() / 2), runs.end());
  return runs[runs.size() / 2];
}

std::string median_text(const State& state, const std::string& consumer) {
  const std::size_t count = state.history(consumer)->runs.size();
  return (count == 1 ? "the one earlier run" : "the median of " + std::to_string(count) + " earlier runs") + " of '" +
         consumer + "'";
}

// When a lease gives its bytes back, as far as that can be told; `text` says from what, or why not.
struct Expected {
  std::optional<Time> at;
  std::string text;
};

// `start`: when its run began, or would begin.
Expected expected_end(const State& state, const Rules& rules, const Lease& lease, Time start, Time now) {
  if (lease.ended()) return {std::nullopt, "ended, and its bytes are not measured gone yet"};
  if (lease.stop_requested && lease.stop_at) {
    const Time killed = *lease.stop_at + rules.grace;
    if (killed > now) return {killed, "is being stopped, at the latest by force"};
    return {std::nullopt, "was told to stop and still lives"};
  }
  // A token's owner renews as long as it likes; for the others the time limit is one.
  if (lease.owner.kind != OwnerKind::token && lease.ttl) {
    const Time limit = lease.expires_at.value_or(start + *lease.ttl);
    if (limit > now) return {limit, "ends at its time limit"};
    return {std::nullopt, "is past its time limit"};
  }
  const std::optional<Duration> run = median_run(state, lease.consumer);
  if (!run)
    return {std::nullopt, "has no known end: no time limit, and no earlier run of '" + lease.consumer + "' to go by"};
  if (start + *run > now) return {start + *run, "by " + median_text(state, lease.consumer)};
  return {std::nullopt, "has run for " + format_duration(now - start) + ", longer than " +
                            median_text(state, lease.consumer) + " (" + format_duration(*run) + ")"};
}

// Plays the known ends forward, with those that stand before the lease taking what they fit into, as granting does.
class Forecast {
 public:
  Forecast(const State& state, const Rules& rules, const Lease& lease, Time now)
      : state_(state), rules_(rules), lease_(lease), now_(now) {
    for (const auto& [uuid, device] : state.devices())
      if (state.known(device, rules, now)) rooms_.push_back({&device, state.effective_free(device, rules, now)});
    for (std::size_t room = 0; room < rooms_.size(); ++room)
      for (const LeaseId id : rooms_[room].device->leases) expect(*state.find(id), room, started(*state.find(id)));
    const std::size_t place = state.queue().place(lease.id);
    if (place == 0 || place > waiters_followed) return;
    for (const LeaseId id : state.queue().in_order(place)) waiting_.push_back(state.find(id));
  }

  void fill(QueueInfo& info) {
    if (waiting_.empty()) {
      info.basis = "more than " + std::to_string(waiters_followed) + " wait before it";
      return;
    }
    Time at = now_;
    while (!place_waiting(at)) {
      if (ends_.empty()) {
        info.basis = why_unknown();
        return;
      }
      at = ends_.begin()->first;
      const End end = ends_.begin()->second;
      ends_.erase(ends_.begin());
      rooms_[end.room].free += end.bytes;
      rooms_[end.room].because.push_back(end.text);
    }
    info.eta = at - now_;
    const auto& because = rooms_[chosen_].because;
    const std::size_t shown = std::min<std::size_t>(because.size(), 2);
    for (std::size_t i = because.size() - shown; i < because.size(); ++i)
      info.basis += (info.basis.empty() ? "" : "; ") + because[i];
    if (because.size() > shown)
      info.basis += "; after the ends of " + std::to_string(because.size() - shown) + " more before them";
    if (info.basis.empty()) info.basis = "it fits now";
  }

 private:
  struct Place {
    const Device* device;
    Bytes free;
    std::vector<std::string> because = {};  // the ends that it was freed by, in order
  };
  struct End {
    std::size_t room;
    Bytes bytes;
    std::string text;
  };

  Time started(const Lease& lease) const { return lease.granted_at.value_or(now_); }

  void expect(const Lease& lease, std::size_t room, Time start) {
    const Expected end = expected_end(state_, rules_, lease, start, now_);
    if (!end.at) return;
    const Bytes bytes = lease.reserves() ? state_.charged(lease) : lease.vram;
    ends_.insert({*end.at, {room, bytes, name_of(lease) + " " + end.text}});
  }

  // True when it was the lease's own turn.
  bool place_waiting(Time at) {
    for (const Lease*& waiter : waiting_) {
      if (waiter == nullptr) continue;
      std::optional<std::size_t> best;
      for (std::size_t room = 0; room < rooms_.size(); ++room) {
        const bool fits = may_use(*waiter, *rooms_[room].device) && waiter->vram <= rooms_[room].free;
        if (fits && (!best || rooms_[room].free < rooms_[*best].free)) best = room;
      }
      if (!best) continue;
      chosen_ = *best;
      if (waiter->id == lease_.id) return true;
      rooms_[*best].free -= waiter->vram;
      expect(*waiter, *best, at);
      waiter = nullptr;
    }
    return false;
  }

  std::string why_unknown() const {
    const Nearest nearest = nearest_device(state_, rules_, lease_, now_);
    if (nearest.device == nullptr) {
      for (const auto& [uuid, device] : state_.devices())
        if (may_use(lease_, device)) return unknown_text(state_, device, rules_, now_);
      return "no device was read yet";
    }
    for (const ChargedLease& entry : nearest.device->by_charge) {
      const Lease& holder = *state_.find(entry.lease);
      const Expected end = expected_end(state_, rules_, holder, started(holder), now_);
      if (!end.at) return name_of(holder) + " " + end.text;
    }
    if (State::capacity(*nearest.device, rules_) - nearest.device->other < lease_.vram)
      return "programs under no lease hold " + format_size(nearest.device->other) + " on " + name_of(*nearest.device);
    return "what stands before it in the queue has no known end";
  }

  const State& state_;
  const Rules& rules_;
  const Lease& lease_;
  const Time now_;
  std::vector<Place> rooms_;
  std::multimap<Time, End> ends_;
  std::vector<const Lease*> waiting_;  // in order, the lease last; null once placed
  std::size_t chosen_ = 0;
};

std::vector<std::string> help_waiting(const State& state, const Rules& rules, const Lease& lease, Time now) {
  std::vector<std::string> helps;
  const Nearest nearest = nearest_device(state, rules, lease, now);
  if (nearest.device == nullptr) {
    helps.push_back("nothing is granted while the device is unknown: `sublet status` and `sublet doctor` say why it is");
    return helps;
  }
  const Device& device = *nearest.device;
  const Bytes lacking = lease.vram - nearest.free;
  if (device.settling >= lacking)
    helps.push_back("wait a moment: " + format_size(device.settling) + " of ended leases are being measured gone on " +
                    name_of(device));
  if (nearest.free > Bytes{})
    helps.push_back("ask for " + format_size(nearest.free) + " or less: that much is free on " + name_of(device) +
                    " now");
  for (const Holder& holder : holders_of(state, device, 3)) {
    if (holder.lease && state.find(holder.lease)->ended()) continue;
    const bool enough = holder.bytes >= lacking;
    const std::string how = holder.lease ? "; `sublet stop " + to_string(holder.lease) + "` ends it" : "";
    helps.push_back("the end of " + holder.what + " would free " + format_size(holder.bytes) +
                    (enough ? ", which is enough" : ", which is not enough alone") + how);
  }
  if (!lease.wanted_device.empty() && state.devices().size() > 1)
    helps.push_back("any device instead of " + name_of(device) + " alone may have room sooner");
  const std::size_t place = state.queue().place(lease.id);
  if (place > 1)
    helps.push_back(std::to_string(place - 1) + " stand before it: a higher priority or tier would move it up");
  return helps;
}

}  // namespace

QueueInfo queue_info(const State& state, const Rules& rules, const Lease& lease, Time now) {
  QueueInfo info;
  info.place = state.queue().place(lease.id);
  if (info.place == 0) return info;
  const Nearest nearest = nearest_device(state, rules, lease, now);
  info.short_bytes = std::max(lease.vram - nearest.free, Bytes{});
  if (nearest.device != nullptr) {
    info.device = nearest.device->reading.uuid;
    info.holders = holders_of(state, *nearest.device, holders_named);
  }
  Forecast(state, rules, lease, now).fill(info);
  return info;
}

std::vector<std::string> what_would_help(const State& state, const Rules& rules, const Lease& lease, Time now) {
  const std::string id = to_string(lease.id);
  if (lease.state == LeaseState::queued) return help_waiting(state, rules, lease, now);
  if (lease.state == LeaseState::offered)
    return {"claim it within " + format_duration(std::max(*lease.offer_ends_at - now, Duration{})) +
            ": `sublet claim " + id + "`"};
  if (lease.state == LeaseState::active && lease.owner.kind == OwnerKind::token && lease.expires_at)
    return {"renew it within " + format_duration(std::max(*lease.expires_at - now, Duration{})) +
            ": `sublet renew " + id + "`"};
  if (lease.ended() && state.charge(lease.id).settling)
    return {"its bytes are charged until a snapshot shows them gone: a process of it may still live"};
  return {};
}

}  // namespace sublet::core
