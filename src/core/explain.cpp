// SPDX-License-Identifier: Apache-2.0
#include "core/explain.h"

#include "core/words.h"

#include <algorithm>
#include <numeric>

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

// From what the end of a lease is known, or why it is not.
enum class Basis { settling, stopping, stop_overdue, limit, limit_overdue, history, history_overdue, nothing };

struct Expected {
  Basis basis = Basis::nothing;
  Time at;  // of stopping, limit and history

  bool known() const { return basis == Basis::stopping || basis == Basis::limit || basis == Basis::history; }
};

// When a lease gives its bytes back. `start`: when its run began, or would begin.
Expected expected_end(const State& state, const Rules& rules, const Lease& lease, Time start, Time now) {
  if (lease.ended()) return {Basis::settling, {}};
  if (lease.stop_requested && lease.stop_at) {
    const Time killed = *lease.stop_at + rules.grace;
    return {killed > now ? Basis::stopping : Basis::stop_overdue, killed};
  }
  // A token's owner renews as long as it likes; for the others the time limit is one.
  if (lease.owner.kind != OwnerKind::token && lease.ttl) {
    const Time limit = lease.expires_at.value_or(start + *lease.ttl);
    return {limit > now ? Basis::limit : Basis::limit_overdue, limit};
  }
  const std::optional<Duration> run = median_run(state, lease.consumer);
  if (!run) return {};
  // What already takes longer than it used to may take for ever: no promise that it ends now.
  return {start + *run > now ? Basis::history : Basis::history_overdue, start + *run};
}

std::string expected_text(const State& state, const Lease& lease, Basis basis, Time start, Time now) {
  switch (basis) {
    case Basis::settling: return "has ended, and its bytes are not measured gone yet";
    case Basis::stopping: return "is being stopped, at the latest by force";
    case Basis::stop_overdue: return "was told to stop and still lives";
    case Basis::limit: return "ends at its time limit";
    case Basis::limit_overdue: return "is past its time limit";
    case Basis::history: return "by " + median_text(state, lease.consumer);
    case Basis::history_overdue:
      return "has run for " + format_duration(now - start) + ", longer than " + median_text(state, lease.consumer) +
             " (" + format_duration(*median_run(state, lease.consumer)) + ")";
    case Basis::nothing: break;
  }
  return "has no known end: no time limit, and no earlier run of '" + lease.consumer + "' to go by";
}

// Plays the known ends forward, with those that stand before the lease taking what they fit into, as granting
// does. `sublet queue` asks this for every waiter: what is done per end and waiter is a comparison of
// numbers, words come last.
class Forecast {
 public:
  Forecast(const State& state, const Rules& rules, const Lease& lease, Time now)
      : state_(state), rules_(rules), lease_(lease), now_(now) {}

  void fill(QueueInfo& info) {
    if (info.place > waiters_followed) {
      info.basis = "more than " + std::to_string(waiters_followed) + " wait before it";
      return;
    }
    prepare(info.place);
    std::vector<std::size_t> opened(rooms_.size());
    std::iota(opened.begin(), opened.end(), std::size_t{0});
    Time at = now_;
    auto turn = place_waiting(opened, at);
    while (!turn && !ends_.empty()) {
      at = ends_.begin()->first;
      opened.clear();
      // What ends at one moment is free at once: a lease on several devices gives all of them back together.
      for (; !ends_.empty() && ends_.begin()->first == at; ends_.erase(ends_.begin())) {
        const End& end = ends_.begin()->second;
        rooms_[end.room].free += end.bytes;
        rooms_[end.room].because.push_back(end);
        rooms_[end.room].freed_at = at;
        opened.push_back(end.room);
      }
      turn = place_waiting(opened, at);
    }
    if (!turn) {
      info.basis = why_unknown();
      return;
    }
    info.eta = at - now_;
    info.basis = basis_text(rooms_[*turn].because);
  }

 private:
  struct End {
    const Lease* lease;
    std::size_t room;
    Bytes bytes;
    Time start;
    Basis basis;
  };
  struct Place {
    const Device* device;
    Bytes free;
    std::vector<End> because = {};  // the ends that it was freed by, in order
    Time freed_at = {};
  };
  struct Waiter {
    const Lease* lease;
    const Device* wanted;  // null: any
    Bytes least;
  };

  void prepare(std::size_t place) {
    for (const auto& [uuid, device] : state_.devices())
      if (state_.known(device, rules_, now_)) rooms_.push_back({&device, state_.effective_free(device, rules_, now_)});
    for (std::size_t room = 0; room < rooms_.size(); ++room)
      for (const LeaseId id : rooms_[room].device->leases) {
        const Lease& lease = *state_.find(id);
        expect(lease, room, state_.charged(lease, rooms_[room].device->reading.uuid), started(lease));
      }
    for (const LeaseId id : state_.queue().in_order(place)) {
      const Lease& lease = *state_.find(id);
      waiting_.push_back({&lease, state_.find_device(lease.wanted_device), lease.least()});
    }
  }

  Time started(const Lease& lease) const { return lease.granted_at.value_or(now_); }

  void expect(const Lease& lease, std::size_t room, Bytes bytes, Time start) {
    const Expected end = expected_end(state_, rules_, lease, start, now_);
    if (!end.known()) return;
    ends_.insert({end.at, {&lease, room, bytes, start, end.basis}});
  }

  // Who waits and fits takes it, in order; only the opened rooms can have become wide enough. The room that decided it
  // when it was the lease's own turn.
  std::optional<std::size_t> place_waiting(const std::vector<std::size_t>& opened, Time at) {
    for (Waiter& waiter : waiting_) {
      if (waiter.lease == nullptr) continue;
      const std::vector<std::size_t> rooms = choose_rooms(waiter, opened);
      if (rooms.empty()) continue;
      if (waiter.lease->id == lease_.id) return decisive(rooms);
      Bytes taken = waiter.lease->vram;
      for (const std::size_t room : rooms) taken = std::min(taken, rooms_[room].free);
      for (const std::size_t room : rooms) {
        rooms_[room].free -= taken;
        expect(*waiter.lease, room, taken, at);
      }
      waiter.lease = nullptr;
    }
    return std::nullopt;
  }

  // As many rooms as the waiter needs, those that it leaves the least of; none if it does not fit.
  std::vector<std::size_t> choose_rooms(const Waiter& waiter, const std::vector<std::size_t>& opened) const {
    std::vector<std::size_t> fits;
    const auto consider = [&](std::size_t room) {
      if (rooms_[room].free < waiter.least) return;
      if (waiter.lease->wanted_device.empty() || waiter.wanted == rooms_[room].device) fits.push_back(room);
    };
    const auto count = static_cast<std::size_t>(waiter.lease->device_count);
    if (count == 1) {
      for (const std::size_t room : opened) consider(room);
    } else {
      for (std::size_t room = 0; room < rooms_.size(); ++room) consider(room);
    }
    if (fits.size() < count) return {};
    const Bytes whole = waiter.lease->vram;
    std::stable_sort(fits.begin(), fits.end(), [this, whole](std::size_t a, std::size_t b) {
      const Bytes left = rooms_[a].free, right = rooms_[b].free;
      if ((left >= whole) != (right >= whole)) return left >= whole;
      return left >= whole ? left < right : left > right;
    });
    fits.resize(count);
    return fits;
  }

  // The room that was freed last.
  std::size_t decisive(const std::vector<std::size_t>& rooms) const {
    std::size_t last = rooms.front();
    for (const std::size_t room : rooms)
      if (rooms_[room].freed_at >= rooms_[last].freed_at) last = room;
    return last;
  }

  std::string basis_text(const std::vector<End>& because) const {
    if (because.empty()) return "it fits now";
    const std::size_t shown = std::min<std::size_t>(because.size(), 2), rest = because.size() - shown;
    std::string text;
    for (std::size_t i = rest; i < because.size(); ++i) {
      const End& end = because[i];
      text += (text.empty() ? "" : "; ") + name_of(*end.lease) + " " +
              expected_text(state_, *end.lease, end.basis, end.start, now_);
    }
    if (rest > 0) text += "; after the ends of " + std::to_string(rest) + " more before them";
    return text;
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
      const Time start = started(holder);
      const Expected end = expected_end(state_, rules_, holder, start, now_);
      if (!end.known()) return name_of(holder) + " " + expected_text(state_, holder, end.basis, start, now_);
    }
    if (State::capacity(*nearest.device, rules_) - nearest.device->other < lease_.least())
      return "programs under no lease hold " + format_size(nearest.device->other) + " on " + name_of(*nearest.device);
    return "what stands before it in the queue has no known end";
  }

  const State& state_;
  const Rules& rules_;
  const Lease& lease_;
  const Time now_;
  std::vector<Place> rooms_;
  std::multimap<Time, End> ends_;
  std::vector<Waiter> waiting_;  // in order, the lease last; without its lease once placed
};

std::vector<std::string> help_waiting(const State& state, const Rules& rules, const Lease& lease, Time now) {
  std::vector<std::string> helps;
  const Nearest nearest = nearest_device(state, rules, lease, now);
  if (nearest.device == nullptr) {
    helps.emplace_back(
        "nothing is granted while the device is unknown: `sublet status` and `sublet doctor` say why it is");
    return helps;
  }
  const Device& device = *nearest.device;
  const Bytes lacking = lease.least() - nearest.free;
  if (device.settling >= lacking)
    helps.push_back("wait a moment: " + format_size(device.settling) + " of ended leases are being measured gone on " +
                    name_of(device));
  if (nearest.free > Bytes{})
    helps.push_back("ask for " + format_size(nearest.free) + " or less" +
                    (lease.device_count > 1 ? " on each device" : "") + ": that much is free on " + name_of(device) +
                    " now");
  for (const Holder& holder : holders_of(state, device, 3)) {
    if (holder.lease && state.find(holder.lease)->ended()) continue;
    const bool enough = holder.bytes >= lacking;
    const std::string how = holder.lease ? "; `sublet stop " + to_string(holder.lease) + "` ends it" : "";
    helps.push_back("the end of " + holder.what + " would free " + format_size(holder.bytes) +
                    (enough ? ", which is enough" : ", which is not enough alone") + how);
  }
  if (lease.device_count > 1)
    helps.push_back("fewer than " + std::to_string(lease.device_count) + " devices at once may be free sooner");
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
  info.short_bytes = std::max(lease.least() - nearest.free, Bytes{});
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
    return {"renew it within " + format_duration(std::max(*lease.expires_at - now, Duration{})) + ": `sublet renew " +
            id + "`"};
  if (lease.ended() && state.use(lease.id).settling)
    return {"its bytes are charged until a snapshot shows them gone: a process of it may still live"};
  return {};
}

}  // namespace sublet::core
