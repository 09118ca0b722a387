// SPDX-License-Identifier: Apache-2.0
// Parks and brings back whole leases by the driver's checkpoint: every process of a lease that uses CUDA, each through
// a helper of its own (checkpoint_helper.h).
#pragma once

#include "base/error.h"
#include "base/fd.h"
#include "engine/parker.h"

#include <boost/asio/io_context.hpp>

#include <functional>
#include <memory>
#include <string>

namespace sublet::engine {

// The socket of a helper that serves on its other end, or why there is none: Denied, the process has other rights than
// who could park it; InUse, an earlier one for it, or one of those that are not needed any more, has not ended yet.
// Called once, at once or later.
using HelperStarted = std::function<void(Result<Fd>)>;
// Starts `sublet-gpu checkpoint` for a process of a lease; `to_bring_back`: not to park it.
using StartHelper = std::function<void(LeaseId, ProcessRef, bool to_bring_back, HelperStarted)>;

struct ParkerOptions {
  StartHelper start{};  // none: helpers are our children, and what they may is what we may
  std::string helper;   // path of sublet-gpu
  std::string driver;   // absolute path of the CUDA driver's library; "" = where the vendor installs it
  Duration lock_timeout = std::chrono::seconds(10);  // for one process to finish the work that it has submitted
};

class DriverParker final : public Parker {
 public:
  // A call of this lease that was given up has returned: the next unpark will find out what came of it.
  using Returned = std::function<void(LeaseId)>;

  DriverParker(boost::asio::io_context& io, ParkerOptions options, Returned returned = {});
  ~DriverParker() override;  // the helpers end by themselves; nobody is told of what was under way
  DriverParker(const DriverParker&) = delete;
  DriverParker& operator=(const DriverParker&) = delete;

  void park(LeaseId lease, Program program, Duration give_up, List list, Touch touch, Weigh weigh, Done done) override;
  void unpark(LeaseId lease, std::vector<ProcessRef> tree, std::vector<Room> room, Duration give_up,
              Done done) override;
  bool busy(LeaseId lease) const override;
  // Its helpers end, which unlocks processes that only wait; one that is parked stays so. A stuck helper is kept, so
  // that its process never gets a second.
  void forget(LeaseId lease) override;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace sublet::engine
