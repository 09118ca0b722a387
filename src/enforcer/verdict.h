// SPDX-License-Identifier: Apache-2.0
// The record about a process that holds GPU memory under no lease: who it is, what it held, and every step that was
// taken, as a value.
#pragma once

#include "base/error.h"
#include "base/ids.h"
#include "base/units.h"
#include "enforcer/rules.h"
#include "proc/process_record.h"
#include "store/store.h"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sublet::enforcer {

// seen: it is watched. condemned: its end is decided, and no signal was sent yet. terminating: SIGTERM was sent.
// killing: SIGKILL was sent. unkillable: it did not end. closed: nothing more is done about it.
enum class Stage { seen, condemned, terminating, killing, unkillable, closed };
// Why a verdict is closed. gone: the process ended by itself, or gave its memory back. ended: it ended after a signal.
enum class Outcome { open, gone, leased, approved, ended };
std::string_view to_string(Stage stage);
std::string_view to_string(Outcome outcome);

struct Step {
  Time at;
  std::string what;    // "seen", "notice", "SIGTERM", …
  std::string result;  // a sentence; "": nothing to add
  bool operator==(const Step&) const = default;
};

struct Holding {
  Time at;
  std::string device;  // uuid
  Bytes used;          // on this device
  bool operator==(const Holding&) const = default;
};

inline constexpr std::size_t most_steps = 64, first_steps = 32;  // the first ones stay
inline constexpr std::size_t most_holdings = 128;

struct Verdict {
  std::uint64_t id = 0;
  proc::ProcessRecord record;
  std::uint64_t inode = 0;   // of its pidfd; 0: this kernel has none
  std::string user;          // account name, or the uid
  bool unnamed = false;      // the account database did not answer at the last pass; not stored
  std::string exe;           // path of its executable, once the actor has read it; "": not known
  bool device_file = false;  // by the last look
  bool mapping = false;
  bool draws = false;    // by the last pass it only draws: the driver lists it among graphics programs alone
  bool looked = false;   // the actor has looked at it
  std::string spared{};  // why the last look spares it; "": it does not
  Time opened_at;
  Time last_seen;  // when it was last listed with memory
  Time closed_at;  // closed only
  // Its parents by the process table when the sources were asked last. Unset: they were not. Not stored.
  std::optional<std::vector<ProcessRef>> shown;
  int sightings = 0;                // readings, at least half an interval apart
  Policy policy = Policy::observe;  // the last that applied
  Stage stage = Stage::seen;
  Outcome outcome = Outcome::open;
  bool noticed = false;             // its owner was told; under enforce, that it will be ended
  LeaseId spared_for;               // the lease of a process above it, which spares it; none: nothing spares it
  int descendants = 0;              // of its descendants that got SIGTERM, and may outlive it
  Time act_at;                      // terminating: when SIGKILL follows; killing: when it counts as unkillable
  std::vector<Holding> holdings{};  // each change; the oldest are dropped
  std::vector<Step> steps{};        // of many, those in the middle are dropped

  bool open() const { return stage != Stage::closed; }
  // Whether a signal may have reached it.
  bool signalled() const {
    return stage == Stage::terminating || stage == Stage::killing || stage == Stage::unkillable;
  }
  // The unit of the system that it belongs to; "": none.
  std::string system_unit() const { return record.system_unit ? record.unit : std::string(); }
  Bytes used() const;  // its last holdings on all devices
  const Step* last_judgement() const;  // the last step that spared or condemned it; null: none
  void note(Time at, std::string what, std::string result = {});
  // Its earlier sightings count no more: only from now on could it be ended.
  void count_anew(Time at, std::string what, std::string result);
  Time counted_from() const;  // when the first of its sightings was
  void hold(Time at, const std::string& device, Bytes used);
  // The same for all devices. It holds nothing on others.
  void hold_all(Time at, const std::map<std::string, Bytes>& used);
};

store::CapabilityRow to_row(const Verdict& verdict);
// An error names the row that an earlier or later version wrote differently.
Result<Verdict> verdict_from_row(const store::CapabilityRow& row);
// For the API and the event stream; times as text.
nlohmann::json describe(const Verdict& verdict);
// One sentence: who holds how much since when, and what happens next.
std::string summary(const Verdict& verdict);

}  // namespace sublet::enforcer
