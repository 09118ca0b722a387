// SPDX-License-Identifier: Apache-2.0
#include "enforcer/ancestry.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace sublet::enforcer {
namespace {

// Where the chains part; the length of the shorter one if they do not.
std::size_t fork_of(const Ancestry& one, const Ancestry& other) {
  const std::size_t most = std::min(one.size(), other.size());
  std::size_t at = 0;
  while (at < most && one[at].process.pid == other[at].process.pid) ++at;
  return at;
}

}  // namespace

Ancestry keep_ancestry(Ancestry known, const Ancestry& shown) {
  if (known.empty()) return shown;
  for (std::size_t i = 0; i < std::min(known.size(), shown.size()) && !known[i].dead; ++i) {
    if (known[i].process == shown[i].process) continue;
    known[i].dead = true;  // only a process without a parent gets another one
    break;
  }
  return known;
}

Ancestry merge_ancestry(Ancestry known, Ancestry traced, bool& taken) {
  const std::size_t at = fork_of(known, traced);
  const bool seen_dead = at < known.size() && known[at].dead && (at == traced.size() || !traced[at].dead);
  taken = !traced.empty() && !seen_dead && (known.empty() || at < traced.size() || at == known.size());
  return taken ? std::move(traced) : std::move(known);
}

}  // namespace sublet::enforcer
