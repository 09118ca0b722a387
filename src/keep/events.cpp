// SPDX-License-Identifier: Apache-2.0
#include "keep/events.h"

#include <sys/epoll.h>
#include <sys/timerfd.h>

#include <cstdio>
#include <cstdlib>

namespace sublet::keep {

namespace {

[[noreturn]] void no_descriptor(const char* what) {
  std::perror(what);
  std::exit(125);
}

}  // namespace

Events::Events() : epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
  if (!epoll_) no_descriptor("sublet: epoll");
}

void Events::watch(int fd, std::function<void()> handler) {
  handlers_[fd] = std::move(handler);
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = fd;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) no_descriptor("sublet: epoll");
}

void Events::forget(int fd) {
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  handlers_.erase(fd);
}

bool Events::dispatch() {
  epoll_event ready[8];
  const int n = ::epoll_wait(epoll_.get(), ready, 8, 0);
  for (int i = 0; i < n; ++i) {
    // A handler may have forgotten another ready descriptor, or its own. Hence the lookup and the copy.
    const auto found = handlers_.find(ready[i].data.fd);
    if (found == handlers_.end()) continue;
    const auto handler = found->second;
    handler();
  }
  return !cancelled_;
}

Timer::Timer(Events& events) : events_(events), fd_(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)) {
  if (!fd_) no_descriptor("sublet: timerfd");
  events_.watch(fd_.get(), [this] {
    std::uint64_t expirations = 0;
    if (::read(fd_.get(), &expirations, sizeof expirations) < 0) return;  // the timer was set again meanwhile
    const auto handler = std::exchange(handler_, nullptr);
    if (handler) handler();
  });
}

Timer::~Timer() { events_.forget(fd_.get()); }

void Timer::set(Duration delay, std::function<void()> handler) {
  handler_ = std::move(handler);
  const std::int64_t ns = std::max<std::int64_t>(delay.count(), 1);  // 0 would disarm the timer
  itimerspec spec{};
  spec.it_value = {ns / 1'000'000'000, ns % 1'000'000'000};
  ::timerfd_settime(fd_.get(), 0, &spec, nullptr);
}

void Timer::clear() {
  handler_ = nullptr;
  const itimerspec off{};
  ::timerfd_settime(fd_.get(), 0, &off, nullptr);
}

}  // namespace sublet::keep
