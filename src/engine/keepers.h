// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/error.h"
#include "base/ids.h"

#include <cstdint>
#include <functional>
#include <string>

namespace sublet::engine {

struct KeeperOrder {
  std::uint32_t uid = 0;
  std::string user;
  std::string document;
  std::string log_dir;
};

class Keepers {
 public:
  virtual ~Keepers() = default;
  virtual void start(const KeeperOrder& order, std::function<void(Result<ProcessRef>)> done) = 0;
};

}  // namespace sublet::engine
