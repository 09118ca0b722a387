// SPDX-License-Identifier: Apache-2.0
#include "kube/object_writer.h"

#include "base/clock.h"

#include <algorithm>
#include <cstdint>
#include <limits>

namespace sublet::kube {

ObjectWriter::ObjectWriter(const Settings& settings, const Daemon& daemon, const Pods& pods, DraDoor& dra)
    : settings_(settings), dra_(dra), teller_(settings, daemon, pods), strays_(settings, daemon, pods), thread_([this] {
        work();
      }) {}

ObjectWriter::~ObjectWriter() {
  wake(ends_);
  thread_.join();
}

void ObjectWriter::wake(bool& what) {
  {
    const std::scoped_lock lock(mutex_);
    what = true;
  }
  changed_.notify_all();
}

void ObjectWriter::work() {
  std::int64_t round_at = std::numeric_limits<std::int64_t>::max(), tell_at = round_at;  // monotonic
  int failures = 0;
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      const Duration left(
          std::clamp<std::int64_t>(std::min(round_at, tell_at) - monotonic_ns(), 0, usual_round.count()));
      changed_.wait_for(lock, left, [this] { return ends_ || cards_due_ || leases_due_; });
      if (ends_) return;
      if (std::exchange(cards_due_, false)) round_at = 0;
      if (std::exchange(leases_due_, false)) tell_at = 0;
    }
    if (monotonic_ns() >= round_at) {
      failures = round() ? 0 : failures + 1;
      round_at = monotonic_ns() + next_round(failures).count();
    }
    if (monotonic_ns() >= tell_at) tell_at = monotonic_ns() + teller_.work().value_or(usual_round).count();
  }
}

bool ObjectWriter::round() {
  if (settings_.dra_door) {
    if (auto published = dra_.publish(); !published) return complaint_.tell(published.error());
    dra_.review();
  }
  // No reason to ask again soon: the slice is well.
  if (const Status told = strays_.look(); !told) return complaint_.tell(told.error()), true;
  complaint_.clear();
  return true;
}

}  // namespace sublet::kube
