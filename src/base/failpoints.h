// SPDX-License-Identifier: Apache-2.0
// Places where a test ends the process, or makes the disk fail, at an exact moment. A failpoint is named after what is
// under way and the step it has reached: "granted.committed". None is armed unless the command line says so.
#pragma once

#include "base/error.h"

#include <atomic>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sublet {

class Failpoints {
 public:
  // Steps that can be interrupted, in order. Those at which the store can fail are steps of its writer.
  static constexpr std::string_view decided = "decided";      // nothing of it has left the state in memory
  static constexpr std::string_view queued = "queued";        // the store has been told to write it
  static constexpr std::string_view writing = "writing";      // the transaction is open, nothing of it is written
  static constexpr std::string_view written = "written";      // all is written, nothing is committed
  static constexpr std::string_view committed = "committed";  // it is durable, and nobody knows; failing = it may be
  static constexpr std::string_view told = "told";  // the engine knows; nothing has been acted on or announced
  static constexpr std::string_view done = "done";  // acted on and announced; its answer has not left

  Failpoints() = default;  // nothing is armed

  // "NAME=kill" (SIGKILL to this process when the failpoint is reached), "NAME=error" (the step fails, once); with "@3"
  // behind it, the third time that it is reached. "log": each that is reached is said on standard error, as
  // "failpoint NAME". `subjects`: what may stand before the step. Before any thread asks at().
  Status arm(std::string_view text, std::span<const std::string_view> subjects);

  // Whether the step of one of the subjects must fail; does not return where the process must end. Any thread.
  bool at(std::span<const std::string_view> subjects, std::string_view step);

  // All that can be armed, as arm() takes it, each for the first time that it is reached.
  static std::vector<std::string> list(std::span<const std::string_view> subjects);

 private:
  std::string name_;  // "" = none
  bool kill_ = false;
  bool log_ = false;
  std::atomic<int> left_ = 0;  // so many times it is still to be reached; then it happens
};

}  // namespace sublet
