// SPDX-License-Identifier: Apache-2.0
// Runs of programs under keepers that the daemon starts, for all capabilities with such programs: the order of a
// keeper, given once; what the keeper is told; and a reader of the output if the keeper was killed. Belongs to the loop
// thread.
#pragma once

#include "engine/engine.h"
#include "engine/records.h"
#include "machine/keepers.h"

#include <nlohmann/json.hpp>

#include <map>
#include <string>
#include <utility>

namespace sublet::engine {

struct KeeperOrdering {
  std::uint64_t start = 0;  // number of the start; an earlier one's is void
  bool ordered = false;
  Time ordered_at{};
  ProcessRef keeper{};  // once it is known
};

// order: give the order now. starts: it was given, and its keeper may live. lost: its keeper has ended. away: keepers
// cannot be started now. not_durable: the record of the start is not durable yet.
enum class OrderStep { order, starts, lost, away, not_durable };

struct RunOptions {
  std::string host;               // URL of the daemon's socket, for keepers
  std::string log_dir;            // directory with one directory for each uid
  Bytes log_max_size = 10 * MiB;  // of one log file
  int log_keep = 3;               // rotated files beside the live one
  Bytes log_user_max = GiB;       // of all logs of one user
};

// A run, as people and its keeper name it.
struct Run {
  std::uint32_t uid = 0;
  std::string user;
  std::string tag;      // for people who look at the process table
  std::string kind;     // "program" or "session": the field with its name in documents
  nlohmann::json name;  // of this start
  std::string log;      // name of its log in the directory of its user
};

class SupervisedRuns {
 public:
  SupervisedRuns(Engine& engine, machine::Keepers& keepers, RunOptions options)
      : engine_(engine), keepers_(keepers), options_(std::move(options)) {}

  const RunOptions& options() const { return options_; }
  std::string log_path(std::uint32_t uid, const std::string& log) const;

  // Whether the keeper of this start of the record `key` is to be ordered now. The order counts as given then.
  template <typename Key>
  OrderStep next_step(KeeperOrdering& ordering, std::uint64_t start, const Key& key, Records<Key>& records) const;
  // The document for its keeper, see src/keep/document.h. `command`: with arguments, directory, umask and limits.
  template <typename Command>
  nlohmann::json document(const Run& run, const Command& command, std::vector<std::string> environment) const;
  void start(const Run& run, const nlohmann::json& document, machine::Keepers::Done done);

  bool has_lost_keeper(const core::Lease& lease) const;
  // If the keeper of a running program was killed, another one reads the output, so that the program never waits for a
  // full pipe. Returns when to look again.
  Time watch_keeper(const Run& run, const core::Lease& lease, Time now);

 private:
  nlohmann::json begin_document(const Run& run) const;

  Engine& engine_;
  machine::Keepers& keepers_;
  const RunOptions options_;
  struct Reader {
    Time ordered_at{};
    Duration again{};      // from then until it is ordered again, unless it lives
    ProcessRef process{};  // once it is started
  };
  std::map<LeaseId, Reader> readers_;  // of the output of programs whose keeper is gone
};

template <typename Key>
OrderStep SupervisedRuns::next_step(KeeperOrdering& ordering, std::uint64_t start, const Key& key,
                                    Records<Key>& records) const {
  if (ordering.start != start) ordering = {.start = start};
  if (ordering.ordered)
    return !ordering.keeper || engine_.programs().lives(ordering.keeper) ? OrderStep::starts : OrderStep::lost;
  if (!keepers_.ready()) return OrderStep::away;
  if (!records.is_durable(key)) return OrderStep::not_durable;
  ordering.ordered = true;
  ordering.ordered_at = engine_.now();
  return OrderStep::order;
}

template <typename Command>
nlohmann::json SupervisedRuns::document(const Run& run, const Command& command,
                                        std::vector<std::string> environment) const {
  nlohmann::json document = begin_document(run);
  document["arguments"] = command.arguments;
  document["environment"] = std::move(environment);
  document["directory"] = command.directory;
  document["umask"] = command.umask;
  document["limits"] = command.limits;
  return document;
}

}  // namespace sublet::engine
