// SPDX-License-Identifier: Apache-2.0
#include "credit/desk.h"

#include <utility>

namespace sublet::credit {
namespace {

// A process that is about to charge its credit keeps it, so that others are asked then. More rounds would help only
// against processes that charge and free all the time.
constexpr int rounds = 4;
constexpr std::uint64_t largest_need = std::uint64_t{1} << 46;

}  // namespace

Desk::Desk(std::vector<DeviceLimit> devices) : devices_(std::move(devices)) {
  for (const auto& device : devices_) ledgers_.emplace_back(device.limit);
}

Result<const Pages*> Desk::begin(ProcessRef process) {
  const auto known = processes_.find(process);
  if (known != processes_.end() && known->second.ended) return not_found("the process has ended");
  auto pages = Pages::make(devices_);
  if (!pages) return pages.error();
  for (std::size_t device = 0; device < ledgers_.size(); ++device)
    pages->set_credit(device, ledgers_[device].credit_of(process));
  return &processes_.insert_or_assign(process, Process{std::move(*pages)}).first->second.pages;
}

std::map<ProcessRef, Bytes> Desk::charges(std::size_t device) const {
  std::map<ProcessRef, Bytes> all;
  for (const auto& [process, one] : processes_)
    all[process] = one.pages.charged(device, ledgers_[device].credit_of(process));
  return all;
}

// The credit is lowered first. A charge that is not larger then proves that the process has seen it (wire/limit.h).
void Desk::carry_out(std::size_t device, const Recall& recall) {
  const auto at = processes_.find(recall.process);
  if (at == processes_.end()) return;
  const Bytes was = ledgers_[device].credit_of(recall.process);
  at->second.pages.set_credit(device, recall.credit);
  if (at->second.pages.charged(device, was) <= recall.credit) ledgers_[device].confirm(recall);
  else at->second.pages.set_credit(device, was);
}

bool Desk::more(ProcessRef process, std::size_t device, std::uint64_t needed) {
  const auto at = processes_.find(process);
  if (at == processes_.end() || at->second.ended || device >= ledgers_.size() || needed > largest_need) return false;
  for (int round = 0; round < rounds; ++round) {
    const auto answer =
        ledgers_[device].ask(process, Bytes{static_cast<std::int64_t>(needed)}, charges(device));
    if (answer.enough) {
      at->second.pages.set_credit(device, answer.credit);
      return true;
    }
    if (answer.recalls.empty()) return false;
    for (const auto& recall : answer.recalls) carry_out(device, recall);
  }
  return false;
}

void Desk::end(ProcessRef process) {
  const auto at = processes_.find(process);
  if (at == processes_.end()) return;
  at->second.ended = true;
  for (auto& ledger : ledgers_) ledger.end(process);
}

void Desk::forget(ProcessRef process) {
  const auto at = processes_.find(process);
  if (at == processes_.end() || !at->second.ended) return;
  for (auto& ledger : ledgers_) ledger.forget(process);
  processes_.erase(at);
}

void Desk::resize(std::size_t device, Bytes limit) {
  devices_[device].limit = limit;
  ledgers_[device].resize(limit);
  for (auto& [process, one] : processes_) one.pages.set_limit(device, limit);
  for (const auto& recall : ledgers_[device].find_recalls(ledgers_[device].excess(), {}, charges(device)))
    carry_out(device, recall);
}

void Desk::tell_others() {
  for (std::size_t device = 0; device < ledgers_.size(); ++device) {
    const auto all = charges(device);
    const Bytes sum = charged(device);
    for (auto& [process, one] : processes_) one.pages.set_others(device, sum - all.at(process));
  }
}

Bytes Desk::charged(std::size_t device) const {
  Bytes sum;
  for (const auto& [process, bytes] : charges(device)) sum += bytes;
  return sum;
}

}  // namespace sublet::credit
