// SPDX-License-Identifier: Apache-2.0
// Keeps one `sublet-gpu probe` running and asks it for snapshots: every interval, and at once on demand. A helper that
// dies is replaced; one that does not answer in time is abandoned (a driver call may hang for ever) and another is
// tried, with back-off and never more than a few. Belongs to the loop thread.
#pragma once

#include "base/units.h"
#include "engine/probe.h"
#include "proc/spawn.h"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/steady_timer.hpp>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace sublet::engine {

struct ProbeOptions {
  std::string helper = {};                           // path of sublet-gpu
  std::string nvml = {};                             // path of the NVML library, "" = the vendor's
  Duration timeout = std::chrono::seconds(10);       // gpu.timeout: no answer in this time = hanging
  Duration interval_busy = std::chrono::seconds(1);  // gpu.interval_busy
  Duration interval_idle = std::chrono::seconds(5);  // gpu.interval_idle
};

// What it does to processes and how it waits between two tries. Tests put others in its place.
class HelperSystem {
 public:
  virtual ~HelperSystem() = default;
  virtual Result<proc::Helper> spawn(const ProbeOptions& options);  // on a stream socket
  virtual void kill(pid_t helper);
  virtual bool ended(pid_t helper);  // and it has been waited for
  virtual boost::asio::awaitable<void> wait(Duration pause);
};

class HelperProbe final : public Probe {
 public:
  // `system`, if given, outlives the probe.
  HelperProbe(boost::asio::io_context& io, ProbeOptions options, HelperSystem* system = nullptr);
  ~HelperProbe() override;  // closes the socket, at which the helper exits

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
  boost::asio::awaitable<std::string> ask();  // one question; returns the problem or ""
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
  std::uint64_t last_id_ = 0;
  bool busy_ = true;
  bool wanted_now_ = false;
  bool stopped_ = false;
  std::string library_;
  std::string driver_version_;
  std::string problem_;
};

}  // namespace sublet::engine
