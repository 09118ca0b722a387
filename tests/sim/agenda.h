// SPDX-License-Identifier: Apache-2.0
// Future events and their times, on the simulated CLOCK_MONOTONIC. Two events of one moment happen in the order in
// which they were entered.
#pragma once

#include "base/units.h"

#include <cstdint>
#include <functional>
#include <map>
#include <utility>

namespace sublet::sim {

class Agenda {
 public:
  using Id = std::pair<std::int64_t, std::uint64_t>;  // the time and a unique number; {}: none

  std::int64_t now_ns() const { return now_ns_; }
  Id in(Duration from_now, std::function<void()> what) {
    const Id id{now_ns_ + from_now.count(), ++last_};
    entries_.emplace(id, std::move(what));
    return id;
  }
  void cancel(Id id) { entries_.erase(id); }

  std::int64_t next_ns() const { return entries_.empty() ? INT64_MAX : entries_.begin()->first.first; }
  // Moves time to the next entry, unless that is due already, and runs the entry.
  bool happen() {
    if (entries_.empty()) return false;
    const auto entry = entries_.extract(entries_.begin());
    if (entry.key().first > now_ns_) now_ns_ = entry.key().first;
    entry.mapped()();
    return true;
  }
  // Moves time without running any entry, not even a due one.
  void stand_still(Duration d) { now_ns_ += d.count(); }
  // The machine sleeps: this clock stands still, and the wall clock goes on.
  void sleep(Duration d) { slept_ += d, ++now_ns_; }
  Duration slept() const { return slept_; }

 private:
  std::int64_t now_ns_ = 1'000'000'000'000;
  Duration slept_{};
  std::uint64_t last_ = 0;
  std::map<Id, std::function<void()>> entries_;
};

}  // namespace sublet::sim
