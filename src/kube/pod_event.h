// SPDX-License-Identifier: Apache-2.0
// Events of pods and of this node, merged: one object for each subject and reason, whose count grows.
#pragma once

#include "kube/api_server.h"
#include "kube/pod.h"

#include <string>

namespace sublet::kube {

struct PodEvent {
  PodName pod;  // without a namespace: the event is one of the node
  std::string uid;
  std::string reason;  // "VramParked"
  std::string message;
  bool warning = false;
};

// Blocks.
Status write_event(const ApiServer& api, const std::string& node, const PodEvent& event);

// "2026-11-29T14:05:00Z"
std::string kube_time(Time at);

}  // namespace sublet::kube
