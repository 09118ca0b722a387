// SPDX-License-Identifier: Apache-2.0
#include "kube/events.h"

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

[[noreturn]] void follow(const client::Endpoint& endpoint, const Events& events) {
  for (;;) {
    client::EventStream stream(endpoint);
    if (stream.open("/v1/events?type=lease,device,service,verdict", "")) {
      notify(events.leases);
      while (const auto event = stream.next(longest_silence))
        notify(event->type == "lease" ? events.leases : events.cards);
    }
    (void)::poll(nullptr, 0, again_after_ms);
  }
}

}  // namespace

std::shared_ptr<Events> follow_events(client::Endpoint endpoint) {
  auto events = std::make_shared<Events>();
  events->leases = Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  events->cards = Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  std::thread([endpoint = std::move(endpoint), events] { follow(endpoint, *events); }).detach();
  return events;
}

}  // namespace sublet::kube
