// SPDX-License-Identifier: Apache-2.0
// Keeps a `sublet-gpu probe` running, and asks it for snapshots: every interval, and at once on demand. A helper that
// dies is replaced. A helper that does not answer in time is abandoned, because a driver call may hang for ever. Then
// another is tried with back-off, up to a limit. Belongs to the loop thread.
#pragma once

#include "base/units.h"
#include "machine/probe.h"
#include "proc/spawn.h"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/steady_timer.hpp>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace sublet::machine {

struct ProbeOptions {
  std::string helper = {};                           // path of sublet-gpu
  std::string nvml = {};                             // path of the NVML library; "": the vendor's
  Duration timeout = std::chrono::seconds(10);       // gpu.timeout: without an answer in this time, the helper hangs
  Duration interval_busy = std::chrono::seconds(1);  // gpu.interval_busy
  Duration interval_idle = std::chrono::seconds(5);  // gpu.interval_idle
  Duration late = late_after;                        // without an answer in this time, the answer is late
};

// Process control and the pause between two tries. Tests replace it.
class HelperSystem {
 public:
  virtual ~HelperSystem() = default;
  virtual Result<proc::Helper> spawn(const ProbeOptions& options);  // starts a helper on a stream socket
  virtual void kill(pid_t helper);
  virtual bool ended(pid_t helper);  // whether it has ended; if so, it is reaped
  virtual boost::asio::awaitable<void> wait(Duration pause);
};

class HelperProbe final : public Probe {
 public:
  // `system` may be null; it must outlive the probe.
  HelperProbe(boost::asio::io_context& io, ProbeOptions options, HelperSystem* system = nullptr);
  ~HelperProbe() override;  // closes the socket, so that the helper exits

  void start(Events events) override;
  void stop() override;
  void take_now() override;
  void set_busy(bool busy) override;

  const std::string& library() const override { return library_; }
  const std::string& driver_version() const override { return driver_version_; }
  const std::string& problem() const override { return problem_; }

 private:
  struct Helper;
  boost::asio::awaitable<void> run();
  boost::asio::awaitable<std::string> ask();  // asks one question; returns the problem or ""
  void watch_answer(std::uint64_t id);
  boost::asio::awaitable<void> rest(Duration at_most);
  std::string spawn();
  void abandon();
  void reap();

  boost::asio::io_context& io_;
  ProbeOptions options_;
  HelperSystem children_;
  HelperSystem& system_;
  Events events_;
  std::unique_ptr<Helper> helper_;
  std::vector<std::unique_ptr<Helper>> abandoned_;
  boost::asio::steady_timer wake_;
  boost::asio::steady_timer late_;
  std::uint64_t last_id_ = 0;
  std::uint64_t open_id_ = 0;  // the question that waits for its answer; 0: none
  bool busy_ = true;
  bool wanted_now_ = false;
  bool stopped_ = false;
  std::string library_;
  std::string driver_version_;
  std::string problem_;
};

}  // namespace sublet::machine
