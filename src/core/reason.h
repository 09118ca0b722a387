// SPDX-License-Identifier: Apache-2.0
// Reasons as data: the kind of a decision and its arguments. The sentences of decisions are made in
// reason_text.cpp; refusals, hints and estimates are not data yet. Plain data.
#pragma once

#include "base/ids.h"
#include "base/units.h"
#include "core/pause_cause.h"
#include "core/reason_args.h"

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sublet::core {

// One value for each kind of sentence; reason_kinds.cpp has a row for each, in this order.
enum class ReasonKind : std::uint8_t {
  note,  // text of an earlier version
  // waiting and getting memory
  queued,
  preemption_requested,
  preemption_obstructed,
  granted,
  offered,
  claimed,
  attached,
  lapsed,
  capacity_reserved,
  blocked_by_processes,
  blocked_by_missing_device,
  // another size
  resizing,
  shrunk,
  grown,
  resize_withdrawn_by_owner,
  resize_withdrawn_by_pause,
  resize_hopeless,
  // limits, and other changes by a capability
  amended,
  over_soft_limit,
  memory_kept,
  idle_warned,
  // paused
  cooperates,
  cooperation_withdrawn,
  pausing_by_program,
  pausing_by_driver,
  pausing_holds_more,
  pausing_stuck,
  stays_after_pausing,
  unverified,
  paused,
  pause_failed,
  pause_disproved,
  pause_unmeasured,
  pause_interrupted,
  allocated_while_paused,
  parking_again,
  parking_again_failed,
  // back again
  resume_queued,
  resume_withdrawn,
  resume_hopeless,
  resuming,
  resuming_without_device,
  resuming_to_end,
  resuming_stuck,
  resume_failed,
  resumed,
  poisoned,
  // on the way to the end
  stop_deferred,
  stopping,
  stopping_unresponsive,
  stopping_instead_of_return,
  killing,
  // ended: by the owner or an admin
  cancelled_by_owner,
  cancelled_by_admin,
  released_by_owner,
  revoked_by_admin,
  // ended: with the program
  ended_while_waiting,
  program_stopped,
  program_killed,
  program_signalled,
  program_exited,
  program_lost,
  program_failed,
  ended_on_resume,
  ended_unrestorable,
  // ended: by time or with the machine
  time_over,
  owner_disconnected,
  unclaimed,
  orphaned,
  rejected,
  device_gone,
  machine_rebooted,
  over_ceiling,
  idle_ended,
  // ended: a spot lease for a waiting lease
  spot_unresponsive,
  spot_obstructed,
  spot_too_large,
  spot_unused,
  spot_without_program,
  spot_unregistered,
  spot_unpausable,
  // after the end
  settled,
};
inline constexpr std::size_t reason_kinds = static_cast<std::size_t>(ReasonKind::settled) + 1;

std::string_view to_string(ReasonKind kind);  // its word in the API and in the store
std::optional<ReasonKind> parse_reason_kind(std::string_view text);
// The name of the transition that tests interrupt (core/transitions.h). "": of an end, the word of its EndReason.
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
