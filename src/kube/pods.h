// SPDX-License-Identifier: Apache-2.0
// The pods of this node: their units by the kubelet, their objects by the API server, their groups by the kernel.
// Blocks; any thread.
#pragma once

#include "kube/api_server.h"
#include "kube/daemon.h"
#include "kube/pod.h"
#include "kube/settings.h"
#include "kube/tenant.h"

#include <string>
#include <vector>

namespace sublet::kube {

// A pod of this node, by the kubelet.
struct PodUnits {
  PodName name;
  std::vector<std::vector<std::string>> containers;  // ids of the units of each container that has any
};

// All pods of the node, with their units of this resource. Unavailable if the kubelet does not answer.
Result<std::vector<PodUnits>> list_pods(const std::string& kubelet_dir, const std::string& resource);

class Pods {
 public:
  Pods(const Settings& settings, const ApiServer& api, const Daemon& daemon)
      : settings_(settings), api_(api), tenants_(settings, daemon, api) {}

  const ApiServer& api() const { return api_; }

  // The pod whose container has these units. NotFound: the kubelet does not list it yet.
  Result<PodUnits> having(const std::vector<std::string>& units) const;

  // The objects of all pods that the kubelet lists. Each one is a call of the API server, which needs no right to list
  // the pods of other nodes.
  Result<nlohmann::json> on_node() const;

  // The pod's object. NotFound: it is deleted. BadRequest: one of its annotations is unknown or wrong.
  Result<Pod> read(const PodName& name) const;

  // Brings its namespace to the daemon (tenant.h), before its lease is asked for.
  Status join_tenant(Pod& pod) const { return tenants_.join(pod); }

  // Tells the pod by an event, and the log, that it is not paused for its probe. Nothing without a guard.
  void tell_guard(const Pod& pod) const;

  // Its tier, by its priority class, its namespace and its own wish.
  Result<std::string> tier(const Pod& pod) const;

  // The directory of its control group.
  Result<std::string> group(const Pod& pod) const;

  // The request of the pod by its units: its containers have one lease. `starting`: units of the container that starts.
  // BadRequest if there are no units.
  Result<Need> need(const Pod& pod, const PodUnits& units, const std::vector<std::string>& starting) const;

 private:
  const Settings& settings_;
  const ApiServer& api_;
  Tenants tenants_;

  Result<std::vector<PodUnits>> listed() const;
  Result<nlohmann::json> object_of(const PodName& name) const;
  Result<PodUnits> with_init_units(std::size_t count, const std::vector<PodUnits>& listed) const;
};

}  // namespace sublet::kube
