// SPDX-License-Identifier: Apache-2.0
// The rules of the compatible service: one slot for all stacks, and its own queue. Pure: a value with functions that
// take the time. The queue is ordered by priority, then by time of entry; nothing ages. Times are exact here and whole
// seconds in answers.
#pragma once

#include "base/error.h"
#include "base/units.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace sublet::stacks {

// A caller in the slot's queue.
struct Waiter {
  std::string token;   // proves who it is; made here or by the caller
  std::string owner;   // free text
  std::string target;  // name of the stack
  std::int64_t priority = 0;
  std::uint64_t number = 0;        // order of entry
  std::optional<Time> claim_ends;  // set for the head while the slot is free
  bool unnamed = false;            // only the open call of the caller knows the token: it ends with the call
  Time entered_at{};
  bool operator==(const Waiter&) const = default;
};

// The holder of the slot.
struct Holder {
  std::string token;
  std::string owner;
  std::string target;
  Duration ttl{};
  std::optional<Time> expires_at;  // unset until the stack is ready: the time to live counts from then
  bool begun = false;              // a lease was asked for, or a released stack was taken over
  bool started = false;            // its stack was started for it
  bool operator==(const Holder&) const = default;
};

struct Ask {
  std::string target;
  std::string owner;
  std::string token;  // "": none
  Duration ttl{};
  std::optional<std::int64_t> priority;
  bool unnamed = false;  // see Waiter
};

// The answer to an acquire.
struct Answer {
  enum class Kind {
    refused,    // 409 with `detail`
    refreshed,  // the caller holds the slot; its time to live began again
    queued,     // the caller waits with `token`
    start,      // the caller holds the slot with `token`; its stack must be started
  };
  Kind kind = Kind::refused;
  std::string detail{};
  std::string token{};
};

class Slot {
 public:
  static constexpr std::size_t most_waiters = 1000;

  // --- reading ---
  const std::optional<Holder>& holder() const { return holder_; }
  const std::vector<Waiter>& queue() const { return queue_; }  // in order
  std::optional<std::size_t> place(const std::string& token) const;
  // Name of the stack that was started last, and when; "": none was.
  const std::string& last_target() const { return last_target_; }
  Time last_start() const { return last_start_; }

  bool is_begun() const { return holder_ && holder_->begun; }
  std::uint64_t changes() const { return changes_; }  // grows with each change

  // --- changes ---
  // `fresh` is the token that a new holder or waiter gets, unless the waiter sent one of its own.
  Answer acquire(const Ask& ask, std::string fresh, Duration claim_window, Time now);
  // A lease for the holder's stack was asked for.
  void begin();
  // The stack of the holder with this token was started, or is ready. Nothing happens for another token.
  void started(const std::string& token, Time now);
  void ready(const std::string& token, Time now);
  // The start of this holder failed: the slot is free. The queue stays.
  void failed(const std::string& token, Duration claim_window, Time now);
  // Gives the slot back. With `force`, the token does not matter, and an empty slot is no error. An error has the code
  // Stale and the words of the service.
  Status release(const std::string& token, bool force, Duration claim_window, Time now);
  // The caller of a waiter was told its token.
  void name(const std::string& token);
  // A waiter leaves the queue. Nothing happens for another token.
  void leave(const std::string& token, Duration claim_window, Time now);
  // Waiters leave whose calls ended with the daemon.
  void leave_unnamed(Duration claim_window, Time now);
  // Ends what is over: the holder's time to live, and claim windows. Returns when to be called next.
  Time tick(Duration claim_window, Time now);

  // Takes the changes since this copy back. changes() grows all the same.
  void take_back(const Slot& before);
  // The daemon did not run: times to live and windows last at least this long.
  void forgive(Duration least, Time now);

  // The holder's time to live stands still since this time, while its stack is parked. Not stored.
  void stand_since(std::optional<Time> since) { stands_since_ = since; }
  bool stands_still() const { return stands_since_.has_value(); }
  // Its time to live did not count for this long.
  void stand_still(Duration stood_still);

  // A slot with what another service had; the queue in its order.
  static Slot taken_over(std::optional<Holder> holder, std::vector<Waiter> queue, std::string last_target,
                         Time last_start);

  // --- storing ---
  std::string to_json() const;
  // An unreadable document gives an error, and never an empty slot.
  static Result<Slot> from_json(const std::string& text);

 private:
  void open_window(Duration claim_window, Time now);
  Answer while_held(const Ask& ask, std::string fresh, Time now);
  Answer enqueue(const Ask& ask, std::string fresh, Time now);
  Answer hold(const Ask& ask, std::string token, std::string owner);

  std::optional<Holder> holder_;
  std::vector<Waiter> queue_;
  std::uint64_t entered_ = 0;  // number of the newest waiter
  std::uint64_t changes_ = 0;
  std::string last_target_;
  Time last_start_{};
  std::optional<Time> stands_since_;
};

}  // namespace sublet::stacks
