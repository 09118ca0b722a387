// SPDX-License-Identifier: Apache-2.0
#include "cli/nested.h"

#include "proc/process_table.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>

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

std::optional<client::Lease> outer_lease(client::Client& client) {
  auto lease = named_lease(client);
  if (!lease || !lease->granted()) return std::nullopt;
  if (!below(lease->owner_pid) && !below(lease->keeper_pid)) return std::nullopt;
  return lease;
}

bool is_visible_list_of_lease(client::Client& client, std::string_view visible) {
  const auto lease = named_lease(client);
  return lease && fmt::format("{}", fmt::join(lease->devices, ",")) == visible;
}

}  // namespace sublet::cli
