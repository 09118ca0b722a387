// SPDX-License-Identifier: Apache-2.0
// The daemon's side of one `sublet-gpu checkpoint`: the helper that parks one process. It is started when first asked
// by us, and kept warm; or, where its process is another user's, by the actor, and let go when it rests. Nobody cuts it
// off: a driver call that changes a process and does not return may still be carried out, so a helper that hangs is
// kept, and asked nothing more, until it answers or ends. Belongs to the loop thread.
#pragma once

#include "base/error.h"
#include "base/fd.h"
#include "base/ids.h"
#include "base/units.h"
#include "gpu/checkpoint_line.h"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace sublet::engine {

// Waits for children that were told to end, or have ended, so that none stays a zombie. Looks from time to time, and
// only while there is any.
class Reaper : public std::enable_shared_from_this<Reaper> {
 public:
  explicit Reaper(boost::asio::io_context& io) : timer_(io) {}
  void add(pid_t child);  // a child of ours that nobody has waited for
  void stop();            // looks no more

 private:
  void reap();
  void look_later();

  boost::asio::steady_timer timer_;
  std::vector<pid_t> children_;
  bool looking_ = false;
  bool stopped_ = false;
};

class CheckpointHelper : public std::enable_shared_from_this<CheckpointHelper> {
 public:
  struct Options {
    std::string program;  // path of sublet-gpu
    std::string driver;   // absolute path of the CUDA driver's library; "" = where the vendor installs it
    // Starts it in another way than as our child, which program and driver are for.
    std::function<void(bool to_bring_back, std::function<void(Result<Fd>)>)> start{};
  };
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

  CheckpointHelper(boost::asio::io_context& io, Options options, ProcessRef target, std::shared_ptr<Reaper> reaper);
  ~CheckpointHelper();

  // One question at a time; `timeout` counts from now. A lost helper is started anew by the next question.
  boost::asio::awaitable<Answer> ask(gpu::CheckpointCommand command, Duration timeout);

  // Called when a helper that was stuck has answered or ended. What it answered is forgotten, but for its being final:
  // the process is to be asked for its state.
  void when_returned(std::function<void()> returned) { returned_ = std::move(returned); }

  // Its process needs it no more for now. Where somebody else starts helpers, of whom there may be only so many, it
  // ends, and the next question has another one started.
  void rest();

  // Closes the socket. At that it ends by itself, once its driver call has returned, and unlocks the process if that
  // only waits because of it. Every question, also one under way, is answered `lost` from now on.
  void dismiss();

  ProcessRef target() const { return target_; }
  pid_t pid() const;  // of the helper that serves now; 0: none, or it is not our child
  bool stuck() const { return stuck_; }
  gpu::CheckpointCall last_call() const { return last_call_; }
  bool failed_for_good() const { return failed_for_good_; }  // a restore of this process said that none can succeed

 private:
  struct Link;
  boost::asio::awaitable<Status> open(bool to_bring_back);
  boost::asio::awaitable<Result<Fd>> have_started(bool to_bring_back);
  Status spawn();
  Status serve_on(Fd socket, pid_t child);
  bool send(const std::string& line);
  void read();
  void take(const std::shared_ptr<Link>& from, std::size_t size);
  void take_line(std::string_view line);
  void answered();
  void lose(std::string why);

  boost::asio::io_context& io_;
  Options options_;
  ProcessRef target_;
  std::shared_ptr<Reaper> reaper_;
  std::shared_ptr<Link> link_;  // none: no helper serves
  boost::asio::steady_timer wake_;
  std::uint64_t last_id_ = 0;
  gpu::CheckpointCall last_call_{};
  bool opening_ = false;
  bool asked_ = false;  // last_id_ has not been answered
  bool stuck_ = false;  // and whoever asked has given up waiting
  bool failed_for_good_ = false;
  bool dismissed_ = false;
  std::optional<gpu::CheckpointReply> reply_;
  std::string problem_;
  std::function<void()> returned_;
};

}  // namespace sublet::engine
