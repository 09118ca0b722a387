// SPDX-License-Identifier: Apache-2.0
// Text of preemption previews and dry runs.
#include "cli/render.h"
#include "cli/wait_line.h"

#include <fmt/format.h>

namespace sublet::cli {

using nlohmann::json;

namespace {

bool ends(const json& victim) { return text_at(victim, "method") == "end"; }

Cell preview_time_cell(const json& victim, const char* key) {
  const auto ms = number_at(victim, key);
  return {ms && !ends(victim) ? about(std::chrono::milliseconds(*ms)) : "-"};
}

Cell how_cell(const json& victim, const Look&) {
  if (ends(victim)) return {"ended", Paint::yellow};
  if (text_at(victim, "method") == "give_back") return {"gives back"};
  return text_cell(victim, "method");
}

Cell basis_cell(const json& victim, const Look&) {
  if (ends(victim)) return {"cannot be paused"};
  if (text_at(victim, "method") == "give_back") return {"its memory is not in use"};
  const auto samples = number_at(victim, "samples").value_or(0);
  return {samples == 0 ? "never paused yet" : fmt::format("{} earlier pause{}", samples, samples == 1 ? "" : "s")};
}

constexpr Column preview_columns[] = {
    {"lease", "LEASE", true, false, +[](const json& r, const Look&) { return text_cell(r, "lease"); }},
    {"consumer", "CONSUMER", true, false, +[](const json& r, const Look&) { return text_cell(r, "consumer"); }},
    {"user", "USER", true, false, +[](const json& r, const Look&) { return text_cell(r, "user"); }},
    {"tier", "TIER", true, false, +[](const json& r, const Look&) { return text_cell(r, "tier"); }},
    {"how", "HOW", true, false, how_cell},
    {"frees", "FREES", true, true, +[](const json& r, const Look&) { return size_cell(r, "freed_bytes"); }},
    {"moves", "MOVES", true, true,
     +[](const json& r, const Look&) { return ends(r) ? Cell{"-"} : size_cell(r, "bytes"); }},
    {"pause", "PAUSE", true, true, +[](const json& r, const Look&) { return preview_time_cell(r, "pause_ms"); }},
    {"most", "AT MOST", true, true, +[](const json& r, const Look&) { return preview_time_cell(r, "pause_p95_ms"); }},
    {"back", "BACK", true, true, +[](const json& r, const Look&) { return preview_time_cell(r, "resume_ms"); }},
    {"basis", "KNOWN FROM", true, false, basis_cell},
};

std::string on_devices(const json& object, const Look& look) {
  std::string names;
  for (const auto& uuid : list_at(object, "devices")) {
    if (uuid.is_string()) names += (names.empty() ? " on " : ", ") + device_name(uuid.get<std::string>(), look);
  }
  return names;
}

std::string ineligible_lines(const json& preview) {
  std::string out;
  for (const auto& ineligible : list_at(preview, "ineligible"))
    out += fmt::format("  {} is no victim: {}\n", text_at(ineligible, "lease"), text_at(ineligible, "why"));
  return out;
}

std::string hint_line(const json& preview) {
  const std::string hint = text_at(preview, "hint");
  return hint.empty() ? "" : fmt::format("  hint: {}\n", visible(hint));
}

std::string away_line(const json& preview) {
  const std::string basis = visible(text_at(preview, "paused_for_basis"));
  if (basis.empty()) return "";
  if (const auto ms = number_at(preview, "paused_for_ms"))
    return fmt::format("Victims stay paused for about {}: {}.\n", about(std::chrono::milliseconds(*ms)), basis);
  return fmt::format("It is unknown how long victims stay paused: {}.\n", basis);
}

// The price by which they are chosen is more than the time they take.
std::string dearer_lines(const json& victims) {
  std::string out;
  for (const json& victim : victims) {
    const auto failed = number_at(victim, "failed").value_or(0);
    if (failed == 0) continue;
    const std::chrono::milliseconds penalty(number_at(victim, "penalty_ms").value_or(0));
    out += fmt::format("{} counts as {} more expensive: {} of its last {} pauses failed.\n", text_at(victim, "lease"),
                       about(penalty), failed, number_at(victim, "tried").value_or(0));
  }
  return out;
}

Result<std::string> waiting(const json& reply, const Common& common, const Look& look) {
  const json& queue = member(reply, "queue");
  std::string out = fmt::format("The lease would wait: {}.\n", queue_phrase(reply, look));
  const std::string basis = text_at(queue, "basis");
  if (!basis.empty()) out += fmt::format("The estimate: {}.\n", basis);
  const std::string holders = holders_phrase(queue);
  if (!holders.empty()) out += fmt::format("The memory is held by {}.\n", holders);
  const auto bytes = [&queue](const char* key) { return Bytes{number_at(queue, key).value_or(0)}; };
  const std::string smaller = smaller_size_text(bytes("short_bytes"), bytes("free_bytes"), bytes("unleased_bytes"));
  if (!smaller.empty() && text_at(queue, "reserved_for").empty())
    out += fmt::format("Unleased processes are in the way: {}.\n", smaller);
  const json& preview = member(reply, "preemption");
  if (!flag_at(preview, "found"))
    return out + fmt::format("No lease is paused: {}.\n", text_at(preview, "why_not")) + ineligible_lines(preview) +
           hint_line(preview);
  if (list_at(preview, "victims").empty()) return out;
  out += text_at(preview, "wait_for").empty() ? "These leases could be paused, but only on request (sublet preempt):\n"
                                              : "These leases will be paused, or could be:\n";
  const auto table = render_preview(preview, common, look);
  return table ? out + *table : table;
}

}  // namespace

std::string about(Duration duration) {
  if (duration < std::chrono::seconds(1)) return fmt::format("{}ms", duration / std::chrono::milliseconds(1));
  if (duration >= std::chrono::minutes(1)) return compact(duration);
  return fmt::format("{:.1f}s", std::chrono::duration<double>(duration).count());
}

Result<std::string> render_preview(const json& preview, const Common& common, const Look& look) {
  if (!flag_at(preview, "found")) {
    const auto lacking = number_at(preview, "short_bytes").value_or(0);
    return fmt::format("Memory cannot be freed{}: {}{}.\n", on_devices(preview, look), text_at(preview, "why_not"),
                       lacking > 0 ? fmt::format("; {} would be missing", size_at(preview, "short_bytes")) : "") +
           ineligible_lines(preview) + hint_line(preview);
  }
  const json& victims = list_at(preview, "victims");
  if (victims.empty()) {
    return std::string(flag_at(preview, "in_progress")
                           ? "Victims are being paused already: no other lease has to be.\n"
                           : "No lease has to be paused: memory is free, or becomes free without a pause.\n");
  }
  auto table = render_table("preempt", preview_columns, victims, common, look);
  if (!table) return table;
  const std::string first = text_at(preview, "wait_for");
  const auto wait = number_at(preview, "wait_ms");
  std::string out = *table;
  if (!first.empty()) out += fmt::format("Not yet: {}.\n", visible(first));
  // Victims that are ended have no known duration and no resume.
  const auto there = number_at(preview, "pause_ms").value_or(0) + wait.value_or(0);
  std::int64_t back = there;
  std::size_t ended = 0;
  for (const json& victim : victims) {
    if (ends(victim)) ++ended;
    else back += number_at(victim, "resume_ms").value_or(0);
  }
  if (ended == victims.size())
    return out + fmt::format("The memory is free{} once {} ended.\n", on_devices(preview, look),
                             ended == 1 ? "the victim has" : "the victims have");
  return out +
         fmt::format("The memory is free{} after about {}{}{}; pauses and resumes take {} in total{}.\n",
                     on_devices(preview, look), about(std::chrono::milliseconds(there)),
                     wait || first.empty() ? "" : " from then on",
                     ended == 0 ? "" : ", and once the victims that cannot be paused have ended",
                     about(std::chrono::milliseconds(back)), ended == 0 ? "" : " for the other victims") +
         dearer_lines(victims) + away_line(preview);
}

Result<std::string> render_dry_run(const json& reply, const Common& common, const Look& look) {
  const std::string would = text_at(reply, "would");
  if (would == "wait") return waiting(reply, common, look);
  const std::string with = fmt::format("with {}{}", size_at_most(reply, "vram_bytes"), on_devices(reply, look));
  if (would == "start") return fmt::format("The lease would start at once, {}.\n", with);
  auto preview = render_preview(member(reply, "preemption"), common, look);
  if (!preview) return preview;
  const json& victims = list_at(member(reply, "preemption"), "victims");
  const auto ended = std::ranges::count_if(victims, ends);
  return fmt::format("The lease would start {}, once these victims are {}:\n{}", with,
                     ended == 0                     ? "paused"
                     : ended == std::ssize(victims) ? "ended"
                                                    : "paused or ended",
                     *preview);
}

}  // namespace sublet::cli
