// SPDX-License-Identifier: Apache-2.0
// The actor's sources about parents that have ended: the process connector and process accounting. Composes the
// ancestry of a process from them and from the process table. Belongs to one thread.
#pragma once

#include "actor/fork_records.h"
#include "actor/process_connector.h"
#include "proc/accounting.h"
#include "proc/process_record.h"
#include "proc/process_table.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace sublet::actor {

// The ancestry of a process with the parents that have ended.
struct Traced {
  std::vector<proc::Ancestor> ancestry;  // the parent first
  std::string missing;                   // a sentence about a record that is missing; "": none is
};

class LinkSources {
 public:
  using Opener = std::function<Result<std::unique_ptr<EventSource>>()>;
  // Keeps a reference to `root`. Opens nothing yet.
  explicit LinkSources(const proc::ProcRoot& root, Opener opener = open_process_connector);

  struct Condition {
    bool works = false;
    std::string text;  // since when it works, or why it does not
  };
  // Opens the connector if it is not open.
  Condition listen();
  // Reads this accounting file from now on, when a parent is looked for. "": none.
  Condition account(const std::string& path);

  // Reads the reports that have come. Call it about once a second while any() is true.
  void drain();
  bool any() const { return source_ != nullptr; }

  Traced trace(ProcessRef process);
  // Looks above many processes, for one order.
  class Walk;

 private:
  struct Node;
  std::optional<Node> parent_of(const Node& child, std::string& missing);
  std::optional<Node> reaped(const proc::ProcessInfo& child, const std::optional<proc::ProcessInfo>& parent,
                             std::string& missing);
  Node identify(std::int32_t pid, std::int64_t at_ns, proc::ParentSource source, bool certain);
  const ForkRecord* record_of(const Node& node) const;
  const proc::AccountingRecord* accounting_of(std::int32_t pid, std::int64_t at_ns);
  void forget_accounting();
  void read_accounting();
  void read_names(const std::vector<proc::ProcessEvent>& events);
  std::string since() const;

  const proc::ProcRoot& root_;
  Opener opener_;
  std::unique_ptr<EventSource> source_;
  bool was_open_ = false;          // the connector was opened by this actor
  std::string refusal_;            // why the connector could not be opened; "": it was not tried
  std::int64_t try_again_ns_ = 0;  // CLOCK_MONOTONIC in ns
  ForkRecords records_;
  std::string path_;                                                     // of the accounting file; "": none
  std::vector<proc::AccountingRecord> accounting_;                       // the oldest first
  std::unordered_map<std::int32_t, std::vector<std::size_t>> with_pid_;  // places in `accounting_`
  std::int64_t accounting_read_ns_ = 0;                                  // CLOCK_MONOTONIC in ns; 0: not read
  std::int64_t last_end_ns_ = 0;  // likewise, of the last end that the connector reported; 0: none
};

// Tells of many processes whether one above them is wanted, for one order. Reads the reports once, when it is made, and
// remembers each process above: a walk ends at a process that an earlier walk has judged. Keeps a reference.
class LinkSources::Walk {
 public:
  using Wanted = std::function<bool(const proc::Ancestor&)>;
  Walk(LinkSources& links, Wanted is_wanted);
  // Whether the process, which lives, or a living or dead process above it is wanted.
  bool finds(ProcessRef process);
  // Number of parents that were looked up, each with a few readings of the process table.
  std::size_t steps() const { return steps_; }

 private:
  // A process whose start is not known is told apart by the time at which it lived.
  using Key = std::pair<ProcessRef, std::int64_t>;
  static Key key_of(const Node& node);

  LinkSources& links_;
  Wanted is_wanted_;
  std::map<Key, bool> judged_;  // whether it or one above it is wanted
  std::size_t steps_ = 0;
};

}  // namespace sublet::actor
