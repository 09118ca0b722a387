// SPDX-License-Identifier: Apache-2.0
#include "core/reason_kinds.h"

#include <algorithm>

namespace sublet::core {
namespace {

using K = ReasonKind;

constexpr std::array<ReasonRow, reason_kinds> rows{{
    {K::note, "note", "note", "queued", "{text}"},

    {K::queued, "queued", "queued", "queued", "queued at place {place} of {waiting}: {#shortage}"},
    {K::preemption_requested, "preemption_requested", "queued", "preemption_requested",
     "{requester} requested memory for the lease: other leases are paused for it[ later: {later}]"},
    {K::preemption_obstructed, "preemption_obstructed", "queued", "queued",
     "no lease is paused for it now: {obstacles}"},
    {K::granted, "granted", "granted", "granted", "granted {#grant}"},
    {K::offered, "offered", "offered", "offered", "offered {#grant}; claim the offer within {window}"},
    {K::claimed, "claimed", "claimed", "claimed", "claimed {after} after the offer"},
    {K::attached, "attached", "attached", "attached",
     "its program is pid {pid} with all processes that pid {pid} starts[; the program's parent, pid {keeper}, is its "
     "keeper and keeps its exit status]"},
    {K::lapsed, "lapsed", "lapsed", "lapsed",
     "[pid {waiter}, which waits for the lease, does not answer: ]the offer was not claimed within {window}; queued "
     "again at place {place}, behind equal leases; the next offer is the last"},
    {K::capacity_reserved, "capacity_reserved", "capacity_reserved", "capacity_reserved",
     "has waited {waited}: memory that becomes free on {devices} is reserved for the lease; leases behind it start "
     "first only if they do not delay it[; it should start in {starts}]"},
    {K::blocked_by_processes, "blocked_by_processes", "blocked", "blocked",
     "{problem}: {processes:holds} on {device}; the lease {@needs}"},
    {K::blocked_by_missing_device, "blocked_by_missing_device", "blocked", "blocked",
     "{problem}: {gone}; its program stays as it is[{?will_resume} and resumes when the device is back][{?may_resume} "
     "and can resume when the device is back]; after {forget_after} without the device the lease ends if another "
     "device is left"},

    {K::resizing, "resizing", "resizing", "resizing", "queued at place {place} of {waiting}: {#shortage}"},
    {K::shrunk, "shrunk", "resized", "resized", "shrunk from {from:down} to {vram:down} on {devices:each}"},
    {K::grown, "grown", "resized", "grown",
     "grown from {from:down} to {vram:down} on {devices:each} after waiting {waited}"},
    {K::resize_withdrawn_by_owner, "resize_withdrawn_by_owner", "resized", "resize_withdrawn",
     "no longer waits to grow to {wanted:down} and keeps {vram:down}: its owner asked for {asked:down}"},
    {K::resize_withdrawn_by_pause, "resize_withdrawn_by_pause", "resized", "resize_withdrawn",
     "no longer waits to grow to {wanted:down} and keeps {vram:down}: the lease is paused"},
    {K::resize_hopeless, "resize_hopeless", "resized", "resize_withdrawn",
     "no longer waits to grow to {wanted:down} and keeps {vram:down}: {#hopeless}"},

    {K::amended, "amended", "amended", "amended",
     "changed on request:[ user {user}][ tier {tier}][ pausable {pausable}][ priority {priority}][ ceiling "
     "{ceiling:down}][{?no_ceiling} no ceiling]"
     "[ soft limit {soft:down}][{?no_soft} no soft limit]"},
    {K::over_soft_limit, "over_soft_limit", "over_soft_limit", "over_soft_limit",
     "its program uses {used} on {device}, more than its soft limit of {soft:down}[; at its ceiling of {ceiling:down} "
     "the program is ended][; until then it gets at most {percent} % of a processor][; its processor time is not "
     "limited: {unlimited}]"},
    {K::memory_kept, "memory_kept", "memory_kept", "memory_kept",
     "its memory stays reserved for the next start of its program, for at most {kept}"},
    {K::idle_warned, "idle_warned", "idle_warned", "idle_warned",
     "its program has done nothing on {devices:each} for {idle}[; it is paused after {pause} without work[{?waiting} "
     "if another lease waits for memory]][; the lease ends after {end} without work][{?ending}; it ends as soon as its "
     "program runs again] ({rule})"},

    {K::cooperates, "cooperates", "cooperates", "cooperates",
     "its program frees its memory itself when asked: [pid {poller} asks for its orders][the daemon calls {address}]"
     "[the daemon signals pid {signalled}]; while paused it keeps at most {residue} on each device"},
    {K::cooperation_withdrawn, "cooperation_withdrawn", "cooperates", "cooperation_withdrawn",
     "its program no longer frees its memory itself"},
    {K::pausing_by_program, "pausing_by_program", "pausing", "pausing",
     "{#cause}: its program is asked to free up to {bytes} on {devices:each} within {within}; host memory for "
     "these bytes is set aside in the park ledger"},
    {K::pausing_by_driver, "pausing_by_driver", "pausing", "pausing",
     "{#cause}: the driver is asked to free up to {bytes} on {devices:each}; host memory for these bytes is set aside "
     "in the park ledger"},
    {K::pausing_holds_more, "pausing_holds_more", "pausing", "pausing",
     "its program holds {bytes}, {more} more than when the pause began; host memory for these bytes is set aside in "
     "the park ledger"},
    {K::pausing_stuck, "pausing_stuck", "pausing", "pausing",
     "stuck: the driver should have parked its program within {allowed} and has not returned; the lease keeps its "
     "memory, and others are paused in its place"},
    {K::stays_after_pausing, "stays_after_pausing", "pausing", "stays_paused",
     "stays paused after this pause: its owner asked for it"},
    {K::unverified, "unverified", "unverified", "unverified",
     "Unverified: its memory is said to be free, and no measurement confirms it: {problem}; the pause is undone "
     "{timeout} after it was said unless a measurement confirms it before"},
    {K::paused, "paused", "paused", "paused",
     "the pause took {took}: its program gave the memory up, and readings of the card showed {settled} later that this "
     "memory is free[; {parked} are parked in host memory]"},
    {K::pause_failed, "pause_failed", "resuming", "undone", "{#undone}: {#pause_failed}{#next_method}"},
    {K::pause_disproved, "pause_disproved", "resuming", "undone", "{#undone}: {#pause_disproved}{#next_method}"},
    {K::pause_unmeasured, "pause_unmeasured", "resuming", "undone", "{#undone}: {#pause_unmeasured}"},
    {K::pause_interrupted, "pause_interrupted", "resuming", "undone", "{#undone}: {#pause_interrupted}"},
    {K::allocated_while_paused, "allocated_while_paused", "allocated_while_paused", "allocated_while_paused",
     "holds {holds} again while it is paused, and may keep {residue} on each device; nothing is granted against "
     "this memory"},
    {K::parking_again, "parking_again", "allocated_while_paused", "parking_again",
     "the {method} is asked to park up to {bytes} on {devices:each} that its program allocated while it was paused; "
     "host memory for these bytes is set aside in the park ledger"},
    {K::parking_again_failed, "parking_again_failed", "allocated_while_paused", "parking_again_failed",
     "the memory that its program allocated while it was paused could not be parked: {detail}"},

    {K::resume_queued, "resume_queued", "queued", "resume_queued",
     "waits to resume at place {place} of {waiting}: {#shortage}"},
    {K::resume_withdrawn, "resume_withdrawn", "paused", "stays_paused", "stays paused: its owner asked for it"},
    {K::resume_hopeless, "resume_hopeless", "paused", "stays_paused", "stays paused: {#hopeless}"},
    {K::resuming, "resuming", "resuming", "resuming",
     "has {vram:down} on {devices:each} again, {away} after the pause began; the restore of its program begins"},
    {K::resuming_without_device, "resuming_without_device", "resuming", "resuming",
     "its device {device} is gone for good: its program is resumed without it"},
    {K::resuming_to_end, "resuming_to_end", "resuming", "resuming",
     "its device {device} is gone and the lease is to end: its program is resumed without the device"},
    {K::resuming_stuck, "resuming_stuck", "resuming", "resuming",
     "stuck: the driver should have restored its program within {allowed} and has not returned; the lease keeps its "
     "memory, and its program runs again when the driver returns"},
    {K::resume_failed, "resume_failed", "resuming", "not_yet",
     "its program does not run yet: {detail}[; its processes allocated {beside} while it was paused, and {parked} must "
     "return into its {vram:down}]; the daemon tries again and again"},
    {K::resumed, "resumed", "resumed", "resumed",
     "[its program runs again {after} after the pause began][{!after}its program runs on: the pause had not touched "
     "it]"},
    {K::poisoned, "poisoned", "poisoned", "poisoned",
     "its program can never be restored: {detail}; [{?ends}it was to be ended and is ended as it is]"
     "[{!ends}it is kept, and not killed][{?nothing_parked}; none of its memory is in host memory]"},

    {K::stop_deferred, "stop_deferred", "stopping", "deferred",
     "[{?signalled}its program is asked to end as soon as it runs again][{!signalled}the lease ends as soon as its "
     "program runs again; Sublet did not start the program and does not end it]"},
    {K::stopping, "stopping", "stopping", "stopping",
     "its program is asked to end, and is killed if it still lives after {grace}"},
    {K::stopping_unresponsive, "stopping_unresponsive", "stopping", "stopping",
     "its program was to end once it runs again, and has not resumed for {silent} since it was asked: it is ended as "
     "it is"},
    {K::stopping_instead_of_return, "stopping_instead_of_return", "paused", "stays_paused",
     "is ended as it is and does not run again first: {#hopeless}"},
    {K::killing, "killing", "killing", "killing",
     "its program was asked to end {asked} ago and still lives: it is killed"},

    {K::cancelled_by_owner, "cancelled_by_owner", "ended", "",
     "{end}: its owner withdrew it while it was {state}{#ended}"},
    {K::cancelled_by_admin, "cancelled_by_admin", "ended", "", "{end}: an admin ended it while it was {state}{#ended}"},
    {K::released_by_owner, "released_by_owner", "ended", "", "{end}: its owner gave it back{#left}{#ended}"},
    {K::revoked_by_admin, "revoked_by_admin", "ended", "", "{end}: an admin took it back{#left}{#ended}"},
    {K::ended_while_waiting, "ended_while_waiting", "ended", "",
     "{end}: its process ended while the lease was {state}{#ended}"},
    {K::program_stopped, "program_stopped", "ended", "", "{end}: its program was stopped and ended {#status}{#ended}"},
    {K::program_killed, "program_killed", "ended", "",
     "{end}: a signal that Sublet did not send killed its program, {#status}{#ended}"},
    {K::program_signalled, "program_signalled", "ended", "",
     "{end}: its program ended by the {signal} that `sublet run` got and forwarded, {#status}{#ended}"},
    {K::program_exited, "program_exited", "ended", "", "{end}: its program exited {#status}{#ended}"},
    {K::program_lost, "program_lost", "ended", "",
     "{end}: its program has ended, and its keeper did not report the exit status{#ended}"},
    {K::program_failed, "program_failed", "ended", "", "{end}: its program could not start: {detail}{#ended}"},
    {K::ended_on_resume, "ended_on_resume", "ended", "",
     "{end}: it was to end as soon as its program ran again{#ended}"},
    {K::ended_unrestorable, "ended_unrestorable", "ended", "",
     "{end}: it was to end as soon as its program ran again, and the program never will: {detail}{#ended}"},
    {K::time_over, "time_over", "ended", "", "{end}: its time of {ttl} is over{#ended}"},
    {K::owner_disconnected, "owner_disconnected", "ended", "",
     "{end}: its owner has had no connection open for {gone}{#ended}"},
    {K::unclaimed, "unclaimed", "ended", "",
     "{end}: [pid {waiter}, which waited for the lease, does not answer: ]two offers were not claimed within "
     "{window}{#ended}"},
    {K::orphaned, "orphaned", "ended", "orphaned",
     "{end}: it has been paused for {paused}, and none of its processes has lived for {empty}: none is left to "
     "resume{#ended}"},
    {K::rejected, "rejected", "ended", "", "{end}: {#need}; {#hopeless}{#ended}"},
    {K::device_gone, "device_gone", "ended", "device_gone",
     "{end}: its device {device} has been missing from {snapshots} snapshots over {missing}[{?parked}, and nothing "
     "else can restore its program][: the program is asked to end, and is killed if it still lives after "
     "{signal_grace}][{?foreign}: Sublet did not start the program and does not end it]{#ended}"},
    {K::machine_rebooted, "machine_rebooted", "ended", "",
     "{end}: the machine was rebooted, so its program and its VRAM are gone"},
    {K::over_ceiling, "over_ceiling", "ended", "",
     "{end}: its program used {used} on {device}, more than its ceiling of {ceiling:down}[{?killed}: it is killed]"
     "{#ended}"},
    {K::idle_ended, "idle_ended", "ended", "",
     "{end}: its program has done nothing for {idle}, and its idle rule allows {limit} ({rule}){#ended}"},
    {K::spot_unresponsive, "spot_unresponsive", "ended", "spot_ended",
     "{end}: {#cause}; it is a spot lease whose program has not resumed for {silent} since it was asked to{#ended}"},
    {K::spot_obstructed, "spot_obstructed", "ended", "spot_ended", "{end}: {#unpausable}: {obstacle}{#ended}"},
    {K::spot_too_large, "spot_too_large", "ended", "spot_ended",
     "{end}: {#unpausable}: host memory takes at most {most} of its {reserved} ({bound}){#ended}"},
    {K::spot_unused, "spot_unused", "ended", "spot_ended",
     "{end}: {#unpausable}: its program has held nothing on a device for a while that could be parked{#ended}"},
    {K::spot_without_program, "spot_without_program", "ended", "spot_ended",
     "{end}: {#unpausable}: no program of it appeared for {idle} (`pause.spot_unused_after`){#ended}"},
    {K::spot_unregistered, "spot_unregistered", "ended", "spot_ended",
     "{end}: {#unpausable}: no program said for {idle} how it frees its memory (`pause.spot_unused_after`){#ended}"},
    {K::spot_unpausable, "spot_unpausable", "ended", "spot_ended", "{end}: {#unpausable}{#ended}"},

    {K::settled, "settled", "settled", "settled",
     "a reading of {device} showed {after} after its end that its memory is free again"},
}};

constexpr bool in_order() {
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (rows[i].kind != static_cast<ReasonKind>(i)) return false;
  return true;
}
static_assert(in_order(), "a row for each kind, in the order of the kinds");

struct Fragment {
  std::string_view name, text;
};
constexpr Fragment fragments[]{
    {"need", "needs {vram:down}[ instead of {has:down}][ or at least {min}][ on each of {devices_each} devices]"},
    {"shortage",
     "{#need}[ and {beyond} more that its processes hold above its size][; {free:down} is free on {device}[, {lacks} "
     "less]][; nothing is free on {full_device}: {over} more is taken than may be promised][ ({problem})][; memory is "
     "held by {holders}][; free memory is unknown: {unknown}][; {no_device}][; {#reserved}]"},
    {"reserved",
     "free memory on {reserved_on} is reserved for {reserved_for}, which has waited {reserved_since} and needs "
     "{reserved_bytes:down}[; it should start in {reserved_start}][{!reserved_start}; its start is unknown]"},
    {"devices", "{devices}"},
    {"on_devices", " on {devices:each}"},
    {"hopeless",
     "[at most {most:down} of {total} can be had on {device}[, the last of {devices_each} devices], where the driver "
     "keeps {driver_keeps} and {headroom} is headroom][there are only {present} devices][{gone}; the devices are "
     "{known}]"},
    {"grant",
     "{vram:down}[ of the {asked:down} asked for] on {devices:each}, where {free:down} was free[ (measured {look} "
     "before)], after waiting {waited}"},
    {"status", "[with status {status}][{!status}with an unknown status]"},
    {"left",
     "[{?stays_parked}; its program stays parked: Sublet did not start it and does not end it][{?not_back}; its "
     "program has not reported that it runs again: Sublet did not start it and does not end it]"},
    {"ended",
     "[; its program is asked to end, and is killed if it still lives after {grace}][; the lease held {size:down} on "
     "{on:each}[ and used at most {peak}]]"},
    {"undone", "[{?begun}the pause is undone][{!begun}the lease is not paused]"},
    {"pause_failed", "{detail}"},
    {"pause_disproved", "its memory was said to be free, and {after} later its program still held {holds}"},
    {"pause_unmeasured", "[{?problem}Unverified: ]its memory was not measured free within {timeout}[: {problem}]"},
    {"pause_interrupted", "the daemon restarted during the pause"},
    {"note", "{text}"},
    {"next_method", "[; the {next} is tried next][; the {next_if_wanted} is tried next if the memory is still wanted]"},
    {"unpausable", "{#cause}; it is a spot lease that cannot be paused"},
    {"needs.memory", "needs {vram:down}, and {free:down} is free"},
    {"needs.return", "needs {vram:down} to resume, and {free:down} is free; it resumes when that memory is free"},
    {"needs.restore", "has {vram:down} reserved there; its program is restored when that memory is free"},
    // Fragments of PauseCause, by its word.
    {"cause", "{@cause}"},
    {"asked", "[, which asked for {asked:down}[ instead of {asked_from:down}][ on each of {asked_devices} devices]]"},
    {"cause.owner_request", "requested by its owner"},
    {"cause.admin_request", "requested by an admin"},
    {"cause.tier", "preempted for {preemptor} of the tier {tier}{#asked}"},
    {"cause.slice", "time slice of {preemptor}{#asked}"},
    {"cause.owner_preemption", "its owner requested memory for {preemptor}{#asked}"},
    {"cause.admin_preemption", "an admin requested memory for {preemptor}{#asked}"},
    {"cause.allocated_while_paused", "its processes allocated while the lease was paused"},
    {"cause.driver_failed",
     "the driver can never restore it[{?nothing_parked}, and its program keeps what it holds on its devices]: "
     "{detail}"},
    {"cause.soft_limit", "its program uses more than its soft limit of {soft:down} while others wait for memory"},
    {"cause.idle", "its program has done nothing for {idle}[, and {preemptor} waits for memory]"},
    {"cause.max_continuous", "its session has held its memory for {held} without a break while others wait for memory"},
    {"cause.note", "{text}"},
};

constexpr std::array<std::pair<PauseCauseKind, std::string_view>, 12> causes{{
    {PauseCauseKind::owner_request, "owner_request"},
    {PauseCauseKind::admin_request, "admin_request"},
    {PauseCauseKind::tier, "tier"},
    {PauseCauseKind::slice, "slice"},
    {PauseCauseKind::owner_preemption, "owner_preemption"},
    {PauseCauseKind::admin_preemption, "admin_preemption"},
    {PauseCauseKind::allocated_while_paused, "allocated_while_paused"},
    {PauseCauseKind::driver_failed, "driver_failed"},
    {PauseCauseKind::soft_limit, "soft_limit"},
    {PauseCauseKind::idle, "idle"},
    {PauseCauseKind::max_continuous, "max_continuous"},
    {PauseCauseKind::note, "note"},
}};

}  // namespace

const ReasonRow& row_of(ReasonKind kind) { return rows[static_cast<std::size_t>(kind)]; }

std::string_view fragment_of(std::string_view name) {
  const auto* const found = std::ranges::find(fragments, name, &Fragment::name);
  return found == std::end(fragments) ? std::string_view() : found->text;
}

std::string_view to_string(ReasonKind kind) { return row_of(kind).word; }
std::string_view subject_of(ReasonKind kind) { return row_of(kind).subject; }

std::optional<ReasonKind> parse_reason_kind(std::string_view text) {
  const auto* const found = std::ranges::find(rows, text, &ReasonRow::word);
  return found == rows.end() ? std::nullopt : std::optional(found->kind);
}

std::string_view to_string(PauseCauseKind kind) { return causes[static_cast<std::size_t>(kind)].second; }

std::optional<PauseCauseKind> parse_pause_cause_kind(std::string_view text) {
  for (const auto& [kind, word] : causes)
    if (word == text) return kind;
  return std::nullopt;
}

}  // namespace sublet::core
