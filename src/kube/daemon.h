// SPDX-License-Identifier: Apache-2.0
// The daemon as the agent sees it: its cards, and the lease of a pod. Blocks; any thread, since each call has a
// connection of its own.
#pragma once

#include "client/client.h"
#include "kube/pod.h"
#include "kube/units.h"

#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace sublet::kube {

// The request of a pod.
struct Need {
  Bytes vram;                      // on each of the cards
  std::vector<std::string> cards;  // UUIDs; all of them
  std::string tier = "standard", pausable = "auto";
  std::string group;  // directory of the pod's control group
  int share = 0;      // percent of the computing time of each of the cards; 0: no bound
};

// The lease of a pod.
struct Held {
  std::string id, state, summary;  // summary: a sentence for people
  std::string group;
  std::string reason;                // cause of a pause, or ""
  std::string preemptor;             // "lease-9", or ""
  std::optional<std::string> until;  // RFC 3339: estimated end of a pause
  bool has_memory() const { return state == "active" || state == "offered"; }
};

class Daemon {
 public:
  explicit Daemon(client::Endpoint endpoint) : endpoint_(std::move(endpoint)) {}

  const client::Endpoint& endpoint() const { return endpoint_; }

  // The cards, in the order of their indices. Unavailable if the daemon has not read them.
  Result<std::vector<Card>> cards() const;
  // Environment that programs need to see simulated cards.
  Result<std::map<std::string, std::string>> program_environment() const;

  // Takes the lease of the pod's group, or returns the one that the group has. Waits for its memory at most until the
  // deadline (monotonic); a lease that still waits is no error.
  Result<Held> take(const Pod& pod, const Need& need, std::int64_t deadline_ns) const;

  // The living leases of pods, by the uid in the name of their group.
  Result<std::map<std::string, Held>> of_pods() const;
  // The tenant of this name, as of GET /v1/tenants/{name}. An empty object: there is none.
  Result<nlohmann::json> tenant(const std::string& name) const;
  // Changes fields of a tenant, which is made if there is none. Only admins may, as root is.
  Status change_tenant(const std::string& name, const nlohmann::json& fields) const;
  // The open verdicts about processes without a lease.
  Result<std::vector<nlohmann::json>> verdicts() const;
  // Gives a lease back. Success if there is none.
  Status release(const std::string& lease) const;

 private:
  client::Endpoint endpoint_;

  client::Client connect() const { return client::Client(endpoint_); }
};

Held held_from(const nlohmann::json& lease);
// The request for the lease of a pod.
nlohmann::json lease_request(const Pod& pod, const Need& need);

}  // namespace sublet::kube
