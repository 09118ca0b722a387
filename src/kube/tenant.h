// SPDX-License-Identifier: Apache-2.0
// The tenant of a namespace: its labels are quota, limit and weight of the tenant that the daemon of this node has.
#pragma once

#include "kube/api_server.h"
#include "kube/daemon.h"
#include "kube/settings.h"

#include <map>
#include <mutex>
#include <string>

namespace sublet::kube {

// The labels sublet.dev/… of a namespace.
struct SpaceLabels {
  nlohmann::json fields = nlohmann::json::object();  // as of POST /v1/tenants/{name}
  std::string tier;                                  // highest one of its pods; "": any
};
// BadRequest if a label has a value that does not exist. Pure.
Result<SpaceLabels> parse_space(const nlohmann::json& object);

// The fields to send: those that differ from the daemon's entry, and null for those that were told and are no label
// now. Pure.
nlohmann::json tenant_change(const nlohmann::json& wanted, const nlohmann::json& told, const nlohmann::json& entry);

class Tenants {
 public:
  Tenants(const Settings& settings, const Daemon& daemon, const ApiServer& api)
      : settings_(settings), daemon_(daemon), api_(api) {}

  // Tells the daemon what the labels of the pod's namespace say, and keeps its tier in the pod. BadRequest: a label is
  // wrong. An entry that the daemon refuses gives the pod a warning. Blocks; any thread.
  Status join(Pod& pod) const;

 private:
  const Settings& settings_;
  const Daemon& daemon_;
  const ApiServer& api_;
  mutable std::mutex changing_;
  mutable std::map<std::string, std::string> complained_;  // last problem, by namespace; under the mutex

  Status keep(const std::string& space, const nlohmann::json& wanted) const;
  void warn(const Pod& pod, const Error& problem) const;
};

}  // namespace sublet::kube
