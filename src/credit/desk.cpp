// SPDX-License-Identifier: Apache-2.0
#include "credit/desk.h"

#include <algorithm>
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
  outside_.resize(devices_.size());
}

Result<const Pages*> Desk::begin(ProcessRef process) {
  const auto known = processes_.find(process);
  if (known != processes_.end() && known->second.ended) return not_found("the process has ended");
  auto pages = Pages::make(devices_);
  if (!pages) return pages.error();
  // Credit that is not published yet stays so.
  const bool has_pages = known != processes_.end() && known->second.pages;
  for (std::size_t device = 0; device < ledgers_.size(); ++device)
    pages->set_credit(device, has_pages ? known->second.pages->credit(device) : ledgers_[device].credit_of(process));
  Process& one = processes_[process];
  one = Process{.pages = std::move(*pages), .promised = std::vector<Bytes>(ledgers_.size())};
  return &*one.pages;
}

void Desk::restore(ProcessRef process, const std::vector<Bytes>& credits) {
  Process& one = processes_[process];
  one.promised.assign(ledgers_.size(), {});
  for (std::size_t device = 0; device < ledgers_.size(); ++device)
    ledgers_[device].restore(process, device < credits.size() ? credits[device] : Bytes{});
  if (one.pages) publish(process);
}

bool Desk::knows(ProcessRef process) const {
  const auto at = processes_.find(process);
  return at != processes_.end() && at->second.pages;
}

bool Desk::is_uncovered(ProcessRef process) const {
  const auto at = processes_.find(process);
  return at != processes_.end() && at->second.pages && at->second.pages->is_uncovered();
}

Counts Desk::counts(ProcessRef process) const {
  const auto at = processes_.find(process);
  return at != processes_.end() && at->second.pages ? at->second.pages->counts() : Counts{};
}

std::vector<Bytes> Desk::credits(ProcessRef process) const {
  std::vector<Bytes> all;
  for (const auto& ledger : ledgers_) all.push_back(ledger.credit_of(process));
  return all;
}

Bytes Desk::charged_by(ProcessRef process, std::size_t device) const {
  const auto at = processes_.find(process);
  const Bytes credit = ledgers_[device].credit_of(process);
  return at == processes_.end() ? Bytes{} : at->second.pages ? at->second.pages->charged(device, credit) : credit;
}

// Credit that a process was just told of is not taken from it again.
std::map<ProcessRef, Bytes> Desk::charges(std::size_t device) const {
  std::map<ProcessRef, Bytes> all;
  for (const auto& [process, one] : processes_)
    all[process] = std::max(charged_by(process, device), one.promised[device]);
  return all;
}

// The credit is lowered first. A charge that is not larger then proves that the process has seen it (wire/limit.h).
void Desk::carry_out(std::size_t device, const Recall& recall) {
  const auto at = processes_.find(recall.process);
  if (at == processes_.end() || !at->second.pages) return;
  Pages& pages = *at->second.pages;
  const Bytes was = pages.credit(device);  // less than in the ledger if that is not published
  pages.set_credit(device, std::min(was, recall.credit));
  if (pages.charged(device, ledgers_[device].credit_of(recall.process)) <= recall.credit)
    ledgers_[device].confirm(recall);
  else pages.set_credit(device, was);
}

bool Desk::ask(ProcessRef process, std::size_t device, std::uint64_t needed) {
  const auto at = processes_.find(process);
  if (at == processes_.end() || !at->second.pages || at->second.ended || device >= ledgers_.size() ||
      needed > largest_need)
    return false;
  const Bytes need{static_cast<std::int64_t>(needed)};
  for (int round = 0; round < rounds; ++round) {
    const auto answer = ledgers_[device].ask(process, need, charges(device));
    if (answer.enough) {
      at->second.promised[device] = std::max(at->second.promised[device], need);
      return true;
    }
    if (answer.recalls.empty()) return false;
    for (const auto& recall : answer.recalls) carry_out(device, recall);
  }
  return false;
}

void Desk::publish(ProcessRef process) {
  const auto at = processes_.find(process);
  if (at == processes_.end() || !at->second.pages) return;
  at->second.promised.assign(ledgers_.size(), {});
  for (std::size_t device = 0; device < ledgers_.size(); ++device)
    at->second.pages->set_credit(device, ledgers_[device].credit_of(process));
}

bool Desk::more(ProcessRef process, std::size_t device, std::uint64_t needed) {
  const bool is_enough = ask(process, device, needed);
  publish(process);
  return is_enough;
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
  for (auto& [process, one] : processes_)
    if (one.pages) one.pages->set_limit(device, limit);
  take_excess(device);
}

void Desk::set_gain(std::size_t device, std::uint32_t gain) {
  if (std::exchange(devices_[device].gain, gain) == gain) return;
  for (auto& [process, one] : processes_)
    if (one.pages) one.pages->set_gain(device, gain);
}

void Desk::set_outside(std::size_t device, Bytes bytes) {
  outside_[device] = bytes;
  take_excess(device);
}

void Desk::take_excess(std::size_t device) {
  ledgers_[device].resize(std::max(devices_[device].limit - outside_[device], Bytes{}));
  for (const auto& recall : ledgers_[device].find_recalls(ledgers_[device].excess(), {}, charges(device)))
    carry_out(device, recall);
}

void Desk::retire() {
  for (std::size_t device = 0; device < ledgers_.size(); ++device) set_outside(device, devices_[device].limit);
}

void Desk::close_files(ProcessRef process) {
  const auto at = processes_.find(process);
  if (at != processes_.end() && at->second.pages) at->second.pages->close_files();
}

void Desk::tell_others() {
  for (std::size_t device = 0; device < ledgers_.size(); ++device) {
    const auto all = charges(device);
    const Bytes sum = charged(device) + outside_[device];
    for (auto& [process, one] : processes_)
      if (one.pages) one.pages->set_others(device, sum - all.at(process));
  }
}

Bytes Desk::charged(std::size_t device) const {
  Bytes sum;
  for (const auto& [process, bytes] : charges(device)) sum += bytes;
  return sum;
}

}  // namespace sublet::credit
