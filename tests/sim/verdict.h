// SPDX-License-Identifier: Apache-2.0
// The result of a run: the first violation, the cases that were met, and a hash of all that happened.
#pragma once

#include "coverage.h"
#include "figures.h"

#include <cstdint>
#include <string>
#include <string_view>

namespace sublet::sim {

class Verdict {
 public:
  // Keeps the first violation: the invariant, by a short name that does not change, and what was seen.
  void fail(std::string_view invariant, std::string detail) {
    if (failed()) return;
    invariant_ = invariant;
    detail_ = std::move(detail);
  }
  // `detail` is made only when it is needed.
  template <typename Detail>
  void expect(bool holds, std::string_view invariant, const Detail& detail) {
    if (!holds && !failed()) fail(invariant, detail());
  }
  bool failed() const { return !invariant_.empty(); }
  const std::string& invariant() const { return invariant_; }
  const std::string& detail() const { return detail_; }

  void mix(std::uint64_t value) { hash_ = (hash_ ^ value) * 0x100000001b3ULL; }
  void mix(std::string_view text) {
    for (const char c : text) mix(static_cast<unsigned char>(c));
    mix(text.size());
  }
  std::uint64_t hash() const { return hash_; }

  Coverage met;
  Figures figures;

 private:
  std::string invariant_, detail_;
  std::uint64_t hash_ = 0xcbf29ce484222325ULL;
};

}  // namespace sublet::sim
