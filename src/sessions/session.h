// SPDX-License-Identifier: Apache-2.0
// A session as a value: what its user asked for (request), and where it stands (progress). Plain data.
#pragma once

#include "base/error.h"
#include "base/ids.h"
#include "base/units.h"
#include "store/store.h"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sublet::sessions {

// starting: a keeper was ordered and has not asked for its lease yet. queued: its lease waits for memory. active: it
// has its memory. resting: its program uses no GPU and runs on, and its memory is given back. paused: its lease is
// paused, and comes back. ending: its end is in progress. parked: it has ended, and its program is kept in host memory.
// closed: nothing of it is left but its record.
enum class State { starting, queued, active, resting, paused, ending, parked, closed };

// Why a session has ended. exited: its program did. failed: its program or its lease did not start. lost: its program
// or its lease is gone, and nobody knows why.
enum class End { none, idle, expired, closed, revoked, exited, failed, lost, over_limit };

// The part of an end that is in progress. parking: its lease is being paused. resuming: its lease comes back for its
// checkpoint. checkpoint: its checkpoint command runs. releasing: its lease is being released.
enum class Step { none, parking, resuming, checkpoint, releasing };

std::string_view to_string(State state);
std::string_view to_string(End end);
std::string_view to_string(Step step);
std::optional<State> parse_state(std::string_view text);

// A command of a user, with its surroundings.
struct Command {
  std::vector<std::string> arguments{};    // empty: there is none
  std::vector<std::string> environment{};  // "NAME=value"; for the owner's eyes only
  std::string directory{};
  int umask = 022;
  nlohmann::json limits = nlohmann::json::array();  // {"resource", "soft", "hard"}, as of getrlimit(2)
  std::string text{};                               // the command line as text
};

struct Request {
  nlohmann::json lease = nlohmann::json::object();  // body of POST /v1/leases, without owner, tag and ttl
  std::string tag{};                                // of its leases; "": the id of the session
  std::string tenant{};                             // of its newest lease, or as its user asked
  bool exclusive = false;                           // its lease takes whole devices
  Duration ttl{};                                   // without activity for this time, it ends
  Command command{};                                // no arguments: its user attaches processes
  std::vector<std::string> checkpoint{};            // arguments of the checkpoint command; empty: none
  Duration checkpoint_every{};                      // 0: only on request and at its end
  Duration checkpoint_timeout{};

  // Fields of `lease`. A field that is missing or of another type has the value of `fallback`.
  std::string text(std::string_view field, std::string_view fallback = "") const;
  std::int64_t number(std::string_view field, std::int64_t fallback = 0) const;
};

// The newest checkpoint that succeeded, and the newest run of the command.
struct Checkpoint {
  std::string locator{};     // last line of the command's output; may be ""
  Time at{};                 // when it succeeded; Time{}: none has
  std::string problem{};     // why the newest run failed; "": it did not
  std::uint64_t number = 0;  // of the newest run
  bool running = false;
  Time started{};                       // of the newest run
  std::optional<std::int64_t> bytes{};  // of the file or directory that the locator names; unset: not known
  bool operator==(const Checkpoint&) const = default;
};

struct Progress {
  State state = State::starting;
  Time since{};
  std::string why{};        // in the words of Sublet, for everybody; "": nothing to explain
  std::string detail{};     // more, with words of its programs: for its owner and admins; "": nothing
  std::uint64_t start = 0;  // number of the newest start; each has a lease of its own
  LeaseId lease{};          // of the newest start that asked for one
  Time renewed_at{};        // when its time to live began: the grant, the return or the last renewal
  Time last_activity{};
  Time continuous_since{};           // active without a break since then
  Bytes wanted{};                    // size of its lease on each device before it rested; 0: it has not given it back
  std::optional<Time> kept_until{};  // parked: when it is closed
  Checkpoint checkpoint{};
  std::optional<int> exit_status{};

  // The end; valid while it is ending, parked or closed.
  End end = End::none;
  Step step = Step::none;
  bool park = true;               // its program may be parked
  bool parking_tried = false;     // its program could not be parked
  bool checkpoint_tried = false;  // its checkpoint command has run for this end
  int failures = 0;               // failed checkpoints at its end
  std::uint32_t ended_by = 0;     // user who requested the end; valid if `on_request`
  bool on_request = false;
  bool saves_or_stays = false;  // its program is not ended before its work is saved: the end is cancelled instead
};

struct Session {
  std::uint64_t number = 0;  // unique and never used again; names its log
  std::uint32_t uid = 0;
  std::string user{};
  Time created_at{};
  Request request{};
  Progress progress{};

  std::string id() const;   // "session-7"
  std::string tag() const;  // of its leases
  std::string why() const;  // with the detail
  bool has_command() const { return !request.command.arguments.empty(); }
  bool is_closed() const { return progress.state == State::closed; }
  // It has ended, or its end is in progress.
  bool has_ended() const {
    return progress.state == State::ending || progress.state == State::parked || progress.state == State::closed;
  }
};

// Returns the number of "session-7"; nothing for other texts.
std::optional<std::uint64_t> parse_id(std::string_view text);

inline constexpr std::string_view row_kind = "session";
store::CapabilityRow to_row(const Session& session);
// An error names the field that an earlier or later version wrote differently.
Result<Session> from_row(const store::CapabilityRow& row);

}  // namespace sublet::sessions
