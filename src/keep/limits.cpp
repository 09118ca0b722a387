// SPDX-License-Identifier: Apache-2.0
#include "keep/limits.h"

#include <algorithm>

namespace sublet::keep {
namespace {

constexpr int raised[] = {RLIMIT_CPU, RLIMIT_FSIZE, RLIMIT_NOFILE, RLIMIT_STACK, RLIMIT_DATA, RLIMIT_AS};

bool set(int resource, const rlimit& values) {
  return ::setrlimit(static_cast<__rlimit_resource_t>(resource), &values) == 0;
}

}  // namespace

std::vector<Limit> raise_limits() {
  std::vector<Limit> before;
  for (const int resource : raised) {
    Limit limit{resource, {}};
    if (::getrlimit(static_cast<__rlimit_resource_t>(resource), &limit.values) != 0) continue;
    before.push_back(limit);
    // Only a privileged process may raise the hard limit; no process may have infinitely many open files.
    const rlim_t hard = limit.values.rlim_max;
    if (hard == RLIM_INFINITY || !set(resource, {RLIM_INFINITY, RLIM_INFINITY})) (void)set(resource, {hard, hard});
  }
  return before;
}

void set_limits(const std::vector<Limit>& limits) {
  for (const Limit& limit : limits) {
    rlimit now{};
    if (set(limit.resource, limit.values)) continue;
    if (::getrlimit(static_cast<__rlimit_resource_t>(limit.resource), &now) != 0) continue;
    // Only a privileged process may raise the hard limit.
    const rlim_t hard = std::min(limit.values.rlim_max, now.rlim_max);
    (void)set(limit.resource, {std::min(limit.values.rlim_cur, hard), hard});
  }
}

}  // namespace sublet::keep
