// SPDX-License-Identifier: Apache-2.0
// sublet-kube: the agent of a Kubernetes node.
#include "kube/agent.h"

#include <unistd.h>

#include <cstdlib>

// std::random_device in gRPC asks glibc for this function, which glibc has since 2.36. A release runs on older systems.
extern "C" __uint32_t arc4random() noexcept {
  __uint32_t number = 0;
  if (::getentropy(&number, sizeof number) != 0) std::abort();
  return number;
}

int main(int argc, char** argv) {
  const auto settings = sublet::kube::read_settings(argc, argv);
  if (const int* status = std::get_if<int>(&settings)) return *status;
  return sublet::kube::run(std::get<sublet::kube::Settings>(settings));
}
