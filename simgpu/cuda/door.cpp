// SPDX-License-Identifier: Apache-2.0
#include "door.h"

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace simgpu {
namespace {

struct Door {
  std::atomic<std::uint64_t> inside{0};
  std::atomic<bool> closed{false};
  std::mutex mutex;
  std::condition_variable opened;
};

// Never destroyed: calls are possible until the process ends.
Door& door() {
  static auto* made = new Door;
  return *made;
}

thread_local constinit unsigned depth = 0;

}  // namespace

// Announced before the look: a thread that closes the door then sees every call that did not see it closed.
void enter_door() {
  if (depth++ != 0) return;
  Door& d = door();
  for (;;) {
    d.inside.fetch_add(1);
    if (!d.closed.load()) return;
    d.inside.fetch_sub(1);
    std::unique_lock lock(d.mutex);
    d.opened.wait(lock, [&] { return !d.closed.load(); });
  }
}

void leave_door() {
  if (--depth == 0) door().inside.fetch_sub(1);
}

void close_door() { door().closed = true; }

void open_door() {
  Door& d = door();
  {
    const std::lock_guard lock(d.mutex);
    d.closed = false;
  }
  d.opened.notify_all();
}

bool nobody_inside() { return door().inside.load() == 0; }

}  // namespace simgpu
