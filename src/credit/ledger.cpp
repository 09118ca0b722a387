// SPDX-License-Identifier: Apache-2.0
#include "credit/ledger.h"

#include <algorithm>
#include <utility>

namespace sublet::credit {
namespace {

Bytes rounded_up(Bytes bytes) { return {(bytes.count + block.count - 1) / block.count * block.count}; }
Bytes rounded_down(Bytes bytes) { return {bytes.count / block.count * block.count}; }

Bytes charged_by(ProcessRef process, const std::map<ProcessRef, Bytes>& charged) {
  const auto at = charged.find(process);
  return at == charged.end() ? Bytes{} : at->second;
}

}  // namespace

Bytes Ledger::given() const {
  Bytes sum;
  for (const auto& [process, holder] : holders_) sum += holder.credit;
  return sum;
}

Bytes Ledger::excess() const { return std::max(given() - limit_, Bytes{}); }

Bytes Ledger::credit_of(ProcessRef process) const {
  const auto at = holders_.find(process);
  return at == holders_.end() ? Bytes{} : at->second.credit;
}

Answer Ledger::ask(ProcessRef process, Bytes needed, const std::map<ProcessRef, Bytes>& charged) {
  const Bytes has = credit_of(process), free = limit_ - given();
  if (const auto at = holders_.find(process); at != holders_.end() && at->second.ended) return {.credit = has};
  if (needed <= has) return {.enough = true, .credit = has};
  const Bytes missing = needed - has;
  if (missing <= free) {
    // A limit need not be whole blocks. The steps become smaller as less is free, so that others find credit without a
    // recall.
    const Bytes least = std::min(rounded_up(missing), free);
    const Bytes more = std::min(largest_step, rounded_down({(free - least).count / 4}));
    return {.enough = true, .credit = holders_[process].credit += least + more};
  }
  // Nothing is recalled for a need that cannot be met.
  auto recalls = find_recalls(missing - free, process, charged);
  Bytes recalled;
  for (const auto& recall : recalls) recalled += credit_of(recall.process) - recall.credit;
  if (recalled < missing - free) recalls.clear();
  return {.credit = has, .recalls = std::move(recalls)};
}

std::vector<Recall> Ledger::find_recalls(Bytes bytes, ProcessRef except,
                                         const std::map<ProcessRef, Bytes>& charged) const {
  std::vector<std::pair<Bytes, ProcessRef>> unused;
  for (const auto& [process, holder] : holders_) {
    if (process == except || holder.ended) continue;
    if (const Bytes idle = holder.credit - charged_by(process, charged); idle > Bytes{})
      unused.emplace_back(idle, process);
  }
  std::ranges::sort(unused, std::ranges::greater{});
  std::vector<Recall> recalls;
  for (const auto& [idle, process] : unused) {
    if (bytes <= Bytes{}) break;
    const Bytes taken = std::min(idle, bytes);
    recalls.push_back({process, credit_of(process) - taken});
    bytes -= taken;
  }
  return recalls;
}

void Ledger::confirm(const Recall& recall) {
  const auto at = holders_.find(recall.process);
  if (at != holders_.end() && !at->second.ended) at->second.credit = std::min(at->second.credit, recall.credit);
}

void Ledger::end(ProcessRef process) {
  if (const auto at = holders_.find(process); at != holders_.end()) at->second.ended = true;
}

void Ledger::forget(ProcessRef process) {
  if (const auto at = holders_.find(process); at != holders_.end() && at->second.ended) holders_.erase(at);
}

}  // namespace sublet::credit
