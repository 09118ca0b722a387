// SPDX-License-Identifier: Apache-2.0
#include "kube/lease_events.h"

#include "client/event_stream.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>
#include <thread>

namespace sublet::kube {
namespace {

using namespace std::chrono_literals;

constexpr Duration longest_silence = 40s;  // the daemon gives a sign of life every 15 s
constexpr int again_after_ms = 1000;

void notify(const Fd& fd) {
  const std::uint64_t one = 1;
  (void)!::write(fd.get(), &one, sizeof one);
}

[[noreturn]] void follow(const client::Endpoint& endpoint, const Fd& changed) {
  for (;;) {
    client::EventStream stream(endpoint);
    if (stream.open("/v1/events?type=lease", "")) {
      notify(changed);
      while (stream.next(longest_silence)) notify(changed);
    }
    (void)::poll(nullptr, 0, again_after_ms);
  }
}

}  // namespace

std::shared_ptr<Fd> follow_lease_events(client::Endpoint endpoint) {
  auto changed = std::make_shared<Fd>(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  std::thread([endpoint = std::move(endpoint), changed] { follow(endpoint, *changed); }).detach();
  return changed;
}

}  // namespace sublet::kube
