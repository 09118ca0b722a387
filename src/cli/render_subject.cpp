// SPDX-License-Identifier: Apache-2.0
#include "cli/render_subject.h"

#include "base/size_bounds.h"
#include "cli/log_line.h"
#include "cli/render.h"
#include "cli/screen.h"

#include <fmt/format.h>

#include <algorithm>

namespace sublet::cli {
namespace {

using nlohmann::json;

constexpr std::size_t subject_bar_width = 40;
constexpr std::size_t most_processes = 20;

std::string field_line(std::string_view name, const std::string& value, const Look& look) {
  if (value.empty()) return {};
  return fmt::format("  {}  {}\n", paint(fmt::format("{:>9}", name), Paint::dim, look), value);
}

Paint subject_paint(const std::string& state) {
  if (state == "running" || state == "active") return Paint::green;
  if (state == "failed" || state == "poisoned") return Paint::red;
  return state == "exited" || state == "stopped" || state == "ended" ? Paint::dim : Paint::yellow;
}

// "for 2 h, since 2026-11-26T18:00:00.000Z".
std::string since_text(const json& object, const char* key, const Look& look) {
  const auto since = time_at(object, key);
  if (!since) return {};
  return fmt::format(" for {}, since {}", format_duration(look.now - *since), text_at(object, key));
}

const char* time_of_state(const json& lease) {
  if (text_at(lease, "state") == "ended") return "ended_at";
  return time_at(lease, "granted_at") ? "granted_at" : "created_at";
}

std::string heading(const Subject& subject, const Look& look) {
  const json& program = subject.program;
  const json& lease = subject.lease;
  const bool is_program = program.is_object();
  const json& object = is_program ? program : lease;
  const std::string state = text_at(object, "state");
  const Cell shown = is_program ? program_state_cell(program, look) : Cell{state, subject_paint(state)};
  const std::string tag = text_at(lease, "tag");
  const std::string name = is_program ? text_at(program, "tag") : text_at(lease, "id");
  const std::string about = is_program    ? text_at(program, "user")
                            : tag.empty() ? fmt::format("{}, {}", text_at(lease, "consumer"), text_at(lease, "user"))
                                          : fmt::format("{}, {}", tag, text_at(lease, "user"));
  return fmt::format("{} ({}): {}{}\n", paint(name, Paint::bold, look), about, paint(shown.text, shown.color, look),
                     since_text(object, is_program ? "since" : time_of_state(lease), look));
}

std::string why_text(const Subject& subject, const Look& look) {
  std::string why = text_at(subject.program, "why");
  const auto next = time_at(subject.program, "next_start_at");
  if (next) why += fmt::format("{}the next start is {}", why.empty() ? "" : "; ", coming(*next - look.now));
  const std::string state = text_at(subject.lease, "state");
  if (!subject.lease.is_object() || state == "active") return why;
  if (state == "ended" && !why.empty()) return why;  // it tells of this end
  const std::string reason = whole_reason(subject.lease, look);
  return reason.empty() || why == reason ? why : fmt::format("{}{}{}", why, why.empty() ? "" : "; ", reason);
}

std::string restart_text(const json& program) {
  if (!program.is_object()) return {};
  const auto starts = number_at(program, "starts").value_or(0), restarts = number_at(program, "restarts").value_or(0);
  return fmt::format("{}; {} start{}, {} by the policy", text_at(program, "restart"), starts, starts == 1 ? "" : "s",
                     restarts);
}

std::string exit_text(const json& object) {
  const auto status = number_at(object, "exit_status");
  const std::string reason = text_at(object, "end_reason");
  if (!status) return reason;
  return fmt::format("exit status {}{}{}", *status, reason.empty() ? "" : ", ", reason);
}

std::string lease_text(const Subject& subject, const Look& look) {
  const json& lease = subject.lease;
  if (!lease.is_object()) return {};
  std::string devices;
  for (const json& uuid : list_at(lease, "devices"))
    if (uuid.is_string()) devices += (devices.empty() ? " on " : ", ") + device_name(uuid.get<std::string>(), look);
  const std::string id =
      subject.program.is_object() ? fmt::format("{} ({}), ", text_at(lease, "id"), text_at(lease, "state")) : "";
  return fmt::format("{}{}{}, tier {}, priority {}", id, size_at_most(lease, "vram_bytes"), devices,
                     text_at(lease, "tier"), number_at(lease, "priority").value_or(0));
}

// The bytes of the processes on the device; nothing if no process is listed.
std::optional<std::int64_t> used_on(const json& processes, const std::string& uuid) {
  std::optional<std::int64_t> used;
  for (const json& row : processes)
    if (text_at(row, "device") == uuid) used = used.value_or(0) + number_at(row, "used_bytes").value_or(0);
  return used;
}

std::string limit_text(const json& owner, const char* field, const char* name) {
  return number_at(owner, field) ? fmt::format(", {} {}", name, size_at_most(owner, field)) : "";
}

// A bar for each device.
std::string memory_lines(const Subject& subject, const Look& look) {
  const json& lease = subject.lease;
  const json& limits = subject.program.is_object() ? subject.program : lease;
  const auto& devices = list_at(lease, "devices");
  std::string out;
  for (const json& device : devices) {
    const std::string uuid = device.is_string() ? device.get<std::string>() : "";
    const auto alone = devices.size() == 1 ? number_at(lease, "used_bytes") : std::nullopt;
    const std::int64_t used = used_on(subject.processes, uuid).value_or(alone.value_or(0));
    const auto ceiling = number_at(limits, "memory_bytes");
    const auto soft = number_at(limits, "soft_bytes");
    const std::int64_t most = ceiling.value_or(number_at(lease, "vram_bytes").value_or(0));
    const bool over = used > soft.value_or(most);
    out += field_line(
        device_name(uuid, look),
        fmt::format(
            "{} {} used{}{}",
            paint(limit_bar(used, soft.value_or(0), most, subject_bar_width), over ? Paint::yellow : Paint::none, look),
            format_size(Bytes{used}), limit_text(limits, "soft_bytes", "soft limit"),
            ceiling ? limit_text(limits, "memory_bytes", "ceiling") : limit_text(lease, "vram_bytes", "leased")),
        look);
  }
  return out;
}

std::string process_lines(const std::vector<TreeLine>& tree, const Look& look) {
  std::string out;
  for (std::size_t i = 0; i < std::min(tree.size(), most_processes); ++i) {
    const TreeLine& process = tree[i];
    const std::string branch = process.depth == 0 ? "" : std::string(2 * (process.depth - 1), ' ') + "└ ";
    std::string text = fmt::format("{}{}  {}", branch, process.pid, process.used.empty() ? "-" : process.used);
    if (!process.command.empty()) text += "  " + process.command;
    if (look.width > 16) text = cut(text, look.width - 13);
    out += field_line(i == 0 ? "processes" : "", text, look);
  }
  if (tree.size() > most_processes)
    out += field_line("", fmt::format("and {} more", tree.size() - most_processes), look);
  return out;
}

std::string output_lines(const std::vector<std::string>& output, const Look& look) {
  std::string out = output.empty() ? "" : "\n";
  for (const std::string& stored : output) {
    const LogLine parsed = parse_log_line(stored);
    if (parsed.mark) {
      out += paint(mark_text(parsed), Paint::dim, look) + "\n";
      continue;
    }
    const std::string text = for_terminal(parsed.text, look.color);
    out += parsed.time.empty() ? text + "\n" : fmt::format("{} {}\n", paint(parsed.time, Paint::dim, look), text);
  }
  return out;
}

}  // namespace

std::string limit_bar(std::int64_t used, std::int64_t soft, std::int64_t most, std::size_t columns) {
  const auto place = [&](std::int64_t bytes) {
    if (most <= 0 || bytes <= 0) return std::size_t{0};
    const double part = std::min(1.0, static_cast<double>(bytes) / static_cast<double>(most));
    return std::max<std::size_t>(1, static_cast<std::size_t>(part * static_cast<double>(columns) + 0.5));
  };
  std::string bar(columns, '.');
  std::fill_n(bar.begin(), place(used), '#');
  if (soft > 0 && most > 0) bar[std::min(place(soft), columns - 1)] = '|';
  return "[" + bar + "]";
}

std::string render_subject(const Subject& subject, const Look& look) {
  const json& program = subject.program;
  const json& owner = program.is_object() ? program : subject.lease;
  std::string out = heading(subject, look);
  out += field_line("why", why_text(subject, look), look);
  out += field_line("command", text_at(owner, "command"), look);
  out += field_line("directory", text_at(program, "directory"), look);
  out += field_line("restart", restart_text(program), look);
  out += field_line("last end", exit_text(owner), look);
  out += field_line("lease", lease_text(subject, look), look);
  out += memory_lines(subject, look);
  const auto pid = program.is_object() ? number_at(program, "pid") : number_at(member(subject.lease, "owner"), "pid");
  if (pid) out += field_line("main pid", fmt::format("{}", *pid), look);
  out += process_lines(subject.tree, look);
  out += field_line("log", text_at(program, "log_path"), look);
  if (const std::string warning = text_at(program, "warning"); !warning.empty())
    out += field_line("warning", paint(warning, Paint::red, look), look);
  return out + output_lines(subject.output, look);
}

}  // namespace sublet::cli
