// SPDX-License-Identifier: Apache-2.0
// Reasons as data: the kind of a decision and its arguments. The sentences of decisions are made in
// reason_text.cpp; refusals, hints and estimates are not data yet. Plain data.
#pragma once

#include "base/ids.h"
#include "base/units.h"
#include "lease/pause_cause.h"
#include "lease/reason_args.h"

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sublet::core {

// One value for each kind of sentence (lease/reasons.inc).
enum class ReasonKind : std::uint8_t {
#define SUBLET_REASON(kind, code, subject, sentence) kind,
#include "lease/reasons.inc"
#undef SUBLET_REASON
};

std::string_view to_string(ReasonKind kind);  // its word in the API and in the store
std::optional<ReasonKind> parse_reason_kind(std::string_view text);
// The name of the transition that tests interrupt (lease/transitions.h). "": of an end, the word of its EndReason.
std::string_view subject_of(ReasonKind kind);

// Why something was decided about a lease; stored with the lease, shown by `sublet why`.
struct Reason {
  LeaseId lease;
  Time at;
  ReasonKind kind = ReasonKind::note;
  ReasonArgs args = {};
};

std::string_view code(const Reason& reason);  // its public code in the API: "queued", "granted", "ended", …
std::string text_of(const Reason& reason);    // one sentence with the numbers
std::string text_of(const PauseCause& cause);

// The sentence of a fragment ("need", "shortage", …) alone, for errors that say the same as a reason.
std::string text_of_fragment(std::string_view fragment, const ReasonArgs& args);

}  // namespace sublet::core
