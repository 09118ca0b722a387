// SPDX-License-Identifier: Apache-2.0
// A lease as the daemon describes it: the fields that clients act on.
#pragma once

#include "base/units.h"
#include "client/failure.h"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace sublet::client {

struct Holder {
  std::string lease;  // "" if it is no lease: `what` says what it is
  std::string what;
  Bytes bytes;
};

struct Place {
  int place = 0;  // 1 is next
  Bytes short_by;
  std::string device;  // "" when it waits for any
  std::vector<Holder> holders;
  std::optional<Duration> eta;  // unset: unknown
  std::string reserved_for;     // it would fit, but the room is held for this lease; "" otherwise
  std::string basis;            // of the estimate, or why there is none
};

struct Lease {
  std::string id;
  std::string state;
  std::string end_reason;  // "" while it lives
  std::string consumer;
  std::vector<std::string> devices;  // uuids
  Bytes vram;                        // on each of them
  Bytes asked_vram;                  // more than `vram` when it took less rather than wait
  Bytes used;                        // over all of them
  std::uint64_t generation = 0;
  bool stopping = false;
  Duration stop_grace = std::chrono::seconds(30);
  std::optional<int> exit_status;
  std::string exit_record;  // where the keeper leaves its note; "" if it has none
  std::string owner_kind;
  int owner_pid = 0;             // 0: none
  int keeper_pid = 0;            // 0: none
  std::optional<Bytes> resize;   // it waits for this size
  std::string pause_reason;      // why it is away: paused, on its way, or poisoned; "" while it runs
  bool resume_requested = true;  // then: by itself, when there is room
  std::optional<Place> queue;

  bool ended() const { return state == "ended"; }
  // Granted, and a program may use it (or will again when it is resumed).
  bool granted() const { return !ended() && state != "queued" && state != "offered"; }
  // Whose program is signalled: only what has a keeper was started by Sublet.
  bool has_keeper() const { return owner_kind == "process" && keeper_pid != 0; }
};

// A failure of kind `lost` if it is no lease.
Answer<Lease> parse_lease(const nlohmann::json& body);
Answer<Lease> parse_lease(const std::string& text);

// Why nothing came of its last pause, as the daemon's answer to `why` has it.
struct Undone {
  std::string why;    // "": it was paused, or nobody says
  bool begun = true;  // else nothing of its program was touched
  std::string hint;   // what can be done about it; "": nothing is known

  std::string text() const;  // "its pause was undone: …"; "" without a reason
};
Undone why_undone(const nlohmann::json& why);

}  // namespace sublet::client
