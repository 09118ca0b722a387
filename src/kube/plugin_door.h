// SPDX-License-Identifier: Apache-2.0
// The door for every version of Kubernetes: a device plugin whose devices are units of memory. It knows nothing that
// the kubelet does not tell again after a restart: the units of a pod tell its card and its size.
#pragma once

#include "kube/daemon.h"
#include "kube/pods.h"
#include "kube/settings.h"

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace sublet::kube {

class PluginDoor {
 public:
  PluginDoor(const Settings& settings, const Daemon& daemon, const Pods& pods);
  ~PluginDoor();

  // Makes the socket, if the kubelet has removed it or there is none, and tells the kubelet of it. Repeat it after each
  // start of the kubelet.
  Status enrol();
  bool is_enrolled() const;  // with the kubelet that runs now

  // The kubelet is told of changes. `program_env`: for containers, so that an admission needs no daemon.
  void set_cards(std::vector<Card> cards, std::map<std::string, std::string> program_env);

  static std::string directory(const Settings& settings) { return settings.kubelet_dir + "/device-plugins"; }

 private:
  struct Service;
  std::unique_ptr<Service> service_;
};

}  // namespace sublet::kube
