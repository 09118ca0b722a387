// SPDX-License-Identifier: Apache-2.0
#include "state/lasting_use.h"

#include <utility>

namespace sublet::core {

void LastingUse::note(const std::map<ProcessRef, Bytes>& listed, Bytes unlisted, Time began) {
  const bool first = lows_.empty();
  if (!first) lows_.back().until = began;
  while (!first && !lows_.empty() && lows_.back().bytes >= unlisted) lows_.pop_back();
  lows_.push_back({unlisted, Time::never()});
  while (lows_.front().until <= began - least_age) lows_.pop_front();
  bytes_ = lows_.front().bytes;

  std::map<ProcessRef, Time> since;
  for (const auto& [process, used] : listed) {
    const auto before = listed_since_.find(process);
    const Time seen = before != listed_since_.end() ? before->second : first ? began - least_age : began;
    since.emplace(process, seen);
    if (began - seen >= least_age) bytes_ += used;
  }
  listed_since_ = std::move(since);
}

}  // namespace sublet::core
