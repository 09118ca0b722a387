// SPDX-License-Identifier: Apache-2.0
// A lease as the daemon describes it, with the fields that clients use.
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
  std::string lease;  // "" if the holder is no lease; then see `what`
  std::string what;
  Bytes bytes;
};

struct Place {
  int place = 0;           // place in the queue; 1 is next
  bool held_back = false;  // its owner holds the lease back, and the place is kept
  Bytes short_by;
  std::string device;  // "" if the lease waits for any device
  Bytes free;          // bytes that can still be leased on that device
  Bytes unleased;      // bytes without a lease on that device
  std::vector<Holder> holders;
  std::optional<Duration> eta;  // time until the grant; unset: unknown
  std::string reserved_for;     // the lease would fit, but the free memory is reserved for this lease; "" otherwise
  std::string basis;            // basis of the estimate, or why there is none
};

struct Lease {
  std::string id;
  std::string state;
  std::string end_reason;  // "" while the lease lives
  std::string consumer;
  std::vector<std::string> devices;  // UUIDs
  Bytes vram;                        // bytes on each device
  Bytes asked_vram;                  // more than `vram` if the lease took less to avoid waiting
  int share = 0;                      // percent of the computing time of each device; 0: no bound
  Bytes used;                        // sum over all devices
  std::uint64_t generation = 0;
  bool stopping = false;
  bool signalled = false;  // the daemon sent SIGTERM to the program, so its keeper sends none
  Duration stop_grace = std::chrono::seconds(30);
  std::optional<int> exit_status;
  std::string exit_record;  // path of the keeper's exit record; "": none
  std::string owner_kind;
  int owner_pid = 0;             // 0: none
  int keeper_pid = 0;            // 0: none
  std::optional<Bytes> resize;   // the size that a resize waits for
  std::string pause_reason;      // the reason why the lease is paused, pausing, resuming or poisoned; "" while it runs
  bool resume_requested = true;  // of a paused lease: it resumes by itself when there is free memory
  std::optional<Place> queue;

  bool ended() const { return state == "ended"; }
  // Whether a program may use the memory now, or will again after a resume.
  bool granted() const { return !ended() && state != "queued" && state != "offered"; }
  // Whether a keeper started the program, so that Sublet may signal it.
  bool has_keeper() const { return owner_kind == "process" && keeper_pid != 0; }
};

// Returns a failure of kind `lost` if the body is no lease.
Answer<Lease> parse_lease(const nlohmann::json& body);
Answer<Lease> parse_lease(const std::string& text);

// The reason why the last pause failed, from the daemon's answer to `why`.
struct Undone {
  std::string why;    // "": the pause succeeded, or the reason is not known
  bool begun = true;  // false: nothing of its program was touched
  std::string hint;   // advice; "": none

  std::string text() const;  // "its pause was undone: …"; "" without a reason
};
Undone why_undone(const nlohmann::json& why);

}  // namespace sublet::client
