// SPDX-License-Identifier: Apache-2.0
// The tenants: the tree, what each holds now, and its use over time. Functions that take a State& are for the core
// alone; the others are for all readers (answers, metrics).
//
// Each tenant with leases, and each of its users, has an account. The sums of an account are exact, and change with the
// charges of its leases. Tenants without leases cost nothing.
#pragma once

#include "base/by_name.h"
#include "base/units.h"
#include "lease/rules.h"
#include "lease/tenant.h"
#include "state/queue_tree.h"
#include "state/shares.h"

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace sublet::core {

struct State;
struct Device;

// The entries by their names. Never changed: all copies of a state share them.
class TenantTree {
 public:
  using Map = std::map<std::string, Tenant, std::less<>>;

  TenantTree() : TenantTree(std::vector<Tenant>()) {}
  explicit TenantTree(const std::vector<Tenant>& tenants);

  Map::const_iterator begin() const { return all_->entries.begin(); }
  Map::const_iterator end() const { return all_->entries.end(); }
  Map::const_iterator find(std::string_view name) const { return all_->entries.find(name); }
  const Tenant& at(std::string_view name) const { return find(name)->second; }  // only for a name that is there
  bool contains(std::string_view name) const { return all_->entries.contains(name); }
  std::size_t size() const { return all_->entries.size(); }
  bool empty() const { return all_->entries.empty(); }
  // The quotas below the tenant that are kept out of its own: of each branch, the first.
  TenantAmount kept(std::string_view name) const;
  std::size_t quotas() const { return all_->quotas; }  // number of entries with a quota

 private:
  struct All {
    Map entries;
    std::map<std::string, TenantAmount, std::less<>> kept;
    std::size_t quotas = 0;
  };
  std::shared_ptr<const All> all_;
};

// Memory as both measures at once.
struct TenantMemory {
  Bytes bytes;
  std::int64_t thousandths = 0;  // of devices
  bool operator==(const TenantMemory&) const = default;
  TenantMemory& operator+=(const TenantMemory& other) {
    bytes += other.bytes;
    thousandths += other.thousandths;
    return *this;
  }
  friend TenantMemory operator+(TenantMemory a, const TenantMemory& b) { return a += b; }
  friend TenantMemory operator*(int sign, const TenantMemory& its) {
    return {sign * its.bytes, sign * its.thousandths};
  }
};

struct TenantAccount {
  std::string name;  // of the tenant; of a user below a tenant: the tenant's name and the uid
  AccountId parent = 0, first_child = 0, next_sibling = 0;
  AccountId guarantor = 0;        // the account whose quota holds for its leases; 0: none
  const Tenant* entry = nullptr;  // null: none, or a user below a tenant
  // Sums over its leases and those of all accounts below:
  TenantMemory held;              // charged
  int present = 0;                // leases that have not ended
  int live = 0;                   // leases that reserve memory
  Bytes parked;                   // in the park ledger
  TenantMemory covered;           // as a guarantor: charged for the leases for which its quota holds
  TenantMemory owed;              // that paused leases will hold again, beyond what they are charged
  TenantMemory leaving;           // the part of `covered` that pausing leases give back
  TenantAmount kept;              // see TenantTree
  Held bytes_used, devices_used;  // over time
  std::uint8_t step = 0;          // its share in the order of the queue
  Time due = Time::never();       // when time alone may change its step
  bool moved = false;             // its sums changed since the waiters were placed last
};

struct Tenants {
  TenantTree by_name;                                        // the entries
  std::vector<TenantAccount> accounts{1};                    // the first is the machine, and holds nothing
  std::unordered_map<std::string, AccountId, NameHash> ids;  // of the accounts, by name
  std::vector<AccountId> moved;              // accounts whose sums changed since the waiters were placed last
  std::set<std::pair<Time, AccountId>> due;  // accounts whose step may change by time alone
  bool replaced = false;                     // the tree, or the size of a device, changed since then
};

// The present standing of a tenant, with all tenants below it.
struct TenantStanding {
  Bytes bytes;               // charged on all devices
  int thousandths = 0;       // of devices
  Bytes borrowed;            // held by its leases beyond its quota, or without one while others have quotas
  int live = 0, queued = 0;  // leases that reserve memory, and that wait for their first grant or are held back
  Bytes parked;              // in the park ledger
};

// A name that is neither in the tree nor charged has an empty standing.
TenantStanding tenant_standing(const State& state, std::string_view name);
// The use that counts, to be stored.
TenantUse tenant_use(const State& state, const Rules& rules, std::string_view name, Time now);
// The use of all tenants that have any, and of the users below them: what a restart needs.
std::vector<TenantUse> tenant_uses(const State& state, const Rules& rules, Time now);
// The use as one number: bytes × ns, and devices by their weight.
double weighted_use(const TenantAccount& account, const Rules& rules, Time now);
Window window_of(const Rules& rules);
inline int weight_of(const TenantAccount& account) {
  return account.entry != nullptr ? account.entry->weight : usual_weight;
}

AccountId account_of(const State& state, LeaseId lease);  // 0: unknown
const TenantAccount& account(const State& state, AccountId id);
// The account of the tenant and user, which is made if need be.
AccountId open_account(State& state, std::string_view tenant, std::string_view user, std::uint32_t uid);
// The tree changes. The use of the accounts stays.
void set_tenants(State& state, const std::vector<Tenant>& tenants, const std::vector<TenantUse>& used);

// The lease as a part of a device: `bytes` charged there.
TenantMemory as_memory(const Device& device, Bytes bytes);
// Adds (`sign` 1) or takes away (-1) what a lease is charged on a device.
void charge_tenant(State& state, const Lease& lease, const Device& device, Bytes bytes, int sign);
// The same for all leases of the device, before and after its size changes.
void charge_device(State& state, const Device& device, int sign);
void count_present(State& state, LeaseId lease, int sign);
void count_parked(State& state, const Lease& lease, int sign);

}  // namespace sublet::core
