// SPDX-License-Identifier: Apache-2.0
// `why`: the state of a lease, its history, its obstacles and what would help.
#include "cli/render.h"
#include "cli/slurm.h"

#include <fmt/format.h>

namespace sublet::cli {

using nlohmann::json;

namespace {

// "gpu0 and gpu1"
std::string names_of(const json& devices, const Look& look) {
  std::string names;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    if (i > 0) names += i + 1 == devices.size() ? " and " : ", ";
    names += devices[i].is_string() ? device_name(devices[i].get<std::string>(), look) : "-";
  }
  return names;
}

// "gpu0", "each of gpu0 and gpu1": a lease has its size on each of its devices.
std::string devices_of(const json& lease, const Look& look) {
  const auto& devices = list_at(lease, "devices");
  return (devices.size() > 1 ? "each of " : "") + names_of(devices, look);
}

// " on each of 2 devices", " on one of gpu1 and gpu3"; "" for one device that any, or a name, tells.
std::string devices_asked_for(const json& lease, std::int64_t count, const Look& look) {
  const auto& named = list_at(lease, "wanted_devices");
  if (named.size() > 1)
    return fmt::format(" on {} of {}", count > 1 ? fmt::format("each of {}", count) : "one", names_of(named, look));
  return count > 1 ? fmt::format(" on each of {} devices", count) : "";
}

std::string ago(const json& object, const char* key, const Look& look) {
  const auto time = time_at(object, key);
  return time ? format_duration(look.now - *time) + " ago" : "at an unknown time";
}

// "2 min 5 s" of something still to come; "any moment" when it is due.
std::string ahead(const json& object, const char* key, const Look& look) {
  const auto time = time_at(object, key);
  if (!time) return "an unknown time";
  return *time > look.now ? format_duration(*time - look.now) : "now";
}

// The wish of a waiting lease: to start, to grow or to resume. `start` and `unknown` introduce its estimate.
struct Wish {
  std::string what, start, unknown;
};

Wish wish_of(const json& lease, const Look& look) {
  const auto count = number_at(lease, "device_count").value_or(1);
  if (const auto& resize = member(lease, "resize"); resize.is_object())
    return {
        fmt::format("to grow to {}{}", size_at_most(resize, "vram_bytes"), count > 1 ? " on each of its devices" : ""),
        "It should have them", "The time when it will have them"};
  const std::string size = size_at_most(lease, "vram_bytes");
  if (text_at(lease, "state") != "queued")
    return {fmt::format("for {}{}", size, count > 1 ? " on each of its devices" : ""), "It should resume",
            "Its resume time"};
  return {fmt::format("for {}{}", size, devices_asked_for(lease, count, look)), "It should start", "Its start time"};
}

// " By rule it waits 14 min at most, unless a lease of a higher tier comes (2 time slices of 4 min before its own)."
std::string bound_sentence(const json& queue) {
  const auto bound = number_at(queue, "bound_seconds");
  if (!bound) return {};
  const std::string unless = text_at(queue, "bound_unless");
  return fmt::format(" By rule it waits {} at most{} ({}).", format_duration(std::chrono::seconds(*bound)),
                     unless.empty() ? "" : ", unless " + unless, text_at(queue, "bound_from"));
}

std::string waiting(const json& lease, const json& queue, const Look& look) {
  const Wish wish = wish_of(lease, look);
  std::string out = fmt::format(" It waits {} at place {}", wish.what, number_at(queue, "place").value_or(0));
  const auto& device = member(queue, "device");
  if (number_at(queue, "short_bytes").value_or(0) > 0) {
    out += fmt::format("; {} are missing", size_at(queue, "short_bytes"));
    if (device.is_string()) out += " on " + device_name(device.get<std::string>(), look);
  }
  out += ".";
  if (const auto& resize = member(lease, "resize"); resize.is_object())
    out += fmt::format(" It was requested {}.", ago(resize, "since", look));
  else if (text_at(lease, "state") == "queued")
    out += fmt::format(" It was requested {}.", ago(lease, "created_at", look));
  const std::string holders = holders_phrase(queue);
  if (!holders.empty()) out += fmt::format(" The memory is held by {}.", holders);
  const auto eta = number_at(queue, "eta_seconds");
  const std::string basis = text_at(queue, "basis");
  out += eta ? fmt::format(" {} {}", wish.start, coming(std::chrono::seconds(*eta)))
             : fmt::format(" {} is unknown", wish.unknown);
  return out + (basis.empty() ? "." : fmt::format(" ({}).", basis)) + bound_sentence(queue);
}

// "2 h, not counting 5 min for which it was paused".
std::string time_held(const json& lease, const Look& look) {
  const auto granted = time_at(lease, "granted_at");
  if (!granted) return "an unknown time";
  const std::chrono::seconds paused(number_at(lease, "paused_seconds").value_or(0));
  const std::string held = format_duration(std::max<Duration>(look.now - *granted - paused, Duration{}));
  if (paused <= paused.zero()) return held;
  return fmt::format("{}, plus {} paused", held, format_duration(paused));
}

// " Idle rule: pause after 10 min (lease), end after 1 h (default)."; "" without a rule.
std::string idle_rule(const json& lease) {
  const std::string text = idle_rule_phrase(lease);
  const std::string problem = text_at(member(lease, "idle"), "problem");
  return text.empty() ? "" : fmt::format(" Idle rule: {}{}.", text, problem.empty() ? "" : "; " + visible(problem));
}

// " Its processes have launched 12 kernels and copied 3.0 GiB, with 2 errors (700)."
std::string work_phrase(const json& counts) {
  constexpr int most_codes = 3;
  std::int64_t errors = number_at(counts, "other_errors").value_or(0);
  std::string codes;
  int named = 0;
  for (const json& error : list_at(counts, "errors")) {
    errors += number_at(error, "count").value_or(0);
    if (named++ < most_codes)
      codes += fmt::format("{}{}", codes.empty() ? "" : ", ", number_at(error, "code").value_or(0));
  }
  const auto launches = number_at(counts, "launches").value_or(0);
  std::string out = fmt::format(" Its processes have launched {} kernel{} and copied {}", launches,
                                launches == 1 ? "" : "s", size_at(counts, "copied_bytes"));
  if (errors > 0)
    out += fmt::format(", with {} error{}{}", errors, errors == 1 ? "" : "s",
                       codes.empty() ? "" : fmt::format(" ({})", codes));
  return out + ".";
}

// " It may use 30 % of the computing time of each device; used 29.6 % in the last reading; its launches have waited
// 12.3 s."
std::string share_phrase(const json& lease) {
  const auto share = number_at(lease, "share");
  if (!share) return {};
  std::string out = fmt::format(" It may use {} % of the computing time of each device", *share);
  const json& use = member(lease, "share_use");
  const auto& devices = list_at(use, "devices");
  for (const json& device : devices) {
    const json& used = member(device, "used_percent");
    const std::string where = devices.size() > 1 ? fmt::format(" of {}", text_at(device, "uuid")) : "";
    if (used.is_number())
      out += fmt::format("; used {} %{} in the last reading{}", used.get<double>(), where,
                         flag_at(device, "exceeded") ? ", which is more than its share" : "");
  }
  if (const json& waited = member(use, "waited_seconds"); waited.is_number())
    out += fmt::format("; its launches have waited {} s", waited.get<double>());
  if (const auto percent = number_at(use, "processor_percent"))
    out += fmt::format("; its program gets at most {} % of a processor until it is within its share", *percent);
  return out + ".";
}

// " The interposer refuses allocations beyond it (2 processes)."; "" without the interposer.
std::string interposer_limit(const json& lease) {
  constexpr int most_named = 3;
  const json& limit = member(lease, "interposer");
  std::string out;
  if (const auto count = number_at(limit, "processes").value_or(0); count > 0)
    out = fmt::format(" The interposer refuses allocations beyond it ({} process{}).", count, count == 1 ? "" : "es");
  if (const json& counts = member(limit, "counts"); counts.is_object()) out += work_phrase(counts);
  int named = 0;
  for (const json& process : list_at(limit, "uncontrolled"))
    if (named++ < most_named)
      out += fmt::format(" Process {} ({}) is not held by this limit: {}.", number_at(process, "pid").value_or(0),
                         visible(text_at(process, "name")), text_at(process, "code"));
  return out;
}

std::string holding(const json& lease, const json& queue, const Look& look) {
  const std::string size = size_at_most(lease, "vram_bytes"), where = devices_of(lease, look);
  const std::string time = time_held(lease, look);
  const std::string used = size_at(lease, "used_bytes") + (list_at(lease, "devices").size() > 1 ? " in total" : "");
  std::string out =
      time_at(lease, "resized_at")
          ? fmt::format(" It has held {} on {} since it was resized {}, has run for {} in total, and uses {}.", size,
                        where, ago(lease, "resized_at", look), time, used)
          : fmt::format(" It has held {} on {} for {}, and uses {}.", size, where, time, used);
  if (number_at(lease, "over_bytes").value_or(0) > 0)
    out += fmt::format(" That is {} more than it leased.", size_at(lease, "over_bytes"));
  out += interposer_limit(lease) + share_phrase(lease);
  if (const std::string stray = stray_phrase(lease, look); !stray.empty()) out += fmt::format(" It {}.", stray);
  if (flag_at(member(lease, "owner"), "keeper_killed"))
    out += fmt::format(" Its keeper (pid {}) was killed: its exit status stays unknown.",
                       number_at(member(lease, "owner"), "keeper_pid").value_or(0));
  if (const std::string stopped = stopped_phrase(lease, look); !stopped.empty())
    out += fmt::format(" Its program is {}.", stopped);
  if (const std::string idle = idle_phrase(lease, look); !idle.empty()) out += fmt::format(" Its program {}.", idle);
  out += idle_rule(lease);
  if (flag_at(lease, "stopping")) out += " Its program has been told to end (SIGTERM).";
  if (time_at(lease, "held_back_at"))
    out += fmt::format(" It was held back {}, and keeps place {}.", ago(lease, "held_back_at", look),
                       number_at(queue, "place").value_or(0));
  else if (queue.is_object()) out += waiting(lease, queue, look);
  if (time_at(lease, "expires_at")) out += fmt::format(" It expires in {}.", ahead(lease, "expires_at", look));
  else if (const auto left = number_at(lease, "left_seconds"))
    out += fmt::format(" Its time limit stands still, with {} left.", compact(std::chrono::seconds(*left)));
  return out;
}

std::string ending(const json& lease, const Look& look) {
  const std::string reason = text_at(lease, "end_reason");
  std::string out = fmt::format(" {}", ago(lease, "ended_at", look));
  if (!reason.empty()) out += fmt::format(" ({})", reason);
  const auto status = number_at(lease, "exit_status");
  if (status) out += fmt::format("; its program's exit status was {}", *status);
  out += ".";
  if (flag_at(lease, "settling")) out += " Its memory is still charged.";
  return out;
}

std::string parked(const json& lease, const json& queue, const Look& look) {
  const auto& pause = member(lease, "pause");
  const std::string state = text_at(lease, "state");
  std::string out;
  if (state == "poisoned" && number_at(lease, "parked_bytes").value_or(0) == 0)
    out = " None of its memory is parked: the memory is still on its devices, and its program cannot run again.";
  else if (state == "paused" || state == "poisoned")
    out = fmt::format(" {} of its memory are parked in host memory by the method {}.", size_at(lease, "parked_bytes"),
                      text_at(pause, "method"));
  const std::string problem = problem_phrase(lease), progress = progress_phrase(lease);
  if (!problem.empty()) out += fmt::format(" It {}.", problem);
  else if (!progress.empty()) out += fmt::format(" {}.", progress);
  out += fmt::format(" Its pause began {}{}{}.", ago(pause, "since", look), state == "poisoned" ? ", and " : ": ",
                     text_at(pause, "reason"));
  out += idle_rule(lease);
  if (text_at(pause, "cause") == "idle" && !flag_at(pause, "resume_requested"))
    out += fmt::format(" It returns by: sublet touch {}", text_at(lease, "id"));
  if (queue.is_object()) out += waiting(lease, queue, look);
  if (const std::string text = text_at(member(lease, "blocked"), "text"); !text.empty())
    out += fmt::format(" {}.", paint(visible(text), Paint::red, look));
  return out;
}

std::string paragraph(const json& lease, const json& queue, const Look& look) {
  const std::string state = text_at(lease, "state");
  const std::string id = text_at(lease, "id");
  const std::string name =
      fmt::format("{} ({}, {})", paint(id, Paint::bold, look), text_at(lease, "consumer"), text_at(lease, "user"));
  if (state == "ended") return fmt::format("{} {}{}", name, paint(state, Paint::yellow, look), ending(lease, look));
  std::string out =
      fmt::format("{} is {}.", name, paint(state, state == "active" ? Paint::green : Paint::yellow, look));
  if (state == "queued") {
    const std::string text = text_at(member(lease, "blocked"), "text");
    return out + waiting(lease, queue, look) + (text.empty() ? "" : fmt::format(" {}.", visible(text)));
  }
  if (state == "active") return out + holding(lease, queue, look);
  if (member(lease, "pause").is_object()) return out + parked(lease, queue, look);
  if (state == "offered") {
    return out + fmt::format(" {} on {} are reserved for it; its owner must claim them within {}: sublet claim {}",
                             size_at_most(lease, "vram_bytes"), devices_of(lease, look),
                             ahead(lease, "offer_ends_at", look), id);
  }
  return out;
}

// " Its work is ray job 01000000, task step 16310a0f…": sublet.ray names the work so, in the command of the lease.
std::string ray_work(const json& lease) {
  const std::string command = text_at(lease, "command");
  return command.starts_with("ray job ") ? fmt::format(" Its work is {}.", visible(command)) : "";
}

// The control group that owns the lease, and the job of the engine that made the group.
std::string group_of(const json& lease) {
  const std::string group = text_at(member(lease, "owner"), "cgroup");
  if (group.empty()) return {};
  const auto job = job_of_group(group);
  return job ? fmt::format(" It belongs to job {} (control group {}).", *job, group)
             : fmt::format(" It belongs to the control group {}.", group);
}

}  // namespace

// "Pause method: driver. Not cooperative: its program has not registered as cooperative."
static std::string methods_of(const json& why) {
  const auto& methods = list_at(why, "pause_methods");
  std::string chosen = "none", others;
  for (const auto& its : methods) {
    const std::string name = text_at(its, "method"), why_not = text_at(its, "why_not");
    if (flag_at(its, "chosen")) chosen = name;
    else others += fmt::format("\n  - not {}: {}", name, visible(why_not));
  }
  return methods.empty() ? "" : fmt::format("\nPause method: {}{}\n", chosen, others);
}

std::string render_why(const json& why, const Look& look) {
  const auto& lease = member(why, "lease");
  const auto& queue = member(why, "queue").is_object() ? member(why, "queue") : member(lease, "queue");
  std::string out = paragraph(lease, queue, look) + ray_work(lease) + group_of(lease) + "\n";
  const auto& reasons = list_at(why, "reasons");
  if (!reasons.empty()) out += "\nWhat happened, oldest first:\n";
  for (const auto& reason : reasons) {
    const auto at = time_at(reason, "at");
    const std::string code = text_at(reason, "code");
    const std::string text = text_at(reason, "text");
    // Many a text begins with its code's word: once is enough.
    const bool said = code.empty() || text.starts_with(code);
    out += fmt::format("  {}  {}{}\n",
                       paint(at ? fmt::format("{:>4} ago", compact(look.now - *at)) : "       -", Paint::dim, look),
                       said ? "" : code + ": ", text);
  }
  out += methods_of(why);
  const auto& helps = list_at(why, "helps");
  if (!helps.empty()) out += "\nWhat would help:\n";
  for (const auto& help : helps) {
    if (help.is_string()) out += fmt::format("  - {}\n", visible(help.get_ref<const std::string&>()));
  }
  return out;
}

}  // namespace sublet::cli
