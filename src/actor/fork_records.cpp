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

void ForkRecords::take(const proc::ProcessEvent& event) {
  using Kind = proc::ProcessEvent::Kind;
  switch (event.kind) {
    case Kind::acknowledged: return;
    case Kind::fork: add({.pid = event.pid, .parent = event.parent, .forked_ns = event.at_ns}); return;
    case Kind::exec:
      if (Kept* known = newest(event.pid)) known->record.name.clear();  // it has another name now
      return;
    case Kind::exit: break;
  }
  // A process that is older than the records tells its last parent.
  Kept* known = newest(event.pid);
  if (known == nullptr || known->record.ended_ns != 0) known = &add({.pid = event.pid, .parent = event.parent});
  known->record.ended_ns = event.at_ns;
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
