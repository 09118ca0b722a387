// SPDX-License-Identifier: Apache-2.0
#include "meter/blame.h"

#include <algorithm>

namespace sublet::meter {

namespace {

constexpr std::size_t most_accounts = 200;

}  // namespace

// Each hold and wait ends under the name under which it began.
Account Blame::alias(const Account& account, int uses) {
  const auto [found, is_new] = aliases_.try_emplace(account);
  Alias& alias = found->second;
  if (is_new) alias.as = aliases_.size() > most_accounts ? Account{account.user, account.tenant, "(many)"} : account;
  Account as = alias.as;
  alias.uses += uses;
  if (alias.uses <= 0) aliases_.erase(found);
  return as;
}

void Blame::advance(Ms at) {
  const auto passed = static_cast<double>(std::max<Ms>(at - now_, 0));
  now_ = std::max(now_, at);
  if (bytes_ > 0) rate_ += passed / static_cast<double>(bytes_);
  else unheld_ += passed;
}

void Blame::hold(const Account& account, std::int64_t bytes, Ms at) {
  if (bytes == 0) return;
  advance(at);
  Holder& holder = holders_[alias(account, bytes > 0 ? 1 : -1)];
  holder.share = share_of(holder);
  holder.until = rate_;
  holder.bytes += bytes;
  bytes_ += bytes;
}

void Blame::charge(Waiter& waiter) {
  const auto add = [&](const Account& account, double share) {
    Charged& charged = waiter.by_holder[account];
    charged.ms += waiter.leases * (share - charged.seen);
    charged.seen = share;
  };
  for (const auto& [account, holder] : holders_) add(account, share_of(holder));
  add({}, unheld_);
}

void Blame::wait(const Account& account, int leases, Ms at) {
  if (leases == 0) return;
  advance(at);
  Waiter& waiter = waiters_[alias(account, leases)];
  charge(waiter);
  waiter.leases += leases;
}

Blame::Pairs Blame::take(Ms at) {
  advance(at);
  Pairs pairs;
  for (auto& [account, waiter] : waiters_) {
    charge(waiter);
    for (auto& [holder, charged] : waiter.by_holder)
      if (charged.ms > 0) pairs[{account, holder}] = std::exchange(charged.ms, 0);
  }
  // Everything counts from here again, so that sums stay small and exact.
  std::erase_if(waiters_, [](const auto& entry) { return entry.second.leases == 0; });
  std::erase_if(holders_, [](const auto& entry) { return entry.second.bytes == 0; });
  for (auto& [account, holder] : holders_) holder.share = holder.until = 0;
  for (auto& [account, waiter] : waiters_) waiter.by_holder.clear();
  rate_ = unheld_ = 0;
  return pairs;
}

}  // namespace sublet::meter
