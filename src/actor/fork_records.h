// SPDX-License-Identifier: Apache-2.0
// A bounded memory of forks and ends that the kernel reported: which process had which parent. Old records are
// overwritten. Belongs to one thread.
#pragma once

#include "base/ids.h"
#include "proc/process_event.h"

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

namespace sublet::actor {

struct ForkRecord {
  std::int32_t pid = 0;
  std::int32_t parent = 0;        // 0: not known
  std::uint64_t start_ticks = 0;  // as in /proc/PID/stat; 0: it was not read
  std::int64_t forked_ns = 0;     // CLOCK_MONOTONIC in ns; 0: before the records began
  std::int64_t ended_ns = 0;      // likewise; 0: its end was not reported
  std::uint32_t uid = 0;          // effective, valid with `start_ticks`
  std::string name{};             // the kernel's short name; "": it was not read
};

class ForkRecords {
 public:
  explicit ForkRecords(std::size_t most = 65536) : most_(most) {}

  // Records are complete from now on. Earlier records are kept, and may have gaps.
  void begin(std::int64_t now_ns) { since_ns_ = now_ns; }
  void take(const proc::ProcessEvent& event);
  // The facts that a reading of the process table adds to the newest record about this pid.
  void describe(ProcessRef process, std::uint32_t uid, const std::string& name);

  // The newest record about this pid that is no later than `before_ns`. Null: none. Valid until the next change.
  const ForkRecord* find(std::int32_t pid, std::int64_t before_ns) const;
  // CLOCK_MONOTONIC in ns from which on all forks are recorded.
  std::int64_t complete_since_ns() const { return since_ns_; }
  std::size_t size() const { return records_.size(); }

 private:
  struct Kept {
    ForkRecord record;
    std::uint64_t number = 0;  // of this record, from 1 on
    std::uint64_t older = 0;   // number of the record before it with the same pid; 0: none
  };
  const Kept* at(std::uint64_t number) const;
  Kept& add(ForkRecord record);
  Kept* newest(std::int32_t pid);
  void revive(std::int32_t pid, std::int64_t at_ns);

  std::size_t most_;
  std::vector<Kept> records_;  // a ring, by number
  std::unordered_map<std::int32_t, std::uint64_t> newest_;
  std::uint64_t last_ = 0;
  std::int64_t since_ns_ = 0;
};

}  // namespace sublet::actor
