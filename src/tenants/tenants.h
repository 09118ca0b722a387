// SPDX-License-Identifier: Apache-2.0
// The capability tenants: keeps the tree of tenants and the use of each, and gives both to the core. Belongs to the
// loop thread.
#pragma once

#include "engine/capability.h"
#include "engine/engine.h"
#include "engine/records.h"
#include "tenant_tree/tree.h"
#include "tenants/rows.h"

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sublet::tenants {

class Tenants final : public engine::Capability {
 public:
  // Keeps a reference. Call Capabilities::add() with it.
  explicit Tenants(engine::Engine& engine);

  // --- requests of admins; the rows are stored with the answer ---
  void set(Tree tree, const std::string& by);  // `by`: account name, for the event

  const Tree& tree() const { return tree_; }
  // The tree as the core has it: its quotas are cut if the present devices have less memory than they add up to.
  const Tree& in_force() const { return in_force_; }

  // The memory of the present devices, for leases, or of all that were ever read; nothing before the first reading.
  struct Memory {
    Bytes bytes;
    int thousandths = 0;
    bool operator==(const Memory&) const = default;
  };
  std::optional<Memory> memory(bool lost_too = false) const;

  // Leases that wait for memory within the guarantee of their tenant, and since when. As of the last reading.
  const std::map<LeaseId, Time>& unserved() const { return unserved_; }
  // A guarantee that is not served for so long is a warning.
  static constexpr Duration served_within = std::chrono::minutes(2);

  // --- Capability ---
  void loaded(const store::Loaded& rows, Time now) override;
  std::vector<core::Fact> first_facts() const override;
  void happened(const core::Plan& plan, Time now) override;
  void measured(Time now) override;
  Time due(Time now) override;
  std::vector<engine::Warning> warnings(Time now) const override;

 private:
  Tree cut_to_memory() const;
  void put_in_force(bool anew);
  void look_at_waiters(Time now);
  core::TenantUse use_until(Time now, StoredUse stored) const;

  engine::Engine& engine_;
  Tree tree_, in_force_;
  TenantAmount guaranteed_;                                      // of `tree_`
  engine::Records<std::string> rows_;                            // entries by name
  engine::Records<std::string> uses_;                            // uses by the name of the account
  std::vector<core::TenantUse> loaded_;                          // uses for the core, until it has them
  std::map<std::string, core::TenantMemory, std::less<>> held_;  // by account: when its use was stored last
  std::map<LeaseId, Time> unserved_;
  std::optional<Memory> memory_;  // as of the last reading
  bool memory_changed_ = false;   // since the last look
  bool is_cut_ = false;           // the quotas in force are less than those of `tree_`
};

}  // namespace sublet::tenants
