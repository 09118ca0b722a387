// SPDX-License-Identifier: Apache-2.0
// Handles signals, pipes and timers while a call to the daemon waits: one epoll descriptor with a handler for each.
// Single thread. Handlers must not call dispatch().
#pragma once

#include "base/fd.h"
#include "base/units.h"
#include "client/client.h"

#include <functional>
#include <map>

namespace sublet::keep {

class Events {
 public:
  Events();  // ends the program if no descriptor is free

  // `handler` runs whenever `fd` is readable, until forget(fd). Call forget(fd) before `fd` is closed.
  void watch(int fd, std::function<void()> handler);
  void forget(int fd);

  // A handler calls this to cancel the call in progress. It stays set until resume().
  void cancel() { cancelled_ = true; }
  void resume() { cancelled_ = false; }
  bool cancelled() const { return cancelled_; }

  // Runs the handlers of all ready descriptors without waiting. False if a cancel is set.
  bool dispatch();

  // Returns the interrupt for the client whose calls these events interrupt. Keeps a reference to this object.
  client::Interrupt interrupt() {
    return {epoll_.get(), [this] { return dispatch(); }};
  }

 private:
  Fd epoll_;
  std::map<int, std::function<void()>> handlers_;
  bool cancelled_ = false;
};

// Runs a handler once, after a delay. Must not outlive its Events.
class Timer {
 public:
  explicit Timer(Events& events);
  ~Timer();
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  void set(Duration delay, std::function<void()> handler);  // replaces the previous timer
  void clear();

 private:
  Events& events_;
  Fd fd_;
  std::function<void()> handler_;
};

}  // namespace sublet::keep
