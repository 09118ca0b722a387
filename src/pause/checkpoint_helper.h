// SPDX-License-Identifier: Apache-2.0
// The daemon's side of a helper that parks one process by the driver's checkpoint. A helper that hangs is never killed,
// because its driver call may still change the process. It gets no more questions until it answers or ends. Belongs to
// the loop thread.
#pragma once

#include "base/units.h"
#include "gpu/checkpoint_line.h"

#include <boost/asio/awaitable.hpp>

#include <functional>
#include <string>

namespace sublet::pause {

class CheckpointHelper {
 public:
  struct Answer {
    enum class Kind {
      replied,
      lost,   // there is no helper, or it ended before its answer; the effect of the driver call is not known
      stuck,  // no answer in time, now or earlier: the helper is still inside the driver
    };
    Kind kind = Kind::lost;
    gpu::CheckpointReply reply{};  // replied: the reply
    std::string problem{};         // lost: the reason
    bool denied = false;           // lost: the process has other rights than any helper can have
  };
  virtual ~CheckpointHelper() = default;

  // Asks a question; one at a time. `timeout` counts from now. The next question after a loss starts a new helper.
  virtual boost::asio::awaitable<Answer> ask(gpu::CheckpointCommand command, Duration timeout) = 0;

  // `returned` is called when a stuck helper has answered or ended. Its answer is dropped, except that a restore failed
  // for good. The caller must ask for the state of the process.
  virtual void when_returned(std::function<void()> returned) = 0;

  // The process needs no helper for now. A helper that the actor started ends, because their number is limited. The
  // next question starts a new one.
  virtual void rest() = 0;

  // Ends the helper after its driver call has returned. The helper unlocks a process that waits because of it. Every
  // question, also the current one, is answered `lost` from now on.
  virtual void dismiss() = 0;

  virtual bool stuck() const = 0;
  virtual gpu::CheckpointCall last_call() const = 0;
  virtual bool failed_for_good() const = 0;  // a restore reported that no restore of this process can succeed
};

}  // namespace sublet::pause
