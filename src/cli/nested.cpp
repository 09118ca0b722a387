// SPDX-License-Identifier: Apache-2.0
#include "cli/nested.h"

#include "base/number.h"
#include "cli/output.h"
#include "proc/process_table.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <set>

namespace sublet::cli {
namespace {

bool below(std::int32_t ancestor) {
  const auto root = proc::ProcRoot::open();
  if (!root || ancestor <= 1) return false;
  std::int32_t pid = ::getpid();
  for (int depth = 0; depth < 1000 && pid > 1; ++depth) {
    const auto process = root->read(pid);
    if (!process) return false;
    if (process->ppid == ancestor) return true;
    pid = process->ppid;
  }
  return false;
}

// The lease that the environment names; it may have ended.
std::optional<client::Lease> named_lease(client::Client& client) {
  const char* id = std::getenv("SUBLET_LEASE");
  const char* host = std::getenv("SUBLET_HOST");
  if (id == nullptr || *id == '\0' || host == nullptr || client.endpoint().url() != host) return std::nullopt;
  const auto reply = client.get("/v1/leases/" + client::encode(id));
  if (!reply) return std::nullopt;
  auto lease = client::parse_lease(reply->text);
  if (!lease) return std::nullopt;
  return std::move(*lease);
}

}  // namespace

std::optional<client::Lease> outer_lease(client::Client& client, const nlohmann::json& status) {
  if (const std::string inside = text_at(status, "inside"); !inside.empty()) {
    const auto reply = client.get("/v1/leases/" + client::encode(inside));
    if (!reply) return std::nullopt;
    auto found = client::parse_lease(reply->text);
    if (!found || !found->granted()) return std::nullopt;
    return std::move(*found);
  }
  auto lease = named_lease(client);
  if (!lease || !lease->granted()) return std::nullopt;
  if (!below(lease->owner_pid) && !below(lease->keeper_pid)) return std::nullopt;
  return lease;
}

bool has_environment_of(const client::Lease& lease) {
  const char* id = std::getenv("SUBLET_LEASE");
  return id != nullptr && lease.id == id;
}

bool names_exactly(std::string_view visible, const std::vector<std::string>& uuids, const nlohmann::json& status) {
  std::set<std::string> meant;
  std::size_t count = 0;
  for (std::size_t at = 0; at <= visible.size(); ++count) {
    const auto comma = std::min(visible.find(',', at), visible.size());
    const std::string entry(visible.substr(at, comma - at));
    const auto index = parse_number<std::int64_t>(entry);
    const auto& devices = list_at(status, "devices");
    const auto named = std::ranges::find_if(
        devices, [&](const nlohmann::json& device) { return index && number_at(device, "index") == index; });
    meant.insert(named == devices.end() ? entry : text_at(*named, "uuid"));
    at = comma + 1;
  }
  return count == uuids.size() && meant == std::set<std::string>(uuids.begin(), uuids.end());
}

bool is_visible_list_of_lease(client::Client& client, std::string_view visible, const nlohmann::json& status) {
  const auto lease = named_lease(client);
  return lease && names_exactly(visible, lease->devices, status);
}

}  // namespace sublet::cli
