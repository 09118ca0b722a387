// SPDX-License-Identifier: Apache-2.0
#include "lease/reason_kinds.h"

#include <algorithm>

namespace sublet::core {
namespace {

constexpr ReasonRow rows[]{
#define SUBLET_REASON(kind, code, subject, sentence) {ReasonKind::kind, #kind, code, subject, sentence},
#include "lease/reasons.inc"
#undef SUBLET_REASON
};

struct Fragment {
  std::string_view name, text;
};
constexpr Fragment fragments[]{
    {"need",
     "needs {vram:down}[ instead of {has:down}][ or at least {min}][ on each of {devices_each} devices][ among "
     "{among}][ on one of {one_of}]"},
    {"shortage",
     "{#need}[ and {beyond} more that its processes hold above its size][; {free:down} is free on {device}[, {lacks} "
     "less]][; nothing is free on {full_device}: {over} more is taken than may be promised][ ({problem})][; memory is "
     "held by {holders}][; free memory is unknown: {unknown}][; {no_device}][; {closed}][; {#reserved}]"},
    {"reserved",
     "free memory on {reserved_on} is reserved for {reserved_for}, which has waited {reserved_since} and needs "
     "{reserved_bytes:down}[; it should start in {reserved_start}][{!reserved_start}; its start is unknown]"},
    {"devices", "{devices}"},
    {"on_devices", " on {devices:each}"},
    {"hopeless",
     "[at most {most:down} of {total} can be had on {device}[, the last of {devices_each} devices], where the driver "
     "keeps {driver_keeps} and {headroom} is headroom[, and {system} is for the system]][there are only {present} "
     "devices][{gone}; the devices are {known}]"},
    {"grant",
     "{vram:down}[ of the {asked:down} asked for] on {devices:each}, where {free:down} was free[ (measured {look} "
     "before)], after waiting {waited}{#chosen}"},
    {"chosen",
     "[{?only}; no other device could give it that][{?linked}; linked by {@linked}][; chosen by {policy}[ among "
     "{choices} devices][: usual requests lose {costs} there, {next_costs} on {next}][{?used_before}: {next} is not in "
     "use][; {leaves} stays free there, {next_leaves} on {next}[{?next_linked}, linked by {@next_linked}]]]"},
    {"linked.nvlink", "NVLink"},
    {"linked.pcie_switch", "a PCIe switch"},
    {"linked.numa", "their NUMA node"},
    {"next_linked.nvlink", "NVLink"},
    {"next_linked.pcie_switch", "a PCIe switch"},
    {"next_linked.numa", "their NUMA node"},
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
    {"cause", "{@cause}"},
    {"asked", "[, which asked for {asked:down}[ instead of {asked_from:down}][ on each of {asked_devices} devices]]"},
#define SUBLET_PAUSE_CAUSE(kind, sentence) {"cause." #kind, sentence},
#include "lease/pause_causes.inc"
#undef SUBLET_PAUSE_CAUSE
};

constexpr std::string_view causes[]{
#define SUBLET_PAUSE_CAUSE(kind, sentence) #kind,
#include "lease/pause_causes.inc"
#undef SUBLET_PAUSE_CAUSE
};

}  // namespace

std::span<const ReasonRow> all_reasons() { return rows; }

const ReasonRow& row_of(ReasonKind kind) { return rows[static_cast<std::size_t>(kind)]; }

std::string_view fragment_of(std::string_view name) {
  const auto* const found = std::ranges::find(fragments, name, &Fragment::name);
  return found == std::end(fragments) ? std::string_view() : found->text;
}

std::string_view to_string(ReasonKind kind) { return row_of(kind).word; }
std::string_view subject_of(ReasonKind kind) { return row_of(kind).subject; }

std::optional<ReasonKind> parse_reason_kind(std::string_view text) {
  const auto* const found = std::ranges::find(rows, text, &ReasonRow::word);
  return found == std::end(rows) ? std::nullopt : std::optional(found->kind);
}

std::string_view to_string(PauseCauseKind kind) { return causes[static_cast<std::size_t>(kind)]; }

std::optional<PauseCauseKind> parse_pause_cause_kind(std::string_view text) {
  const auto* const found = std::ranges::find(causes, text);
  if (found != std::end(causes)) return static_cast<PauseCauseKind>(found - std::begin(causes));
  return std::nullopt;
}

}  // namespace sublet::core
