// SPDX-License-Identifier: Apache-2.0
// Shares the time that leases wait among the leases that hold memory: a second of a wait is charged to the holders by
// the bytes that they hold in this second. A change of a holder costs O(1), and one of a waiter O(holders). A value.
#pragma once

#include "meter/facts.h"

#include <map>
#include <utility>

namespace sublet::meter {

class Blame {
 public:
  // From `at` on, this account holds so many bytes more (or less), or has so many waiting leases more. `at` never
  // decreases.
  void hold(const Account& account, std::int64_t bytes, Ms at);
  void wait(const Account& account, int leases, Ms at);

  using Pairs = std::map<std::pair<Account, Account>, double>;
  // The time until `at` is nobody's.
  void skip(Ms at) { now_ = std::max(now_, at); }

  // Returns the milliseconds by waiter and holder since the last call. While nobody holds memory, the holder is empty.
  // If there are many accounts, further ones are told apart by user and tenant only, as consumer "(many)".
  Pairs take(Ms at);

 private:
  // With R(t) = ∫ dt / (bytes of all), a holder's share of the time is bytes × ΔR while its bytes stay the same.
  struct Holder {
    std::int64_t bytes = 0;
    double share = 0;  // ∫ bytes / (bytes of all) dt up to R = `until`
    double until = 0;
  };
  struct Charged {
    double seen = 0;  // the holder's share when the waiter was last charged
    double ms = 0;
  };
  struct Waiter {
    int leases = 0;
    std::map<Account, Charged> by_holder{};
  };

  // The account under which one is counted, and how many holds and waits it has.
  struct Alias {
    Account as{};
    int uses = 0;
  };

  Account alias(const Account& account, int uses);
  void advance(Ms at);
  double share_of(const Holder& holder) const {
    return holder.share + static_cast<double>(holder.bytes) * (rate_ - holder.until);
  }
  void charge(Waiter& waiter);

  Ms now_ = 0;
  std::int64_t bytes_ = 0;  // of all holders
  double rate_ = 0;         // R, in ms per byte
  double unheld_ = 0;       // ms in which nobody held memory
  std::map<Account, Alias> aliases_;
  std::map<Account, Holder> holders_;
  std::map<Account, Waiter> waiters_;
};

}  // namespace sublet::meter
