// SPDX-License-Identifier: Apache-2.0
// `status`: daemon, cards, leases and warnings on one screen. Warnings come last, next to the prompt.
#include "base/size_bounds.h"
#include "cli/render.h"
#include "cli/screen.h"

#include <fmt/format.h>

namespace sublet::cli {

using nlohmann::json;

namespace {

constexpr std::size_t bar_width = 50;

std::int64_t bytes(const json& object, const char* key) {
  return std::max<std::int64_t>(0, number_at(object, key).value_or(0));
}

// Without the residue of paused programs, which the headroom takes first.
std::int64_t leased_bytes(const json& device) {
  return std::max<std::int64_t>(0, bytes(device, "leased_bytes") - bytes(device, "residue_bytes"));
}

}  // namespace

std::string leased_size(const json& device) { return format_size_down(Bytes{leased_bytes(device)}); }

std::string counts_phrase(const json& counts) {
  static constexpr const char* order[] = {"active", "offered", "queued", "pausing", "paused", "resuming", "poisoned"};
  std::string out;
  for (const char* state : order) {
    const auto count = number_at(counts, state).value_or(0);
    if (count > 0) out += fmt::format("{}{} {}", out.empty() ? "" : ", ", count, state);
  }
  return out;
}

std::string parked_phrase(const json& status) {
  const json& ledger = member(status, "ledger");
  if (bytes(ledger, "parked_bytes") <= 0) return {};
  return fmt::format("{} of {} parked in host memory", size_at(ledger, "parked_bytes"), size_at(ledger, "limit_bytes"));
}

std::string device_bar(const json& device, std::size_t columns) {
  const std::int64_t total = bytes(device, "total_bytes");
  if (total == 0) return {};
  const std::int64_t other = bytes(device, "other_bytes");
  const std::int64_t leased = leased_bytes(device);
  const std::int64_t used = std::min(leased, std::max<std::int64_t>(0, bytes(device, "used_bytes") - other));
  const std::int64_t free = bytes(device, "effective_free_bytes");
  std::string out;
  const auto add = [&](std::int64_t part, char mark) {
    const auto room = static_cast<std::int64_t>(columns - out.size());
    const auto width = static_cast<std::int64_t>(
        static_cast<double>(part) / static_cast<double>(total) * static_cast<double>(columns) + 0.5);
    out += std::string(static_cast<std::size_t>(std::min(room, part > 0 ? std::max<std::int64_t>(1, width) : 0)), mark);
  };
  add(used, '#');
  add(leased - used, '=');
  add(other, 'x');
  add(free, '.');
  out.resize(columns, ' ');  // what is neither: the driver's own and the headroom
  return "[" + out + "]";
}

namespace {

std::string device_lines(const json& device, const Look& look) {
  const std::string state = text_at(device, "state");
  std::string out = fmt::format("{}  {}  {}", paint(text_at(device, "id"), Paint::bold, look), text_at(device, "name"),
                                size_at(device, "total_bytes"));
  if (flag_at(device, "simulated")) out += "  (simulated)";
  const auto age = number_at(device, "snapshot_age_ms");
  if (state != "ok") {
    out += "  " + paint(state == "lost" ? "LOST" : "UNKNOWN", Paint::red, look);
    if (age) out += fmt::format(", last read {} ago", compact(std::chrono::milliseconds(*age)));
  }
  out += "\n";
  const std::string problem = text_at(device, "problem"), service = service_text(device);
  if (!problem.empty()) out += fmt::format("  {}\n", paint(problem, Paint::red, look));
  if (!service.empty()) out += fmt::format("  {}\n", paint(service, Paint::yellow, look));
  // An unknown size is not printed as zero.
  const bool known = state == "ok";
  if (known) out += fmt::format("  {}\n", device_bar(device, bar_width));
  out +=
      fmt::format("  free {}   leased {}   used {}", known ? size_at_most(device, "effective_free_bytes") : "unknown",
                  leased_size(device), known ? size_at(device, "used_bytes") : "unknown");
  if (bytes(device, "residue_bytes") > 0)
    out += fmt::format("   kept for paused programs {}", size_at(device, "residue_bytes"));
  if (bytes(device, "other_bytes") > 0) {
    out += paint(fmt::format("   unleased {}", size_at(device, "other_bytes")), Paint::yellow, look);
  }
  return out + "\n";
}

std::string daemon_line(const json& daemon, const Look& look) {
  const auto since = time_at(daemon, "since");
  std::string out = fmt::format("subletd {} ", text_at(daemon, "version"));
  const std::string mode = text_at(daemon, "mode");
  const std::string dir = text_at(daemon, "dir");
  if (!dir.empty()) out += "in " + dir;
  else out += mode == "system" ? "of the system" : mode == "user" ? "of this user" : mode;
  if (since) out += ", up " + format_duration(look.now - *since);
  const auto pid = number_at(daemon, "pid");
  if (pid) out += fmt::format(", pid {}", *pid);
  const std::string store = text_at(daemon, "store");
  if (!store.empty() && store != "ok") out += fmt::format("\n{}", paint("! store " + store, Paint::red, look));
  return out + "\n";
}

std::string unleased_line(const json& process, const Look& look) {
  std::string out = fmt::format("  pid {}", number_at(process, "pid").value_or(0));
  const std::string user = text_at(process, "user");
  if (!user.empty()) out += " of " + user;
  out += fmt::format("  {}", number_at(process, "used_bytes") ? size_at(process, "used_bytes") : "? B");
  const std::string command = text_at(process, "command");
  if (!command.empty()) out += "  " + command;
  const std::string lease = text_at(process, "lease");
  if (flag_at(process, "lease_ended")) out += fmt::format("  ({} has ended)", lease);
  else if (!lease.empty())
    out += fmt::format("  (of {}, which has not leased {})", lease, device_name(text_at(process, "device"), look));
  if (look.width > 0) out = cut(out, look.width);
  return paint(out, Paint::yellow, look) + "\n";
}

// The three limits, whichever of them is the least now.
std::string ledger_limits(const json& ledger) {
  const Bytes left{std::max<std::int64_t>(bytes(ledger, "limit_bytes") - bytes(ledger, "parked_bytes"), 0)};
  const std::string out = fmt::format("  the least of: {} until ledger.limit, {} available on the machine",
                                      format_size_down(left), size_at_most(ledger, "host_bytes"));
  if (!number_at(ledger, "cgroup_bytes")) return out + "; no control group sets a limit\n";
  return out + fmt::format(", {} in the control groups\n", size_at_most(ledger, "cgroup_bytes"));
}

// The entries of the park ledger; "" without entries.
std::string ledger_lines(const json& ledger, const Look& look) {
  const auto& entries = list_at(ledger, "entries");
  if (entries.empty()) return {};
  const auto ratio_at = [](const json& object, const char* name) {
    const auto found = object.find(name);
    return found != object.end() && found->is_number() ? found->get<double>() : 0.0;
  };
  std::string out = fmt::format("\nparked in host memory: {} of {}, {} more would fit", size_at(ledger, "parked_bytes"),
                                size_at(ledger, "limit_bytes"), size_at_most(ledger, "free_bytes"));
  if (list_at(ledger, "users").size() > 1) out += fmt::format(", {} for one user", size_at(ledger, "share_bytes"));
  out += "\n" + ledger_limits(ledger);
  if (const double pressure = ratio_at(ledger, "pressure_ratio"); pressure > ratio_at(ledger, "max_pressure_ratio"))
    out += paint(fmt::format("  host memory is short: all processes waited for it for {:.0f} % of the last 10 s; no "
                             "lease is paused until that passes\n",
                             pressure * 100),
                 Paint::yellow, look);
  for (const auto& entry : entries) {
    out += fmt::format("  {} ({}, {})  {}  {}", text_at(entry, "lease"), text_at(entry, "consumer"),
                       text_at(entry, "user"), size_at(entry, "bytes"),
                       flag_at(entry, "settled") ? "parked" : "promised, not measured yet");
    if (number_at(entry, "swapped_bytes").value_or(0) > 0)
      out += ", " + paint(size_at(entry, "swapped_bytes") + " swapped out", Paint::red, look);
    out += "\n";
  }
  return out;
}

std::string warning_lines(const json& warning, const Look& look) {
  const auto since = time_at(warning, "since");
  std::string out = fmt::format("! {}: {}", text_at(warning, "code"), text_at(warning, "text"));
  if (since) out += fmt::format(" (for {})", compact(look.now - *since));
  out = paint(out, Paint::red, look) + "\n";
  const std::string hint = text_at(warning, "hint");
  if (!hint.empty()) out += fmt::format("  hint: {}\n", hint);
  return out;
}

}  // namespace

std::string render_status(const json& status, const json& leases, const Look& look, const json& tenants) {
  std::string out = daemon_line(member(status, "daemon"), look);
  const auto& devices = list_at(status, "devices");
  for (const auto& device : devices) out += fmt::format("\n{}", device_lines(device, look));
  if (devices.empty()) out += fmt::format("\n{}\n", paint("the daemon knows no device", Paint::yellow, look));
  else out += "  # leased, used  = leased, unused  x unleased  . free  blank: driver, headroom\n";
  const std::string counts = counts_phrase(member(status, "leases"));
  out += counts.empty() ? "\nno leases" : "\nleases: " + counts;
  if (bytes(status, "waiting_bytes") > 0)
    out += fmt::format(", {} requested by waiting leases", size_at(status, "waiting_bytes"));
  if (const std::string parked = parked_phrase(status); !parked.empty()) out += ", " + parked;
  out += "\n";
  if (!list_at(leases, "leases").empty()) {
    const auto table = render_leases(leases, Common{}, look);
    if (table) out += *table;
  }
  if (const std::string phrase = tenants_phrase(tenants); !phrase.empty()) out += "\n" + phrase + "\n";
  out += ledger_lines(member(status, "ledger"), look);
  const auto& unleased_processes = list_at(status, "unleased_processes");
  if (!unleased_processes.empty())
    out +=
        "\n"
        "unleased processes:\n";
  for (const auto& process : unleased_processes) out += unleased_line(process, look);
  const auto& warnings = list_at(status, "warnings");
  if (!warnings.empty()) out += "\n";
  for (const auto& warning : warnings) out += warning_lines(warning, look);
  return out;
}

}  // namespace sublet::cli
