// SPDX-License-Identifier: Apache-2.0
// A stack as a value: the settings of an administrator, and its present use. Plain data.
#pragma once

#include "base/error.h"
#include "base/ids.h"
#include "base/units.h"
#include "lease/lease.h"
#include "store/store.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sublet::stacks {

// down: no use of it. queued: its lease waits. creating: `up` runs. starting: its containers become ready. ready: it is
// acquired. released: it is up under a spot lease, and nobody has acquired it. stopping: `down` runs. failed: its last
// start failed, and it is down.
enum class Phase { down, queued, creating, starting, ready, released, stopping, failed };
std::string_view to_string(Phase phase);
std::optional<Phase> parse_phase(std::string_view text);

// The size and rank of a stack's lease. An unset field is not given.
struct Settings {
  std::optional<Bytes> vram{};  // on each device
  std::optional<int> devices{};
  std::optional<core::Tier> tier{};
  std::optional<bool> exclusive{};        // the lease takes whole devices
  std::optional<bool> pausable{};         // unset: it may be paused for others
  std::optional<std::string> gpu_spec{};  // of the file alone
  std::optional<bool> interposer{};       // of the file alone: the containers with the GPU get the library
  std::optional<int> share{};             // of the file alone: percent of the computing time of each device
  bool operator==(const Settings&) const = default;
};

// One use of a stack, from its acquisition until the stack is down.
struct Use {
  std::uint32_t uid = 0;  // who acquired it, or released it last
  std::string user{};
  std::string owner{};       // label that the acquirer gave; may be ""
  std::string token_hash{};  // of the acquirer's token; "": it is not acquired
  LeaseId lease{};
  Duration ttl{};                          // counts from ready, and anew from each renewal
  std::optional<Time> expires_at{};        // set while it is ready
  std::optional<Time> ready_by{};          // set while it is starting: when the start is given up
  core::Tier tier = core::Tier::standard;  // of the lease while the stack is acquired
};

struct Stack {
  std::string name;
  std::string adopted{};  // the path that an administrator named; "": the stack was found in `Sources`
  Settings set{};         // by `sublet stack set`
  Bytes peak{};           // most bytes that it used on one device in its uses; 0: not measured

  Phase phase = Phase::down;
  Time since{};
  std::string why{};       // one sentence; "": nothing to explain
  Use use{};               // valid while a lease is there
  bool will_fail = false;  // stopping: the phase `failed` follows
  std::string project{};   // Compose's names of what was started; "": nothing was
  std::string directory{};
  bool by_label = false;  // of what was started: the container with the label decides
  bool recreate = false;  // creating: containers that run already are replaced
  // Ready or released: since when containers that should run are gone. Not stored.
  std::optional<Time> gone_since{};

  // Somebody has acquired it, and nobody else may.
  bool acquired() const {
    return phase == Phase::queued || phase == Phase::creating || phase == Phase::starting || phase == Phase::ready;
  }
  // Containers of it may be there, started for its lease.
  bool is_up() const {
    return phase == Phase::creating || phase == Phase::starting || phase == Phase::ready || phase == Phase::released ||
           phase == Phase::stopping;
  }
  // Nothing of it has to be stored.
  bool blank() const;
};

store::CapabilityRow to_row(const Stack& stack);
// An error names the field that an earlier or later version wrote differently.
Result<Stack> from_row(const store::CapabilityRow& row);

// Names of stacks are words in paths, tags and commands: letters, digits, '.', '_' and '-', at most 58 of them, and the
// first is a letter or a digit.
Status check_name(std::string_view name);

}  // namespace sublet::stacks
