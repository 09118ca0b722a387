// SPDX-License-Identifier: Apache-2.0
// A holder of memory on a device, for texts. A value.
#pragma once

#include "base/ids.h"
#include "base/units.h"

#include <string>

namespace sublet::core {

struct Holder {
  LeaseId lease;     // none: unleased processes, or bytes of no listed process
  std::string what;  // "lease-3 (train, ana)", "pid 4711 (python3, without a lease)", "bytes of no listed process"
  Bytes bytes;
};

}  // namespace sublet::core
