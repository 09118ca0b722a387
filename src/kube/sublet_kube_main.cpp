// SPDX-License-Identifier: Apache-2.0
// sublet-kube: the agent of a Kubernetes node.
#include "kube/agent.h"

int main(int argc, char** argv) {
  const auto settings = sublet::kube::read_settings(argc, argv);
  if (const int* status = std::get_if<int>(&settings)) return *status;
  return sublet::kube::run(std::get<sublet::kube::Settings>(settings));
}
