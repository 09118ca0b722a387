// SPDX-License-Identifier: Apache-2.0
#include "actor/fork_records.h"

#include <algorithm>
#include <utility>

namespace sublet::actor {

const ForkRecords::Kept* ForkRecords::at(std::uint64_t number) const {
  if (number == 0 || number + records_.size() <= last_) return nullptr;
  return &records_[(number - 1) % most_];
}

ForkRecords::Kept* ForkRecords::newest(std::int32_t pid) {
  const auto known = newest_.find(pid);
  return known == newest_.end() ? nullptr : const_cast<Kept*>(at(known->second));
}

ForkRecords::Kept& ForkRecords::add(ForkRecord record) {
  Kept kept{.record = std::move(record), .number = ++last_};
  auto& number = newest_[kept.record.pid];
  if (at(number) != nullptr) kept.older = number;
  number = last_;
  if (records_.size() < most_) return records_.emplace_back(std::move(kept));
  Kept& place = records_[(last_ - 1) % most_];
  const auto lost = newest_.find(place.record.pid);
  if (lost != newest_.end() && lost->second == place.number) newest_.erase(lost);
  if (place.record.forked_ns != 0) since_ns_ = std::max(since_ns_, place.record.forked_ns);
  return place = std::move(kept);
}

// The end of the first thread is reported like the end of its process. Other threads may live on, and their forks and
// execs show it. The parent at that end is not the parent by now.
void ForkRecords::revive(std::int32_t pid, std::int64_t at_ns) {
  Kept* known = newest(pid);
  if (known == nullptr || known->record.ended_ns == 0 || at_ns < known->record.ended_ns) return;
  known->record.ended_ns = 0;
  if (known->record.forked_ns == 0) known->record.parent = 0;
}

void ForkRecords::take(const proc::ProcessEvent& event) {
  using Kind = proc::ProcessEvent::Kind;
  switch (event.kind) {
    case Kind::acknowledged: return;
    case Kind::fork:
      revive(event.parent, event.at_ns);
      add({.pid = event.pid, .parent = event.parent, .forked_ns = event.at_ns});
      return;
    case Kind::exec:
      revive(event.pid, event.at_ns);
      if (Kept* known = newest(event.pid)) known->record.name.clear();  // it has another name now
      return;
    case Kind::exit: break;
  }
  // A process that is older than the records tells its last parent.
  Kept* known = newest(event.pid);
  if (known == nullptr || known->record.ended_ns != 0) known = &add({.pid = event.pid, .parent = event.parent});
  known->record.ended_ns = event.at_ns;
  if (known->record.parent == 0) known->record.parent = event.parent;
}

void ForkRecords::describe(ProcessRef process, std::uint32_t uid, const std::string& name) {
  Kept* known = newest(process.pid);
  if (known == nullptr || known->record.ended_ns != 0) return;
  known->record.start_ticks = process.start_ticks;
  known->record.uid = uid;
  known->record.name = name;
}

const ForkRecord* ForkRecords::find(std::int32_t pid, std::int64_t before_ns) const {
  const auto known = newest_.find(pid);
  if (known == newest_.end()) return nullptr;
  for (const Kept* each = at(known->second); each != nullptr; each = at(each->older)) {
    const std::int64_t from = each->record.forked_ns != 0 ? each->record.forked_ns : 0;
    if (from <= before_ns) return &each->record;
  }
  return nullptr;
}

}  // namespace sublet::actor
