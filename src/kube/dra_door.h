// SPDX-License-Identifier: Apache-2.0
// The door for Kubernetes 1.36 and later: a driver for dynamic resource allocation. The scheduler knows each card, and
// a claim asks for bytes.
#pragma once

#include "kube/claim.h"
#include "kube/daemon.h"
#include "kube/pods.h"
#include "kube/settings.h"

#include <memory>
#include <string>
#include <vector>

namespace sublet::kube {

class DraDoor {
 public:
  DraDoor(const Settings& settings, const Daemon& daemon, const Pods& pods);
  ~DraDoor();

  // Makes the sockets that are missing. The kubelet finds the driver by its socket and registers it.
  Status open();
  void set_cards(std::vector<Card> cards);
  // Tells the scheduler of the cards. Blocks, as `review` does; one thread for both.
  Status publish();

  // Looks at the claims that were prepared: a pod without a lease gets another one, and what a deleted claim has left
  // is removed.
  void review();

  static std::string registry(const Settings& settings) { return settings.kubelet_dir + "/plugins_registry"; }

 private:
  struct Service;
  struct Registration;
  std::unique_ptr<Service> service_;
  std::unique_ptr<Registration> registration_;
};

}  // namespace sublet::kube
