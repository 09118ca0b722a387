// SPDX-License-Identifier: Apache-2.0
#include "cli/run_flags.h"

#include "base/device_name.h"
#include "base/text.h"
#include "cli/nested.h"
#include "cli/placement.h"

#include <fmt/format.h>

#include <cstdlib>

namespace sublet::cli {
namespace {

constexpr std::size_t command_limit = 2000;  // bytes of the command line that the daemon is told

std::optional<int> check_supervised(const Common& common, const RunFlags& flags) {
  const auto exclude = [](const char* flag, const char* hint) {
    return usage_error(fmt::format("{} and --detach cannot both be given", flag), hint);
  };
  if (!flags.command.empty() && common.command)
    return usage_error("run has two programs: one by --command and one after '--'", "leave one of the two out");
  if (flags.status_fd) return exclude("--status-fd", "sublet events shows the changes of a program's lease");
  if (flags.lease.wait || flags.lease.no_wait)
    return exclude(flags.lease.wait ? "--wait" : "--no-wait",
                   "a supervised program waits in the queue; sublet stop ends the wait");
  if (!flags.notify.empty()) return exclude("--notify", "sublet wait and sublet events tell when the program runs");
  if (flags.keep_running)
    return exclude("--keep-running", "the daemon supervises the program, whatever happens to its keeper");
  if (flags.lease.ttl) return exclude("--ttl", "sublet stop ends the program");
  return std::nullopt;
}

std::optional<int> check_foreground(const RunFlags& flags) {
  const auto need = [](const char* flag, const char* hint) {
    return usage_error(fmt::format("{} needs --detach", flag), hint);
  };
  if (!flags.restart.empty())
    return need("--restart", "Sublet starts only a supervised program again: sublet run --detach");
  if (flags.replace) return need("--replace", "a program in the foreground is replaced by sublet stop TAG");
  if (!flags.env.empty() || !flags.env_file.empty())
    return need(flags.env.empty() ? "--env-file" : "--env",
                "a program in the foreground has your environment: NAME=VALUE sublet run …");
  if (flags.notify_after && flags.notify.empty())
    return usage_error("--notify-after needs --notify", "for example: sublet run --notify --notify-after 1m -- train");
  return std::nullopt;
}

}  // namespace

void add_run_flags(Command command, RunFlags& flags) {
  add_lease_flags(command, flags.lease);
  command.size("--memory", flags.lease.memory,
               "Ceiling on each device: a program that uses more is ended. Without --vram also the size of the lease");
  command.size("--soft", flags.lease.soft,
               "Soft limit on each device: above it a program is reported, and paused for waiters");
  command.option("--status-fd", flags.status_fd, "Write each change of state as a JSON line to this file descriptor")
      .type("N");
  const auto take_notice = [&flags](const std::string& line) -> Status {
    flags.notify = line;
    return {};
  };
  command
      .taken("--notify", take_notice,
             "After a long wait, send a desktop notice by notify-send, or run COMMAND by sh -c (--notify=COMMAND)")
      .maybe_value("notify-send")
      .type("COMMAND");
  command.duration("--notify-after", flags.notify_after, "The wait after which --notify sends the notice (10s)");
  command.flag("--indices", flags.indices,
               "Name the devices by index in CUDA_VISIBLE_DEVICES, for a program that cannot read a UUID");
  add_interposer_flags(command, flags.lease);
  command.flag("--keep-running", flags.keep_running,
               "Let the program run on if sublet run is killed by SIGKILL; by default the daemon ends it then");
  command.flag("--detach", flags.detach, "Let the daemon start and supervise the program, and return");
  command.flag("--replace", flags.replace,
               "With --detach, end a program of this tag and start it again with these flags; its log stays");
  command
      .option("--command", flags.command, "Run this line by sh -c, as with --detach, instead of a program after '--'")
      .type("STRING")
      .not_empty("the line is empty");
  command
      .option("--restart", flags.restart, "With --detach, start the program again: never, on-failure or always (never)")
      .type("POLICY")
      .one_of({"never", "on-failure", "always"});
  command
      .repeated("--env", flags.env, "With --detach, a variable of the program, repeatable; NAME alone takes your value")
      .type("NAME[=VALUE]");
  command.option("--env-file", flags.env_file, "With --detach, a file with a variable NAME=VALUE on each line")
      .type("FILE")
      .not_empty("no file is named")
      .offers(Offer::Of::files);
}

std::optional<int> check_flags(const Common& common, const RunFlags& flags) {
  const LeaseFlags& lease = flags.lease;
  if (flags.command.empty() && (!common.command || common.command->empty()))
    return usage_error("run needs a program after '--'", "for example: sublet run --vram 8GiB -- python3 train.py");
  if (lease.memory && lease.vram && *lease.memory < *lease.vram)
    return usage_error(
        fmt::format("--memory is {}, less than the {} of --vram", format_size(*lease.memory), format_size(*lease.vram)),
        "the ceiling must be at least the size of the lease");
  if (lease.memory && lease.soft && *lease.soft >= *lease.memory)
    return usage_error(
        fmt::format("--soft is {}, not below the {} of --memory", format_size(*lease.soft), format_size(*lease.memory)),
        "the soft limit must be below the ceiling");
  if (const auto refused = check_share(lease)) return refused;
  return flags.is_supervised() ? check_supervised(common, flags) : check_foreground(flags);
}

Status take_wish(LeaseFlags& flags, client::Client& client, const nlohmann::json& status, Talk* talk) {
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (visible == nullptr || !flags.gpu.empty() || is_visible_list_of_lease(client, visible, status)) return {};
  const auto devices = devices_of_wish(visible, flags.gpus, status);
  if (!devices) return devices.error();
  flags.gpu = *devices;
  if (devices->empty() || talk == nullptr) return {};
  std::vector<std::string> names = device_list(*devices);
  const bool some = static_cast<std::size_t>(flags.gpus) < names.size();
  for (std::string& name : names) name = device_name(name, talk->line().look());
  talk->say(fmt::format("CUDA_VISIBLE_DEVICES is '{}': asking for {}{}", visible,
                        some ? fmt::format("{} of ", flags.gpus) : "", fmt::join(names, ", ")));
  return {};
}

std::string shown_command(const std::vector<std::string>& command) {
  std::string text = visible(fmt::format("{}", fmt::join(command, " ")));
  if (text.size() <= command_limit) return text;
  std::size_t end = command_limit;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return text.substr(0, end) + "…";
}

std::vector<std::string> words_of(const std::string& command_line) {
  if (command_line.find_first_of(";|&<>()$`\"'\\*?[]#~{}!\n") != std::string::npos) return {"sh"};
  std::vector<std::string> words;
  for (std::size_t at = 0; at < command_line.size();) {
    const auto end = std::min(command_line.find_first_of(" \t", at), command_line.size());
    const std::string word = command_line.substr(at, end - at);
    // "A=1 train": a variable of the program.
    const bool variable = words.empty() && word.find('=') != std::string::npos;
    if (!word.empty() && !variable) words.push_back(word);
    at = end + 1;
  }
  return words.empty() ? std::vector<std::string>{"sh"} : words;
}

}  // namespace sublet::cli
