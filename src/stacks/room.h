// SPDX-License-Identifier: Apache-2.0
// The choice of released stacks that are brought down for a waiting lease. Pure functions.
#pragma once

#include "base/units.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace sublet::stacks {

// The bytes that a lease lacks.
struct Need {
  Bytes each;                        // on each of `count` devices
  int count = 1;                     // number of devices
  std::vector<std::string> devices;  // uuids of the devices that it may have
};

// A stack that is up and not acquired, or a lease that is about to leave its memory.
struct Idle {
  std::string name;
  std::vector<std::string> devices;
  Bytes each;           // bytes of its lease on each of its devices
  Time since;           // when it was released
  bool leaves = false;  // it gives up its memory already
};

// Names of the stacks to bring down: on each device the fewest, the one that was released first before others. Empty:
// the need is met without another one. Unset: no set of stacks meets the need. `free`: bytes by device.
std::optional<std::vector<std::string>> choose_idle(const Need& need, const std::map<std::string, Bytes>& free,
                                                    std::vector<Idle> idle);

}  // namespace sublet::stacks
