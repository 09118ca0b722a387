// SPDX-License-Identifier: Apache-2.0
// Pause methods, as the executor orders them. Each is one class here, and one row in core/methods.cpp for decisions.
// Belongs to the loop thread.
#pragma once

#include "lease/plan.h"
#include "pause/cooperation.h"
#include "pause/parker.h"

#include <memory>
#include <vector>

namespace sublet::pause {

class Method {
 public:
  // Questions of a method while it pauses a program.
  struct Questions {
    Parker::Program program;
    Parker::List list;
    Parker::Touch touch;
    Parker::Weigh weigh;
  };
  struct Needs {  // to resume a program
    std::vector<ProcessRef> tree;  // the processes that may have been changed
    std::vector<Room> room;
  };
  using Done = std::function<void(ParkOutcome)>;
  virtual ~Method() = default;

  virtual core::PauseMethod name() const = 0;
  virtual void pause(const core::Lease& lease, const core::Park& order, Questions questions, Done done) = 0;
  // Resumes the program, however far its pause had come.
  virtual void resume(const core::Lease& lease, const core::Unpark& order, const std::function<Needs()>& needs,
                      Done done) = 0;
  virtual void forget(const core::Lease& lease) = 0;  // the lease has ended; `done` is not called
};

// All methods that this version has.
std::vector<std::unique_ptr<Method>> all_methods(Parker& parker, Cooperation& cooperation);

}  // namespace sublet::pause
