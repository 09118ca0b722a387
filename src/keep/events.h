// SPDX-License-Identifier: Apache-2.0
// What else may happen while a call to the daemon waits: one epoll descriptor over signals, pipes and timers, with a
// handler each. Single thread; handlers must not call dispatch().
#pragma once

#include "base/fd.h"
#include "base/units.h"
#include "client/client.h"

#include <functional>
#include <map>

namespace sublet::keep {

class Events {
 public:
  Events();  // ends the program if the kernel has no descriptor left

  // `handler` runs whenever `fd` is readable, until forget(fd), which must come before `fd` is closed.
  void watch(int fd, std::function<void()> handler);
  void forget(int fd);

  // A handler calls this to make the call under way end as cancelled. It stays asked for until resume().
  void cancel() { cancelled_ = true; }
  void resume() { cancelled_ = false; }
  bool cancelled() const { return cancelled_; }

  // Runs the handlers of what is ready now, without waiting. False if a cancel is asked for.
  bool dispatch();

  // To be given to the client whose calls these events interrupt. Refers to this object.
  client::Interrupt interrupt() {
    return {epoll_.get(), [this] { return dispatch(); }};
  }

 private:
  Fd epoll_;
  std::map<int, std::function<void()>> handlers_;
  bool cancelled_ = false;
};

// Runs a handler once, later. Must not outlive its Events.
class Timer {
 public:
  explicit Timer(Events& events);
  ~Timer();
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  void set(Duration delay, std::function<void()> handler);  // replaces what was set
  void clear();

 private:
  Events& events_;
  Fd fd_;
  std::function<void()> handler_;
};

}  // namespace sublet::keep
