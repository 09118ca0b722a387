// SPDX-License-Identifier: Apache-2.0
// A helper that is a process: `sublet-gpu checkpoint` at the other end of a socket. If the daemon starts it, it starts
// with the first question and is kept. For another user's process the actor starts it, and it ends in rest().
#pragma once

#include "base/error.h"
#include "base/fd.h"
#include "base/ids.h"
#include "machine/actor.h"
#include "pause/checkpoint_helper.h"
#include "pause/driver_parker.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace sublet::pause {

// Starts `sublet-gpu checkpoint` for a process of a lease. `to_bring_back`: for a resume.
using StartHelper = std::function<void(LeaseId, ProcessRef, bool to_bring_back, machine::HelperStarted)>;

struct LocalParking {
  StartHelper start{};  // none: helpers are our children with our rights
  std::string helper;   // path of sublet-gpu
  std::string driver;   // absolute path of the CUDA driver's library; "": the vendor's places
  Duration lock_timeout = ParkerOptions{}.lock_timeout;
};

// Returns the options for parking on this machine.
ParkerOptions local_parking(boost::asio::io_context& io, LocalParking options);

// Reaps children that were told to end or have ended. It looks regularly while there are any.
class Reaper : public std::enable_shared_from_this<Reaper> {
 public:
  explicit Reaper(boost::asio::io_context& io) : timer_(io) {}
  ~Reaper() { reap(); }
  Reaper(const Reaper&) = delete;
  void add(pid_t child);  // takes a child of ours that is not reaped

 private:
  void reap();
  void look_later();

  boost::asio::steady_timer timer_;
  std::vector<pid_t> children_;
  bool looking_ = false;
};

class LocalCheckpointHelper final : public CheckpointHelper,
                                    public std::enable_shared_from_this<LocalCheckpointHelper> {
 public:
  struct Options {
    std::string program;  // path of sublet-gpu
    std::string driver;   // absolute path of the CUDA driver's library; "": the vendor's places
    // Starts the helper by other means; then `program` and `driver` are not used.
    std::function<void(bool to_bring_back, std::function<void(Result<Fd>)>)> start{};
  };

  LocalCheckpointHelper(boost::asio::io_context& io, Options options, ProcessRef target,
                        std::shared_ptr<Reaper> reaper);
  ~LocalCheckpointHelper() override;
  LocalCheckpointHelper(const LocalCheckpointHelper&) = delete;

  boost::asio::awaitable<Answer> ask(gpu::CheckpointCommand command, Duration timeout) override;
  void when_returned(std::function<void()> returned) override { returned_ = std::move(returned); }
  void rest() override;
  void dismiss() override;  // closes the socket
  bool stuck() const override { return stuck_; }
  gpu::CheckpointCall last_call() const override { return last_call_; }
  bool failed_for_good() const override { return failed_for_good_; }

 private:
  struct Link;
  boost::asio::awaitable<Answer> ask_once(gpu::CheckpointCommand command, Duration timeout);
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
  std::shared_ptr<Link> link_;  // none: there is no helper
  boost::asio::steady_timer wake_;
  std::uint64_t last_id_ = 0;
  gpu::CheckpointCall last_call_{};
  bool opening_ = false;
  bool asked_ = false;  // last_id_ has not been answered
  bool stuck_ = false;  // the caller has given up waiting for last_id_
  bool failed_for_good_ = false;
  bool dismissed_ = false;
  std::optional<gpu::CheckpointReply> reply_;
  std::string problem_;
  std::function<void()> returned_;
};

}  // namespace sublet::pause
