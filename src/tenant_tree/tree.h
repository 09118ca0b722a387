// SPDX-License-Identifier: Apache-2.0
// The tree of tenants as a value: which trees are valid, what a change of the tree changes, and what it means for
// running leases. Plain values and pure functions.
#pragma once

#include "base/error.h"
#include "lease/tenant.h"
#include "state/state.h"

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sublet::tenants {

using core::Tenant;
using core::TenantAmount;

inline constexpr std::size_t most_tenants = 20'000;
// The number of an Error that names an entry: its index in the list.
inline constexpr const char* entry_number = "entry";

// A valid tree: unique names, known parents, no cycle, at most core::tenant_levels levels, and no quotas that add up to
// more than the quota or limit above them.
class Tree {
 public:
  Tree() = default;
  // An error names the first entry that is wrong, and has its index as `entry_number`.
  static Result<Tree> from(const std::vector<Tenant>& entries);

  const std::map<std::string, Tenant, std::less<>>& entries() const { return entries_; }
  const Tenant* find(std::string_view name) const;
  bool has_quotas() const;
  // The names of the children of each parent, by name; "": directly below the machine.
  using Children = std::map<std::string, std::vector<std::string>, std::less<>>;
  Children children() const;
  // The tenant and its ancestors, the nearest first. A name without an entry is alone.
  std::vector<std::string> path(std::string_view name) const;
  std::vector<std::string> below(std::string_view name) const;  // the entry and all below it, parents first
  std::vector<Tenant> list() const;                             // each parent before its children, which are by name
  // The quotas of the entries that have none above them.
  TenantAmount guaranteed() const;
  // The part of so much memory that the first quotas of all branches take, by the larger measure of each.
  double guaranteed_part(Bytes bytes, int thousandths) const;
  // BadRequest with both sums if the quotas do not fit this memory.
  Status check_memory(Bytes bytes, int thousandths) const;
  // The same tree with quotas that fit this memory: each is cut by the same part.
  Tree scaled_to(Bytes bytes, int thousandths) const;

 private:
  TenantAmount own_quota(const std::string& name) const;
  std::map<std::string, Tenant, std::less<>> entries_;
};

// ------------------------------------------------------------------------------------ changes

struct Change {
  enum class Kind { added, changed, removed } kind = Kind::added;
  std::string tenant;
  struct Field {
    std::string name;           // as of the file: "quota_devices"
    std::string before, after;  // as the file has them, without quotes: "4GiB"; "": not stated
    bool operator==(const Field&) const = default;
  };
  std::vector<Field> fields;  // those that differ; of an added or removed tenant those that are stated
  bool operator==(const Change&) const = default;
};
std::string_view to_string(Change::Kind kind);
std::vector<Change> changes(const Tree& before, const Tree& after);  // by name

// The fields of an entry as the file has them; parts that are not stated, or usual, are left out.
std::vector<std::pair<std::string, std::string>> field_texts(const Tenant& tenant);

// ------------------------------------------------------------------------------------ running leases

// The memory that a lease is charged for.
struct Charge {
  LeaseId lease;
  std::string tenant;
  Bytes bytes;
  std::int64_t thousandths = 0;
};
std::vector<Charge> charges(const core::State& state);  // of leases that have memory, by id

// A consequence of a change for a lease, which it did not have under the tree before.
struct Effect {
  enum class Kind {
    borrowed,        // a guarantee may take its memory back
    over_limit,      // a tenant above it exceeds its limit
    without_tenant,  // its tenant was removed
  } kind = Kind::borrowed;
  LeaseId lease;
  std::string tenant;  // of the lease
  std::string text;
  bool operator==(const Effect&) const = default;
};
std::string_view to_string(Effect::Kind kind);
std::vector<Effect> effects(const Tree& before, const Tree& after, const std::vector<Charge>& charges);

}  // namespace sublet::tenants
