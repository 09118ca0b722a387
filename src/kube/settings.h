// SPDX-License-Identifier: Apache-2.0
// The flags of sublet-kube. Each one may also be given by the environment: --node-name as SUBLET_KUBE_NODE_NAME.
#pragma once

#include "kube/units.h"

#include <string>
#include <variant>

namespace sublet::kube {

struct Settings {
  std::string node;    // name of this node in the cluster
  std::string socket;  // "": the daemon is found as `sublet` finds it
  std::string kubelet_dir = "/var/lib/kubelet";
  std::string cdi_dir = "/var/run/cdi";
  std::string state_dir = "/var/lib/sublet-kube";
  std::string cgroup_root = "/";  // as the kubelet's --cgroup-root
  std::string api_server;         // "": that of the pod that the agent runs in
  std::string token_file = "/var/run/secrets/kubernetes.io/serviceaccount/token";
  std::string ca_file = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt";
  std::string interposer;  // path on the node; "": containers do not get it
  std::string credit_dir;  // of the daemon, for the questions of the interposer; set at the start of the agent
  std::string probe;       // path of sublet-probe on the node; "": containers do not get it
  UnitRules rules;
  Duration start_wait = std::chrono::seconds(20);  // for memory, in one call of the kubelet
  bool plugin_door = true;
  bool dra_door = true;
  bool verbose = false;
};

// The settings, or the exit status of a call that asked for help or was wrong. Reads the environment.
std::variant<Settings, int> read_settings(int argc, char** argv);

}  // namespace sublet::kube
