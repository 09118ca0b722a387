// SPDX-License-Identifier: Apache-2.0
// The daemon's side of what parks one process by the driver's checkpoint. Nobody cuts it off: a driver call that
// changes a process and does not return may still be carried out, so a helper that hangs is kept, and asked nothing
// more, until it answers or ends. Belongs to the loop thread.
#pragma once

#include "base/units.h"
#include "gpu/checkpoint_line.h"

#include <boost/asio/awaitable.hpp>

#include <functional>
#include <string>

namespace sublet::engine {

class CheckpointHelper {
 public:
  struct Answer {
    enum class Kind {
      replied,
      lost,   // there is no helper, or it ended before it answered: nobody knows what the driver did
      stuck,  // it has not answered in time, now or earlier: it is still inside the driver
    };
    Kind kind = Kind::lost;
    gpu::CheckpointReply reply{};  // replied
    std::string problem{};         // lost: why …
    bool denied = false;           // … and that this process has other rights than any helper for it could have
  };
  virtual ~CheckpointHelper() = default;

  // One question at a time; `timeout` counts from now. A lost helper is started anew by the next question.
  virtual boost::asio::awaitable<Answer> ask(gpu::CheckpointCommand command, Duration timeout) = 0;

  // Called when a helper that was stuck has answered or ended. What it answered is forgotten, but for its being final:
  // the process is to be asked for its state.
  virtual void when_returned(std::function<void()> returned) = 0;

  // Its process needs it no more for now. Where somebody else starts helpers, of whom there may be only so many, it
  // ends, and the next question has another one started.
  virtual void rest() = 0;

  // It ends by itself once its driver call has returned, and unlocks the process if that only waits because of it.
  // Every question, also one under way, is answered `lost` from now on.
  virtual void dismiss() = 0;

  virtual bool stuck() const = 0;
  virtual gpu::CheckpointCall last_call() const = 0;
  virtual bool failed_for_good() const = 0;  // a restore of this process said that none can succeed
};

}  // namespace sublet::engine
