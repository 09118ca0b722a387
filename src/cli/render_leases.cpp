// SPDX-License-Identifier: Apache-2.0
// The tables of leases: `ps` and `queue`.
#include "cli/render.h"

#include <fmt/format.h>

namespace sublet::cli {

using nlohmann::json;

namespace {

Paint state_color(std::string_view state) {
  if (state == "active") return Paint::green;
  if (state == "ended") return Paint::dim;
  if (state == "poisoned") return Paint::red;
  return state == "queued" ? Paint::yellow : Paint::cyan;
}

Cell lease_state_cell(const json& row, const Look&) {
  const std::string state = text_at(row, "state");
  return {state, state_color(state)};
}

Cell device_cell(const json& row, const Look& look) {
  std::string names;
  for (const auto& uuid : list_at(row, "devices")) {
    if (!uuid.is_string()) continue;
    if (!names.empty()) names += ',';
    names += device_name(uuid.get<std::string>(), look);
  }
  return {names, Paint::none};
}

std::string since(const json& row, const char* key, const Look& look) {
  const auto time = time_at(row, key);
  return time ? compact(look.now - *time) : "-";
}

std::string until(const json& row, const char* key, const Look& look) {
  const auto time = time_at(row, key);
  return time ? compact(*time - look.now) : "-";
}

// How long it waited for its place, or has been waiting.
Cell waited_cell(const json& row, const Look& look) {
  const auto created = time_at(row, "created_at");
  auto end = time_at(row, "granted_at");
  if (!end) end = time_at(row, "ended_at");
  if (!created) return {};
  return {compact((end ? *end : look.now) - *created), Paint::none};
}

// Waiting time of a lease that waits to grow or to resume.
Cell waiting_cell(const json& row, const Look& look) {
  for (const char* what : {"resize", "pause"}) {
    if (member(row, what).is_object()) return {since(member(row, what), "since", look)};
  }
  return waited_cell(row, look);
}

Cell exit_cell(const json& row, const Look&) {
  const auto status = number_at(row, "exit_status");
  return {status ? fmt::format("{}", *status) : "-", status.value_or(0) != 0 ? Paint::red : Paint::none};
}

Cell pid_cell(const json& row, const Look&) {
  const auto pid = number_at(member(row, "owner"), "pid");
  return {pid ? fmt::format("{}", *pid) : "-", Paint::none};
}

// "595 MiB parked by the driver". A table cell leaves the method out.
std::string parked_by(const json& row, const json& pause, bool whole) {
  const std::string method = text_at(pause, "method");
  if (!whole) return size_at(row, "parked_bytes") + " parked";
  return fmt::format("{} parked by {}", size_at(row, "parked_bytes"),
                     method == "cooperative" ? "the program" : "the " + method);
}

std::string held_by(const json& row) {
  const std::string holders = holders_phrase(member(row, "queue"));
  return holders.empty() ? "" : "; the memory is held by " + holders;
}

// "for lease-2" in a table cell; else the whole sentence of the daemon.
std::string cause_of(const json& pause, bool whole) {
  const std::string preemptor = text_at(pause, "preemptor");
  return whole || preemptor.empty() ? text_at(pause, "reason") : "for " + preemptor;
}

// The reason of a lease: in a few words for a table cell, or whole.
Cell reason_of(const json& row, const Look& look, bool whole) {
  const std::string state = text_at(row, "state");
  if (state == "ended") {
    const auto status = number_at(row, "exit_status");
    const std::string reason = text_at(row, "end_reason");
    return {status ? fmt::format("{}, exit status {}", reason, *status) : reason, Paint::none};
  }
  const bool alone = flag_at(member(row, "owner"), "keeper_killed");
  if (flag_at(row, "stopping")) return {alone ? "stopping: its keeper was killed" : "stopping", Paint::yellow};
  const std::string blocked = blocked_phrase(row, look);
  const std::string place = blocked.empty() ? queue_phrase(row, look) : blocked + "; " + queue_phrase(row, look);
  if (time_at(row, "held_back_at"))
    return {fmt::format("held back at place {} for {}: sublet resume {}",
                        number_at(member(row, "queue"), "place").value_or(0), since(row, "held_back_at", look),
                        text_at(row, "id")),
            Paint::yellow};
  if (state == "queued") {
    // Its waiter is stopped, for example.
    const bool lapsed = number_at(row, "lapsed_offers").value_or(0) > 0;
    return lapsed ? Cell{"its offer was not claimed; " + place, Paint::yellow} : Cell{place, Paint::none};
  }
  if (state == "offered") {
    const std::string id = text_at(row, "id");
    return {fmt::format("to be claimed within {}: sublet claim {}", until(row, "offer_ends_at", look), id),
            Paint::cyan};
  }
  if (const json& pause = member(row, "pause"); pause.is_object()) {
    const std::string reason = cause_of(pause, whole || state == "poisoned");
    if (state == "paused" || state == "poisoned") {
      const std::string_view mark = reason.starts_with("for ") ? " " : ": ";
      const std::string parked = parked_by(row, pause, whole).append(mark).append(reason);
      if (state == "poisoned") return {number_at(row, "parked_bytes").value_or(0) > 0 ? parked : reason, Paint::red};
      if (!flag_at(pause, "resume_requested") && blocked.empty()) return {parked, Paint::cyan};
      // The lease's memory may be held by another lease than the preemptor.
      if (!flag_at(pause, "resume_requested")) return {fmt::format("{}; {}", parked, blocked), Paint::yellow};
      if (!blocked.empty()) return {fmt::format("{}; {}", parked, place), Paint::yellow};
      return {fmt::format("{}; {}", parked, place), Paint::yellow};
    }
    if (!blocked.empty()) return {blocked, Paint::red};
    if (const std::string problem = problem_phrase(row); !problem.empty()) return {problem, Paint::red};
    const std::string progress = progress_phrase(row);
    if (progress.empty()) return {reason, Paint::yellow};
    return {state == "resuming" ? progress : progress + ": " + reason, Paint::yellow};
  }
  if (member(row, "resize").is_object()) {
    return {fmt::format("waits for {}, {}", size_at_most(member(row, "resize"), "vram_bytes"), queue_phrase(row, look)),
            Paint::yellow};
  }
  if (const std::string stopped = stopped_phrase(row, look); !stopped.empty()) return {stopped, Paint::yellow};
  if (number_at(row, "over_bytes").value_or(0) > 0)
    return {fmt::format("uses {} more than it leased", size_at(row, "over_bytes")), Paint::red};
  if (const std::string stray = stray_phrase(row, look); !stray.empty()) return {stray, Paint::red};
  if (alone) return {"its keeper was killed; it runs on", Paint::yellow};
  if (const std::string idle = idle_phrase(row, look); !idle.empty()) return {idle, Paint::yellow};
  if (const auto slice = number_at(row, "next_slice_seconds"))
    return {"next time slice " + coming(std::chrono::seconds(*slice)), Paint::none};
  if (const std::string session = text_at(row, "session"); !session.empty() && time_at(row, "expires_at"))
    return {fmt::format("{} renews it by activity", session), Paint::none};
  if (time_at(row, "expires_at")) return {"expires in " + until(row, "expires_at", look), Paint::none};
  return {};
}

Cell reason_cell(const json& row, const Look& look) { return reason_of(row, look, false); }

Cell expires_cell(const json& row, const Look& look) {
  const auto left = number_at(row, "left_seconds");
  if (time_at(row, "expires_at") || !left) return {until(row, "expires_at", look)};
  return {compact(std::chrono::seconds(*left)) + " left", Paint::yellow};
}

constexpr Column lease_columns[] = {
    {"id", "ID", true, false, +[](const json& r, const Look&) { return text_cell(r, "id"); }},
    {"name", "NAME", true, false, +[](const json& r, const Look&) { return text_cell(r, "consumer"); },
     Narrow::shorten},
    {"tag", "TAG", true, false, +[](const json& r, const Look&) { return text_cell(r, "tag"); }, Narrow::needless, "-"},
    {"user", "USER", true, false, +[](const json& r, const Look&) { return text_cell(r, "user"); }},
    {"tenant", "TENANT", false, false, +[](const json& r, const Look&) { return text_cell(r, "tenant"); }},
    {"state", "STATE", true, false, lease_state_cell},
    {"tier", "TIER", true, false, +[](const json& r, const Look&) { return text_cell(r, "tier"); }, Narrow::cut,
     "standard"},
    {"prio", "PRIO", true, true, +[](const json& r, const Look&) { return number_cell(r, "priority"); }, Narrow::cut,
     "0"},
    {"gpu", "GPU", true, false, device_cell},
    {"vram", "VRAM", true, true, +[](const json& r, const Look&) { return Cell{size_at_most(r, "vram_bytes")}; }},
    {"reserved", "RESERVED", false, true,
     +[](const json& r, const Look&) { return Cell{size_at_most(r, "reserved_bytes")}; }},
    {"used", "USED", true, true, +[](const json& r, const Look&) { return size_cell(r, "used_bytes"); }},
    {"activity", "ACTIVITY", false, false,
     +[](const json& r, const Look&) { return text_cell(member(r, "activity"), "state"); }},
    {"idle", "IDLE RULE", false, false, +[](const json& r, const Look&) { return Cell{idle_rule_phrase(r)}; }},
    {"share", "SHARE", false, true,
     +[](const json& r, const Look&) {
       const auto share = number_at(r, "share");
       return share ? Cell{fmt::format("{} %", *share)} : Cell{"-"};
     }},
    {"peak", "PEAK", false, true, +[](const json& r, const Look&) { return size_cell(r, "peak_used_bytes"); }},
    {"age", "AGE", true, true, +[](const json& r, const Look& l) { return Cell{since(r, "created_at", l)}; }},
    {"waited", "WAITED", false, true, waited_cell},
    {"expires", "EXPIRES", false, true, expires_cell},
    {"pid", "PID", false, true, pid_cell},
    {"exit", "EXIT", false, true, exit_cell},
    {"generation", "GENERATION", false, true, +[](const json& r, const Look&) { return number_cell(r, "generation"); }},
    {"command", "COMMAND", false, false, +[](const json& r, const Look&) { return text_cell(r, "command"); }},
    {"summary", "SUMMARY", false, false, +[](const json& r, const Look&) { return text_cell(r, "summary"); }},
    {"reason", "REASON", true, false, reason_cell, Narrow::below},
};

// "~3m, at most 14m".
Cell start_cell(const json& row, const Look&) {
  if (flag_at(member(row, "queue"), "held_back")) return {"held back", Paint::yellow};
  const auto eta = number_at(member(row, "queue"), "eta_seconds");
  std::string start = eta ? "~" + compact(std::chrono::seconds(*eta)) : "";
  if (const auto bound = number_at(member(row, "queue"), "bound_seconds"))
    start += (start.empty() ? "at most " : ", at most ") + compact(std::chrono::seconds(*bound));
  return {start.empty() ? "unknown" : start, Paint::none};
}

// "1.0 GiB→3.0 GiB" of one that has the first and waits to grow.
Cell wanted_cell(const json& row, const Look&) {
  const json& resize = member(row, "resize");
  const std::string now = size_at_most(row, "vram_bytes");
  return {resize.is_object() ? fmt::format("{}→{}", now, size_at_most(resize, "vram_bytes")) : now, Paint::none};
}

constexpr Column waiting_columns[] = {
    {"place", "PLACE", true, true,
     +[](const json& r, const Look&) { return number_cell(member(r, "queue"), "place"); }},
    {"id", "ID", true, false, +[](const json& r, const Look&) { return text_cell(r, "id"); }},
    {"name", "NAME", true, false, +[](const json& r, const Look&) { return text_cell(r, "consumer"); },
     Narrow::shorten},
    {"tag", "TAG", true, false, +[](const json& r, const Look&) { return text_cell(r, "tag"); }, Narrow::needless, "-"},
    {"user", "USER", true, false, +[](const json& r, const Look&) { return text_cell(r, "user"); }},
    {"tenant", "TENANT", false, false, +[](const json& r, const Look&) { return text_cell(r, "tenant"); }},
    {"state", "STATE", false, false, lease_state_cell},
    {"tier", "TIER", true, false, +[](const json& r, const Look&) { return text_cell(r, "tier"); }, Narrow::cut,
     "standard"},
    {"prio", "PRIO", true, true, +[](const json& r, const Look&) { return number_cell(r, "priority"); }, Narrow::cut,
     "0"},
    {"vram", "VRAM", true, true, wanted_cell},
    {"short", "SHORT", true, true,
     +[](const json& r, const Look&) { return size_cell(member(r, "queue"), "short_bytes"); }},
    {"waited", "WAITED", true, true, waiting_cell},
    {"start", "START", true, true, start_cell},
    {"basis", "BASIS", false, false,
     +[](const json& r, const Look&) { return text_cell(member(r, "queue"), "basis"); }},
    {"holders", "HELD BY", true, false,
     +[](const json& r, const Look&) {
       const std::string holders = holders_phrase(member(r, "queue"));
       return Cell{holders.empty() ? no_device_phrase(member(r, "queue")) : holders};
     },
     Narrow::below},
};

}  // namespace

std::string stray_phrase(const json& lease, const Look& look) {
  std::string phrase;
  for (const json& stray : list_at(lease, "stray"))
    phrase += fmt::format("{}{} on {}", phrase.empty() ? "uses " : " and ", size_at(stray, "bytes"),
                          device_name(text_at(stray, "device"), look));
  return phrase.empty() ? phrase : phrase + ", which it has not leased";
}

std::string holders_phrase(const json& queue) {
  const auto& holders = list_at(queue, "holders");
  std::string out;
  for (std::size_t i = 0; i < holders.size() && i < 3; ++i) {
    // `what` names the holder for people; only an old or broken daemon leaves it out.
    const std::string what = text_at(holders[i], "what");
    const std::string name = what.empty() ? text_at(holders[i], "lease") : what;
    const bool leased = !text_at(holders[i], "lease").empty();
    out += fmt::format("{}{} {}", i == 0 ? "" : ", ", name,
                       leased ? size_at_most(holders[i], "bytes") : size_at(holders[i], "bytes"));
  }
  if (holders.size() > 3) out += fmt::format(" and {} more", holders.size() - 3);
  return out;
}

// Why no device is named as the one that comes nearest; "" if one is.
std::string no_device_phrase(const json& queue) {
  return member(queue, "device").is_string() ? std::string() : text_at(queue, "basis");
}

std::string blocked_phrase(const json& lease, const Look& look) {
  const auto& blocked = member(lease, "blocked");
  if (!blocked.is_object()) return {};
  std::string out;
  for (const auto& unleased : list_at(blocked, "unleased_processes")) {
    const auto pid = number_at(unleased, "pid");
    const std::string program = text_at(unleased, "program");
    out += out.empty() ? text_at(blocked, "code") + ": " : ", ";
    out += pid ? fmt::format("pid {}{}", *pid, program.empty() ? "" : " (" + program + ")") : "an unlisted process";
    out += fmt::format(" holds {} on {}", size_at(unleased, "bytes"), device_name(text_at(unleased, "device"), look));
  }
  return out.empty() ? text_at(blocked, "code") + ": its device is gone" : out;
}

std::string stopped_phrase(const json& lease, const Look& look) {
  const auto since = time_at(lease, "stopped_since");
  if (!since) return {};
  return fmt::format("stopped for {} by a {}", format_duration(std::max<Duration>(look.now - *since, Duration{})),
                     text_at(lease, "stopped_by"));
}

std::string idle_phrase(const json& lease, const Look& look) {
  const json& activity = member(lease, "activity");
  const auto since = time_at(activity, "since");
  if (!member(lease, "idle").is_object() || text_at(activity, "state") != "idle" || !since) return {};
  return fmt::format("has done nothing for {}", format_duration(std::max<Duration>(look.now - *since, Duration{})));
}

std::string idle_rule_phrase(const json& lease) {
  const json& rule = member(lease, "idle");
  if (!rule.is_object()) return {};
  std::string text;
  for (const char* part : {"warn", "pause", "end"}) {
    const auto seconds = number_at(rule, fmt::format("{}_seconds", part));
    const std::string from = text_at(rule, fmt::format("{}_from", part));
    if (!seconds && from == "default") continue;
    const std::string after = seconds ? "after " + format_duration(std::chrono::seconds(*seconds)) : "off";
    text += fmt::format("{}{} {} ({})", text.empty() ? "" : ", ", part, after, from);
  }
  return text;
}

std::string progress_phrase(const json& lease) {
  const auto& progress = member(member(lease, "pause"), "progress");
  const bool stuck = flag_at(member(lease, "pause"), "stuck");
  if (!progress.is_object()) return stuck ? "stuck: the driver does not answer" : "";
  const std::string move = text_at(progress, "move");
  if (move == "settle")
    return fmt::format("{} reported as freed, {} still measured", size_at(progress, "total_bytes"),
                       size_at(lease, "used_bytes"));
  const bool frees = text_at(member(lease, "pause"), "method") == "cooperative", late = flag_at(progress, "late");
  const std::string out = fmt::format("{} of {} {}", size_at(progress, "moved_bytes"), size_at(progress, "total_bytes"),
                                      move == "resume" ? "restored"
                                      : frees          ? "freed"
                                                       : "parked");
  if (!flag_at(progress, "under_way") && !late)
    return out + (flag_at(member(lease, "pause"), "begun") ? ", waiting until its program is at rest"
                                                           : ", its program is not touched yet");
  if (late) return out + (stuck ? ", stuck: the driver does not answer" : ", later than predicted");
  const std::chrono::milliseconds left(number_at(progress, "left_ms").value_or(0));
  // Nothing was seen to move: the time is a prediction.
  if (!flag_at(progress, "measured"))
    return out + (left.count() > 0 ? fmt::format(", about {} expected", about(left)) : ", expected any moment");
  return out + fmt::format(", {}/s, ", size_at(progress, "bytes_per_second")) +
         (left.count() > 0 ? fmt::format("about {} left", about(left)) : "almost done");
}

std::string problem_phrase(const json& lease) {
  const std::string problem = text_at(member(lease, "pause"), "problem");
  const std::string state = text_at(lease, "state");
  if (problem.empty()) return {};
  if (state == "pausing") return fmt::format("cannot be verified: {}", problem);
  if (state != "resuming") return {};
  return fmt::format("is not running again yet: {}; the daemon retries", problem);
}

std::string queue_phrase(const json& lease, const Look& look) {
  const auto& queue = member(lease, "queue");
  if (!queue.is_object()) return {};
  const auto place = number_at(queue, "place").value_or(0);
  if (flag_at(queue, "held_back")) return fmt::format("held back, and keeps place {}", place);
  std::string out = fmt::format("place {}", place);
  if (const std::string why = no_device_phrase(queue); !why.empty()) return out + "; " + why;
  if (number_at(queue, "short_bytes").value_or(0) > 0) {
    out += fmt::format(", {} short", size_at(queue, "short_bytes"));
    const auto& device = member(queue, "device");
    if (device.is_string()) out += " on " + device_name(device.get<std::string>(), look);
  }
  const auto eta = number_at(queue, "eta_seconds");
  const bool returns = member(lease, "pause").is_object();
  if (!eta) return out + (returns ? "; resume time unknown" : "; start unknown");
  out += (returns ? "; resumes " : "; starts ") + coming(std::chrono::seconds(*eta));
  const auto bound = number_at(queue, "bound_seconds");
  return bound ? out + fmt::format(", at most {} by rule", format_duration(std::chrono::seconds(*bound))) : out;
}

std::string whole_reason(const json& lease, const Look& look) {
  return reason_of(lease, look, true).text + held_by(lease);
}

Result<std::string> render_leases(const json& leases, const Common& common, const Look& look) {
  return render_table("ps", lease_columns, list_at(leases, "leases"), common, look);
}

Result<std::string> render_queue(const json& queue, const Common& common, const Look& look) {
  return render_table("queue", waiting_columns, list_at(queue, "queue"), common, look);
}

std::span<const Column> ps_columns() { return lease_columns; }
std::span<const Column> queue_columns() { return waiting_columns; }

}  // namespace sublet::cli
