// SPDX-License-Identifier: Apache-2.0
// The waiting leases, in the one total order of the queue. A plain value: copying it copies the whole queue.
#pragma once

#include "base/by_name.h"
#include "lease/lease.h"
#include "state/queue_tree.h"

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

namespace sublet::core {

// All waiters, in several trees. There is a tree for each device asked for by name, a tree for each number of devices
// asked for without names, a tree for each number of devices of each set asked for, and a tree of all. Limited waiters
// are in the tree of all only.
class Queue {
 public:
  // A number of devices of a set.
  struct Subset {
    std::vector<std::string> devices;  // uuids, sorted; more than one
    int count = 1;                     // at most all of them
    auto operator<=>(const Subset&) const = default;
  };

  Queue() { named_.max_load_factor(names_per_place); }

  // Sets the points of priority that a minute of waiting is worth; orders all waiters again if the value changed.
  // Called before anything else.
  void set_aging(double per_minute);

  void insert(const Lease& lease, const TenantPlace& by_tenant = {});
  // A lease that waits for more on its devices: `need` more bytes on the device where that is most.
  void insert_in_place(const Lease& lease, Bytes need, const TenantPlace& by_tenant = {});
  void erase(LeaseId lease);
  // Gives a waiter a new place by its tenant.
  void move(LeaseId lease, const TenantPlace& by_tenant);

  // Grows with every change of the waiters.
  std::uint64_t revision() const { return revision_; }
  std::size_t size() const { return entries_.size(); }
  bool contains(LeaseId lease) const { return entries_.contains(lease); }
  Bytes waiting_bytes() const { return {static_cast<std::int64_t>(waiting_)}; }

  std::size_t place(LeaseId lease) const;  // 1 = next; 0 = does not wait
  // The place that it would have by its time of queueing.
  std::size_t place_of(const Lease& lease, const TenantPlace& by_tenant = {}) const;
  std::vector<LeaseId> in_order(std::size_t limit = SIZE_MAX) const;  // the first `limit`
  // Waiters are found by the number of devices that they want (any, with so many bytes on each), by the device that
  // they name, or by the set that they name.
  const std::map<int, QueueTree>& any() const { return any_; }
  const QueueTree* named(const std::string& device) const;  // null: no waiter names it
  const std::map<Subset, QueueTree>& subsets() const { return subsets_; }
  const QueueTree& sets() const { return sets_; }  // leases on several devices that wait for more on each
  const QueueTree& all() const { return all_; }
  const QueueKey* key(LeaseId lease) const;                      // null: does not wait
  const std::set<LeaseId>* of_account(AccountId account) const;  // its waiters; null: none

 private:
  struct Entry {
    QueueKey key;
    AccountId account = 0;
    int priority = 0;
    Time queued_at;    // as in the key
    Time waits_since;  // Time{}: it has waited for as long as anything
    Bytes bytes;
    Bytes total;
    int count = 1;                     // 0: it wants more on each of its several devices
    std::vector<std::string> devices;  // uuids of those that it names, sorted; empty: any
  };

  void insert(LeaseId lease, Entry entry);
  void plant(const Entry& entry);
  void uproot(const Entry& entry);
  QueueTree& tree_of(const Entry& entry);

  double aging_ = 1.0;
  std::unordered_map<std::string, QueueTree, NameHash> named_;  // none is ever empty
  std::map<int, QueueTree> any_;         // by the number of devices; only the tree of one device is ever empty
  std::map<Subset, QueueTree> subsets_;  // none is ever empty
  QueueTree sets_;
  QueueTree all_;
  std::unordered_map<LeaseId, Entry> entries_;
  std::unordered_map<AccountId, std::set<LeaseId>> of_account_;
  std::uint64_t revision_ = 0;
  std::uint64_t waiting_ = 0;  // unsigned: the sum of absurd requests wraps instead of being undefined
};

}  // namespace sublet::core
