// SPDX-License-Identifier: Apache-2.0
// The keys of a file with a tree of tenants.
#include "config/schema.h"

namespace sublet::config {
namespace {

using Entry = Config::TenantEntry;

std::vector<Entry>& entries(Config& config) { return config.tenants.entries; }

constexpr Field fields[] = {
    {"highest_priority", "-1000000", "1000000", "Highest priority of its leases.", field<&Entry::highest_priority>()},
    {"limit", "0", "1024TiB", "Most memory that its leases hold on all devices.", field<&Entry::limit>()},
    {"limit_devices", "0", "1000", "The same in devices; a part of a device's memory is a part of it.",
     field<&Entry::limit_devices>()},
    {"live_leases", "0", "1000000", "Most leases that hold memory.", field<&Entry::live_leases>()},
    {"longest_lease", "1s", "36500d", "Longest time to live of a lease, and that of a lease that asks for none.",
     field<&Entry::longest_lease>()},
    {"name", "1", "", "Name, unique in the tree.", field<&Entry::name>(), true},
    {"on_limit", "queue refuse", "", "What a request over a limit meets.", field<&Entry::on_limit>()},
    {"parent", "", "", "The tenant above. Empty: none.", field<&Entry::parent>()},
    {"park_share", "0", "1", "Part of the park ledger's limit for its paused programs.", field<&Entry::park_share>()},
    {"queued_leases", "0", "1000000", "Most leases that wait.", field<&Entry::queued_leases>()},
    {"quota", "0", "1024TiB", "Guaranteed memory on all devices.", field<&Entry::quota>()},
    {"quota_devices", "0", "1000", "The same in devices; a part of a device's memory is a part of it.",
     field<&Entry::quota_devices>()},
    {"tiers", "critical interactive standard batch spot", "", "Tiers that its leases may have. None: all.",
     field<&Entry::tiers>()},
    {"weight", "0.001", "1000000", "Its part of what no quota guarantees, against its siblings.",
     field<&Entry::weight>()},
};

constexpr List lists[] = {
    {"tenant", "A tenant: a team, a project or a user.", "name", fields, rows<entries>()},
};

}  // namespace

const Schema& tenant_schema() {
  static constexpr Schema ours{{}, lists};
  return ours;
}

}  // namespace sublet::config
