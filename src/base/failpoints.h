// SPDX-License-Identifier: Apache-2.0
// Places where a test ends the process, or makes the disk fail, at an exact moment. The name of a failpoint is the
// transition and the step that it has reached: "granted.committed". Only the command line arms a failpoint.
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
  // The steps that can be interrupted, in order. The store can fail at the steps of its writer.
  static constexpr std::string_view decided = "decided";  // the change is in memory only
  static constexpr std::string_view queued = "queued";    // the store has been given the change
  static constexpr std::string_view writing = "writing";  // the transaction is open, and nothing is written
  static constexpr std::string_view written = "written";  // all is written, and nothing is committed
  // The change is durable, and the engine does not know it; a failure leaves it possibly durable.
  static constexpr std::string_view committed = "committed";
  static constexpr std::string_view told = "told";  // the engine knows; nothing has been done or announced
  static constexpr std::string_view done = "done";  // the actions are done and announced; the answer has not been sent

  Failpoints() = default;  // nothing is armed

  // Arms a failpoint. "NAME=kill" ends this process with SIGKILL when the failpoint is reached. "NAME=error" makes the
  // step fail once. "@3" behind it means the third time. "log" prints each failpoint that is reached on standard error,
  // as "failpoint NAME". `subjects`: the allowed first parts of a name. Call before any thread calls at().
  Status arm(std::string_view text, std::span<const std::string_view> subjects);

  // Whether this step of one of the subjects must fail. Does not return if the process must end. Any thread.
  bool at(std::span<const std::string_view> subjects, std::string_view step);

  // Returns all failpoints that can be armed, in the form that arm() takes.
  static std::vector<std::string> list(std::span<const std::string_view> subjects);

 private:
  std::string name_;  // "": none is armed
  bool kill_ = false;
  bool log_ = false;
  std::atomic<int> left_ = 0;  // how many times the armed failpoint must still be reached
};

}  // namespace sublet
