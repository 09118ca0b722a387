// SPDX-License-Identifier: Apache-2.0
// A timer of the engine. Belongs to the loop thread.
#pragma once

#include "base/units.h"

#include <boost/asio/steady_timer.hpp>

#include <functional>

namespace sublet::machine {

class Alarm {
 public:
  virtual ~Alarm() = default;
  // Calls `ring` once on the loop, after at least `from_now`. Replaces an earlier setting.
  virtual void set(Duration from_now, std::function<void()> ring) = 0;
  virtual void cancel() = 0;
};

class LoopAlarm final : public Alarm {
 public:
  explicit LoopAlarm(boost::asio::io_context& io) : timer_(io) {}
  void set(Duration from_now, std::function<void()> ring) override {
    timer_.expires_after(std::chrono::duration_cast<std::chrono::steady_clock::duration>(from_now));
    timer_.async_wait([ring = std::move(ring)](const boost::system::error_code& cancelled) {
      if (!cancelled) ring();
    });
  }
  void cancel() override { timer_.cancel(); }

 private:
  boost::asio::steady_timer timer_;
};

}  // namespace sublet::machine
