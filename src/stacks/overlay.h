// SPDX-License-Identifier: Apache-2.0
// The Compose file that gives the containers of a stack their lease. Pure functions.
#pragma once

#include "base/ids.h"
#include "compose/worker.h"

#include <map>
#include <string>
#include <vector>

namespace sublet::stacks {

struct Grant {
  std::string stack;
  LeaseId lease;
  std::vector<std::string> devices;                // uuids
  std::map<std::string, std::string> environment;  // more variables, for simulated cards
  bool gpu_runtime = false;                        // device requests can be given to containers
  std::vector<std::string> interposed{};           // services that get the interposer, by the worker
};

// A Compose file as JSON, which is YAML. Each service gets CUDA_VISIBLE_DEVICES, NVIDIA_VISIBLE_DEVICES,
// CUDA_DEVICE_ORDER, SUBLET_LEASE and the labels sublet.lease, sublet.stack and sublet.file. With a GPU runtime, and if
// its file asks for GPUs, it also gets a request for exactly the lease's devices. Services
// with the interposer get SUBLET_CREDIT.
std::string make_overlay(const compose::Description& stack, const Grant& grant);

}  // namespace sublet::stacks
