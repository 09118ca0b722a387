// SPDX-License-Identifier: Apache-2.0
// Gives events and readings to the integrator in the order of their times, and marks what is missing. Pure: no clock,
// no I/O.
#pragma once

#include "meter/file.h"
#include "meter/integrator.h"

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sublet::meter {

class Feed {
 public:
  // Begins with the first event of a store. `patience`: the last reading holds for at most this time.
  Feed(std::string life, Ms patience) : patience_(patience), life_(std::move(life)) {}
  // Goes on where the mark was written. An error: this version cannot read it.
  static Result<Feed> resume(const Mark& mark, Ms patience);

  const std::string& life() const { return life_; }
  std::uint64_t after() const { return after_; }                    // number of the last event
  std::size_t live() const { return meter_ ? meter_->live() : 0; }  // leases that have not ended
  std::size_t unflushed() const { return meter_ ? meter_->unflushed() : 0; }
  Ms now() const { return meter_ ? meter_->now() : 0; }  // time up to which all is counted
  bool has_readings() const { return !readings_.empty(); }
  // Events are missing: caught_up() needs the leases that live.
  bool needs_living() const { return lost_.has_value(); }

  // The store was replaced: its events begin anew.
  void replace_store(std::string life);
  // There is no use from this time on, until the next reading.
  void lose_readings(Ms from, std::string why);
  // The next event of the log.
  void event(std::uint64_t number, std::string_view type, std::string_view data);
  // A reading. It is used once the events before it are known.
  void reading(Reading reading);
  // All events until now are known.
  void caught_up(Ms now, const std::vector<Living>& living = {});

  struct Flushed {
    Deltas deltas;
    Mark mark;
  };
  // All that was added since the last flush: up to the last caught_up() if no event came later, else up to the last
  // event. `last`: the daemon stops now.
  Flushed flush(bool last = false);

 private:
  struct Lost {
    Ms from = 0;
    std::string why{};
    bool forgotten = false;  // the leases are forgotten
  };
  struct Unread {
    Ms since = 0;
    std::string why{};
  };

  void reach(Ms at);
  void give(const Reading& reading);
  void follow_devices(const Reading& reading);
  void check_age(Ms at);
  void lose_events(std::string why);
  void mark_open_gaps(Ms at);

  Ms patience_ = 0;
  std::string life_;
  std::uint64_t after_ = 0;
  std::optional<Integrator> meter_{};  // unset until the first time is known
  std::deque<Reading> readings_{};     // not given yet
  std::optional<Ms> read_at_{};        // time of the last reading that holds
  std::optional<Unread> unread_{};     // use is not known
  std::map<std::string, Ms> unread_devices_{};
  std::optional<Lost> lost_{};
};

}  // namespace sublet::meter
