// SPDX-License-Identifier: Apache-2.0
#include "core/end_estimate.h"
#include "core/format.h"
#include "core/nominations.h"
#include "core/rank.h"
#include "core/slices.h"
#include "core/victims.h"
#include "explain/explain.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <queue>
#include <unordered_map>
#include <utility>

namespace sublet::explain {

using namespace core;

namespace {

// An estimate that depends on more waiters than this would be a guess, and would cost too much to make.
constexpr std::size_t waiters_followed = 200;
// A projected nomination for any device is sought on this many of the freest devices.
constexpr std::size_t rooms_tried = 16;
// An estimate names this many of the ends that free its memory, the last ones.
constexpr std::size_t ends_told = 2;

}  // namespace

// Plays the known ends forward. Waiters take memory as in granting: in order, small ones past a large one until that
// gets a nomination. `sublet queue` asks for every waiter, so the ends are played once, and no further than asked.
// Each end and waiter costs a comparison of numbers; texts come last.
class Forecast {
 public:
  Forecast(const State& state, const Rules& rules, Time now) : state_(state), rules_(rules), now_(now) {}

  void fill(const Lease& lease, QueueInfo& info) {
    if (info.place > waiters_followed) {
      info.basis = "more than " + std::to_string(waiters_followed) + " wait before it";
      return;
    }
    while (!starts_.contains(lease.id) && play()) {
    }
    const auto start = starts_.find(lease.id);
    if (start == starts_.end()) {
      info.basis = why_unknown(lease);
      return;
    }
    info.eta = start->second.at - now_;
    info.basis = basis_text(start->second);
  }

 private:
  struct End {
    const Lease* lease;
    std::size_t room;
    Bytes bytes;
    Time start;
    Basis basis;
  };
  struct ComingEnd {
    Time at;
    std::size_t number;  // of those at one time the first that was known comes first
    End end;
    bool operator<(const ComingEnd& other) const {
      return at != other.at ? at > other.at : number > other.number;  // the first of a heap
    }
  };
  // The start of a waiter, and the last of the ends that free its memory.
  struct Start {
    Time at;
    std::vector<End> last;
    std::size_t before = 0;  // so many more
  };
  struct Taken {
    const Lease* lease;
    Time from, until;  // until: never, if no end is known
    Bytes bytes;
  };
  struct Place {
    const Device* device;
    Bytes free;
    std::vector<End> because = {};  // the ends that it was freed by, in order
    Time freed_at = {};
    std::vector<Taken> taken = {};  // by whoever runs there, and whoever was placed there
  };
  struct Waiter {
    const Lease* lease;              // null once placed
    std::vector<std::size_t> fixed;  // devices that it has, or of which it named no more than it wants
    std::size_t count;
    Time aged_at;
    bool possible = true;
    // For a waiter that holds memory already: bytes that its own end gave back, on each device. Others may take these
    // bytes. The estimate holds if the waiter still runs then, and still has these bytes.
    std::map<std::size_t, Bytes> gave_back = {};
  };
  // Memory reserved for the first lease that has waited long.
  struct Held {
    std::size_t waiter;
    std::vector<std::size_t> rooms;
    std::optional<Time> start;
    std::map<std::size_t, Bytes> left = {};
  };

  // ------------------------------------------------------------------------------ what there is

  // Plays the next event; false: no further event is known.
  bool play() {
    std::vector<std::size_t> opened;
    if (!std::exchange(prepared_, true)) {
      prepare();
      opened.resize(rooms_.size());
      std::iota(opened.begin(), opened.end(), std::size_t{0});
      at_ = now_;
    } else {
      if (ends_.empty()) return false;
      at_ = ends_.top().at;
      // All ends of one moment free memory together: a lease on several devices gives all of them back at once.
      for (; !ends_.empty() && ends_.top().at == at_; ends_.pop()) {
        const End& end = ends_.top().end;
        Place& place = rooms_[end.room];
        place.free += end.bytes;
        if (place.because.empty() || place.because.back().lease != end.lease) place.because.push_back(end);
        place.freed_at = at_;
        opened.push_back(end.room);
        if (const auto own = in_place_.find(end.lease); own != in_place_.end())
          waiting_[own->second].gave_back[end.room] += end.bytes;
      }
    }
    place_waiting(opened);
    return true;
  }

  void prepare() {
    std::unordered_map<std::string_view, std::size_t> index;
    rooms_.reserve(state_.devices.by_uuid.size());
    for (const auto& [uuid, device] : state_.devices.by_uuid) {
      if (!may_grant_on(state_, device, rules_, now_)) continue;
      index.emplace(uuid, rooms_.size());
      rooms_.push_back({&device, free_on(state_, device, rules_, now_)});
    }
    for (std::size_t room = 0; room < rooms_.size(); ++room)
      for (const auto& [charged, id] : rooms_[room].device->by_charge) {
        const Lease& lease = *find(state_, id);
        expect(lease, room, charged, lease.granted_at.value_or(now_), lease.runs_since(now_), !lease.parked());
      }
    for (const LeaseId id : state_.queue.in_order(waiters_followed)) {
      const Lease& lease = *find(state_, id);
      Waiter waiter{
          &lease, {}, static_cast<std::size_t>(lease.device_count), lease.waits_since() + rules_.reserve_after};
      for (const std::string& uuid : lease.certain_devices()) {
        const auto room = index.find(uuid);
        waiter.possible &= room != index.end();
        if (room != index.end()) waiter.fixed.push_back(room->second);
      }
      if (lease.waits_in_place()) in_place_.emplace(&lease, waiting_.size());
      waiting_.push_back(std::move(waiter));
    }
  }

  // `given`: when it got the bytes. `start`: since when it runs, without its pauses. `runs`: it is active and not
  // parked.
  void expect(const Lease& lease, std::size_t room, Bytes bytes, Time given, Time start, bool runs) {
    const Expected end = expected_end(state_, rules_, lease, start, now_);
    const bool known = end.known() && (runs || end.basis == Basis::stopping);
    rooms_[room].taken.push_back({&lease, given, known ? end.at : Time::never(), bytes});
    if (known) ends_.push({end.at, ends_known_++, {&lease, room, bytes, start, end.basis}});
  }

  Bytes need(const Lease& lease, std::size_t room) const {
    return need_on(state_, lease, rooms_[room].device->reading.uuid);
  }

  // ------------------------------------------------------------------------------ placing waiters

  // Waiters that fit take memory in order; only the opened devices can have enough free memory.
  void place_waiting(const std::vector<std::size_t>& opened) {
    hold_room();
    for (std::size_t i = 0; i < waiting_.size(); ++i) {
      Waiter& waiter = waiting_[i];
      if (waiter.lease == nullptr || !waiter.possible) continue;
      const std::vector<std::size_t> rooms = choose_rooms(i, opened);
      if (rooms.empty()) continue;
      note_start(*waiter.lease, rooms_[decisive(rooms)].because);
      if (waiter.gave_back.empty()) take(*waiter.lease, i, rooms);
      in_place_.erase(waiter.lease);
      waiter.lease = nullptr;
      hold_room();
    }
  }

  // A waiter does not wait for its own end.
  void note_start(const Lease& lease, const std::vector<End>& because) {
    Start& start = starts_[lease.id];
    start.at = at_;
    for (auto end = because.rbegin(); end != because.rend(); ++end) {
      if (end->lease == &lease) continue;
      if (start.last.size() < ends_told) start.last.insert(start.last.begin(), *end);
      else ++start.before;
    }
  }

  void take(const Lease& lease, std::size_t waiter, const std::vector<std::size_t>& rooms) {
    Bytes share = lease.vram;
    for (const std::size_t room : rooms) share = std::min(share, allowance(waiter, room));
    for (const std::size_t room : rooms) {
      const Bytes bytes = lease.waits_in_place() ? need(lease, room) : share;
      rooms_[room].free -= bytes;
      if (lease.parked()) {  // what it kept there ends with the rest
        std::erase_if(rooms_[room].taken, [&lease](const Taken& taken) { return taken.lease == &lease; });
        expect(lease, room, charged_on(state_, lease, rooms_[room].device->reading.uuid),
               lease.granted_at.value_or(now_), lease.runs_since(at_), true);
      }
      expect(lease, room, bytes, at_, lease.runs_since(at_), true);
    }
  }

  // As many devices as the waiter needs, with the least left over; empty if it does not fit.
  std::vector<std::size_t> choose_rooms(std::size_t index, const std::vector<std::size_t>& opened) const {
    const Waiter& waiter = waiting_[index];
    const auto fits = [&](std::size_t room) {
      return may_use(*waiter.lease, rooms_[room].device->reading.uuid) &&
             allowance(index, room) >= need(*waiter.lease, room);
    };
    if (!waiter.fixed.empty())
      return std::all_of(waiter.fixed.begin(), waiter.fixed.end(), fits) ? waiter.fixed : std::vector<std::size_t>();
    std::vector<std::size_t> found;
    if (waiter.count == 1) {
      std::copy_if(opened.begin(), opened.end(), std::back_inserter(found), fits);
    } else if (std::any_of(opened.begin(), opened.end(), fits)) {
      for (std::size_t room = 0; room < rooms_.size(); ++room)
        if (fits(room)) found.push_back(room);
    }
    if (found.size() < waiter.count) return {};
    const Bytes whole = waiter.lease->vram;
    std::stable_sort(found.begin(), found.end(), [&](std::size_t a, std::size_t b) {
      const Bytes left = allowance(index, a), right = allowance(index, b);
      if ((left >= whole) != (right >= whole)) return left >= whole;
      return left >= whole ? left < right : left > right;
    });
    found.resize(waiter.count);
    return found;
  }

  // The device that was freed last.
  std::size_t decisive(const std::vector<std::size_t>& rooms) const {
    std::size_t last = rooms.front();
    for (const std::size_t room : rooms)
      if (rooms_[room].freed_at >= rooms_[last].freed_at) last = room;
    return last;
  }

  // ------------------------------------------------------------------------------ nominations

  void hold_room() {
    if (rules_.reserve_after <= Duration{}) return;
    const auto head = std::find_if(waiting_.begin(), waiting_.end(), [this](const Waiter& waiter) {
      return waiter.lease != nullptr && waiter.possible && waiter.gave_back.empty() && waiter.aged_at <= at_;
    });
    if (head == waiting_.end()) {
      held_.reset();
      return;
    }
    const auto index = static_cast<std::size_t>(head - waiting_.begin());
    if (!held_ || held_->waiter != index) held_ = Held{index, rooms_to_hold(*head), at_};
    held_->start = at_;
    for (const std::size_t room : held_->rooms) {
      const auto start = could_start(*head->lease, room);
      if (!start || !held_->start) held_->start.reset();
      else held_->start = std::max(*held_->start, *start);
    }
    for (const std::size_t room : held_->rooms) held_->left[room] = left_over(*head, room);
  }

  std::vector<std::size_t> rooms_to_hold(const Waiter& waiter) const {
    if (!waiter.fixed.empty()) return waiter.fixed;
    std::vector<std::size_t> rooms;
    for (const Nomination& held : state_.nominations)
      for (std::size_t room = 0; held.waiter == waiter.lease->id && room < rooms_.size(); ++room)
        if (std::find(held.devices.begin(), held.devices.end(), rooms_[room].device->reading.uuid) !=
            held.devices.end())
          rooms.push_back(room);
    if (rooms.size() == waiter.count) return rooms;
    rooms.resize(rooms_.size());
    std::iota(rooms.begin(), rooms.end(), std::size_t{0});
    std::erase_if(rooms, [&](std::size_t room) { return !may_use(*waiter.lease, rooms_[room].device->reading.uuid); });
    std::stable_sort(rooms.begin(), rooms.end(),
                     [this](std::size_t a, std::size_t b) { return rooms_[a].free > rooms_[b].free; });
    rooms.resize(std::min(rooms.size(), waiter.count + rooms_tried));
    std::vector<std::pair<Time, std::size_t>> starts;
    starts.reserve(rooms.size());
    for (const std::size_t room : rooms)
      starts.emplace_back(could_start(*waiter.lease, room).value_or(Time::never()), room);
    std::stable_sort(starts.begin(), starts.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    rooms.clear();
    for (std::size_t i = 0; i < std::min(starts.size(), waiter.count); ++i) rooms.push_back(starts[i].second);
    return rooms;
  }

  std::optional<Time> could_start(const Lease& lease, std::size_t room) const {
    Bytes free = rooms_[room].free;
    const Bytes wanted = need(lease, room);
    if (free >= wanted) return at_;
    std::vector<std::pair<Time, Bytes>> ends;
    for (const Taken& taken : rooms_[room].taken)
      if (taken.lease != &lease && taken.until > at_ && taken.until != Time::never())
        ends.emplace_back(taken.until, taken.bytes);
    std::sort(ends.begin(), ends.end());
    for (const auto& [end, bytes] : ends)
      if ((free += bytes) >= wanted) return end;
    return std::nullopt;
  }

  Bytes left_over(const Waiter& head, std::size_t room) const {
    const Place& place = rooms_[room];
    const Bytes wanted = need(*head.lease, room);
    if (held_->start) {
      Bytes free = place.free;
      for (const Taken& taken : place.taken)
        if (taken.lease != head.lease && taken.until > at_ && taken.until <= *held_->start) free += taken.bytes;
      return free - wanted;
    }
    Bytes left = capacity_of(*place.device, rules_) - place.device->other - wanted;
    if (head.lease->waits_in_place()) left -= charged_on(state_, *head.lease, place.device->reading.uuid);
    for (const Taken& taken : place.taken)
      if (taken.until > at_ && taken.from > head.aged_at) left -= taken.bytes;
    return left;
  }

  Bytes allowance(std::size_t index, std::size_t room) const {
    Bytes free = rooms_[room].free;
    const auto own = waiting_[index].gave_back.find(room);
    if (own != waiting_[index].gave_back.end()) free -= own->second;
    if (!held_ || index <= held_->waiter) return free;
    const auto left = held_->left.find(room);
    if (left == held_->left.end()) return free;
    const Lease& lease = *waiting_[index].lease;
    const Expected end = expected_end(state_, rules_, lease, lease.runs_since(at_), now_);
    if (held_->start && end.known() && end.at <= *held_->start) return free;
    return std::min(free, left->second);
  }

  // ------------------------------------------------------------------------------ words

  std::string basis_text(const Start& begins) const {
    if (begins.last.empty()) return "it fits now";
    std::string text;
    for (const End& end : begins.last) {
      text += (text.empty() ? "" : "; ") + name_of(*end.lease) + " " +
              expected_text(state_, *end.lease, end.basis, end.start, now_);
    }
    if (begins.before > 0) text += "; after the ends of " + std::to_string(begins.before) + " more before them";
    return text;
  }

  std::string why_unknown(const Lease& waiter) const {
    const Nearest nearest = nearest_device(state_, rules_, waiter, now_);
    if (nearest.device == nullptr) {
      if (std::string closed = out_of_service_text(state_, rules_, waiter); !closed.empty()) return closed;
      for (const auto& [uuid, device] : state_.devices.by_uuid)
        if (may_use(waiter, uuid)) return unknown_text(state_, device, rules_, now_);
      return "no device was read yet";
    }
    if (std::string slice = after_a_slice(waiter, *nearest.device); !slice.empty()) return slice;
    if (std::string open = without_end(waiter, *nearest.device); !open.empty()) return open;
    const Bytes whole = waiter.waits_in_place() ? waiter.wanted_vram() : waiter.least();
    if (capacity_of(*nearest.device, rules_) - nearest.device->other < whole)
      return "programs without a lease hold " + format_size(nearest.device->other) + " on " + name_of(*nearest.device);
    if (waiter.device_count > 1)
      for (const auto& [uuid, device] : state_.devices.by_uuid)
        if (std::string open = may_use(waiter, uuid) ? without_end(waiter, device) : ""; !open.empty()) return open;
    return state_.queue.place(waiter.id) > 1 ? "the leases before it in the queue have no known end"
                                             : "the known ends of other leases do not free enough";
  }

  // Only the next time slice is announced. A waiter that enters with a later slice is told at least so much. "": it has
  // no time slice there.
  std::string after_a_slice(const Lease& waiter, const Device& device) const {
    const auto slice = state_.preemption.slices.find(device.reading.uuid);
    if (slice == state_.preemption.slices.end() || slice->second.enters.empty()) return {};
    const Lease& next = *find(state_, slice->second.enters.front());
    const bool here = may_use(waiter, device.reading.uuid);
    const bool takes_slices = ranks_like(next, waiter) && devices_wanted(waiter) == 1 && here;
    if (next.id == waiter.id || !takes_slices || !may_ask(state_, rules_, waiter)) return {};
    Bytes room = free_on(state_, device, rules_, now_);  // once all of those have left who take turns there
    for (const LeaseId id : device.leases)
      if (const Lease& lease = *find(state_, id);
          ranks_like(lease, waiter) && may_leave(state_, rules_, waiter, lease, now_))
        room += charged_on(state_, lease, device.reading.uuid);
    if (room < need_on(state_, waiter, device.reading.uuid)) return {};
    return "its own time slice on " + name_of(device) + " comes after that of " + name_of(next) +
           ", which begins in about " + format_duration(std::max(slice->second.at - now_, Duration{}));
  }

  // The first other lease there whose end is unknown, and why; "": there is none.
  std::string without_end(const Lease& waiter, const Device& device) const {
    for (const ChargedLease& entry : device.by_charge) {
      if (entry.lease == waiter.id) continue;
      const Lease& holder = *find(state_, entry.lease);
      const Time start = holder.runs_since(now_);
      const Expected end = expected_end(state_, rules_, holder, start, now_);
      if (!end.known()) return name_of(holder) + " " + expected_text(state_, holder, end.basis, start, now_);
    }
    return {};
  }

  const State& state_;
  const Rules& rules_;
  const Time now_;
  Time at_;  // the time up to which ends were played
  std::vector<Place> rooms_;
  bool prepared_ = false;
  std::priority_queue<ComingEnd> ends_;
  std::size_t ends_known_ = 0;
  std::vector<Waiter> waiting_;                             // in order
  std::unordered_map<const Lease*, std::size_t> in_place_;  // of those that hold some already: where in that
  std::optional<Held> held_;
  std::unordered_map<LeaseId, Start> starts_;
};

Foretold::Foretold(const State& state, const Rules& rules, Time now) : state_(state), rules_(rules), now_(now) {}
Foretold::~Foretold() = default;

void Foretold::estimate_start(const Lease& lease, QueueInfo& info) {
  if (forecast_ == nullptr) forecast_ = std::make_unique<Forecast>(state_, rules_, now_);
  forecast_->fill(lease, info);
}

}  // namespace sublet::explain
