// SPDX-License-Identifier: Apache-2.0
// A supervised program as a value: what its user asked for (manifest), and where it stands (progress). Plain data.
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

namespace sublet::guard {

enum class Restart { never, on_failure, always };
// starting: a keeper was ordered and has not asked for its lease yet. queued: the lease waits. running: the lease is
// granted. backoff: the next start waits. stopped: on request. exited, failed: nothing starts it again.
enum class Phase { starting, queued, running, backoff, stopped, exited, failed };

// The requested sequel of the end of a program that is up. With `none`, its restart policy decides.
enum class Wish { none, stop, restart, remove };

std::string_view to_string(Restart restart);  // "on-failure"
std::string_view to_string(Phase phase);
std::string_view to_string(Wish wish);
std::optional<Restart> parse_restart(std::string_view text);
std::optional<Phase> parse_phase(std::string_view text);

struct Manifest {
  std::vector<std::string> arguments;
  std::vector<std::string> environment;  // "NAME=value"; for the owner's eyes only
  std::string directory;
  int umask = 022;
  nlohmann::json limits = nlohmann::json::array();  // {"resource", "soft", "hard"}, as of getrlimit(2)
  std::string command;                              // the command line as text
  Restart restart = Restart::never;
  nlohmann::json request = nlohmann::json::object();  // body of POST /v1/leases, without owner and tag
  bool sized_by_ceiling = false;                      // its lease is as large as its ceiling

  Bytes size() const;                                      // about its size in the store
  Bytes ceiling() const { return bytes("memory_bytes"); }  // 0: none
  Bytes soft_limit() const { return bytes("soft_bytes"); }
  Bytes vram() const { return bytes("vram_bytes"); }
  Bytes bytes(std::string_view field) const;
};

struct Progress {
  Phase phase = Phase::starting;
  Time since;
  std::string why{};        // one sentence; "": nothing to explain
  std::uint64_t start = 0;  // number of the newest start; each has a lease of its own
  LeaseId lease{};          // of the newest start that asked for one
  std::uint64_t restarts = 0;
  std::vector<Time> recent{};       // restarts by the policy in the last ten minutes, oldest first
  Time next_start = Time::never();  // backoff: when the next start is due
  std::optional<int> exit_status{};
  std::string end_reason{};  // of its last lease that ended
  bool ending = false;       // its lease has ended, and its processes still live
  Wish wish = Wish::none;    // of the owner or an admin, until the next start
  std::string warning{};     // of its keeper, for example about its log
};

struct Program {
  std::uint32_t uid = 0;
  std::string user;
  std::string tag;
  std::uint64_t number = 0;  // unique and never used again; names its log
  Time created_at;
  Manifest manifest;
  Progress progress;

  // Whether a lease or a keeper of it may be there.
  bool is_up() const {
    return progress.phase == Phase::starting || progress.phase == Phase::queued || progress.phase == Phase::running;
  }
};

// A start, as its keeper names it. A tag and its numbers of starts come again once a program was removed, the number of
// the program never does.
struct StartName {
  std::string tag;
  std::uint64_t number = 0;  // Program::number
  std::uint64_t start = 0;   // Progress::start
};

constexpr std::string_view row_kind = "program";
std::string row_key(std::uint32_t uid, const std::string& tag);
store::CapabilityRow to_row(const Program& program);
// An error names the field that an earlier or later version wrote differently.
Result<Program> from_row(const store::CapabilityRow& row);

}  // namespace sublet::guard
