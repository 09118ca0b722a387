// SPDX-License-Identifier: Apache-2.0
// The part of `doctor` that looks at this machine.
#include "cli/checks.h"
#include "keep/capture.h"
#include "proc/cgroup.h"
#include "proc/pidfd.h"
#include "proc/swap.h"

#include <fmt/format.h>

#include <grp.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>

namespace sublet::cli {

using Level = Check::Level;

namespace {

// The environment in which the daemon's programs, and sublet-gpu, see what the daemon sees.
std::map<std::string, std::string> program_environment(const nlohmann::json& status) {
  std::map<std::string, std::string> result;
  const auto& given = member(status, "program_env");
  if (!given.is_object()) return result;
  for (const auto& [name, value] : given.items()) {
    if (!value.is_string()) continue;
    std::string text = value.get<std::string>();
    const char* ours = std::getenv(name.c_str());
    if (name == "LD_LIBRARY_PATH" && ours != nullptr && *ours != '\0') text += std::string(":") + ours;
    result[name] = text;
  }
  return result;
}

bool has(const std::vector<gid_t>& groups, gid_t group) {
  return std::find(groups.begin(), groups.end(), group) != groups.end();
}

// The groups that this process has: what the daemon goes by.
std::vector<gid_t> groups_now() {
  std::vector<gid_t> groups(static_cast<std::size_t>(std::max(0, ::getgroups(0, nullptr))));
  groups.resize(static_cast<std::size_t>(std::max(0, ::getgroups(static_cast<int>(groups.size()), groups.data()))));
  groups.push_back(::getegid());
  return groups;
}

// The groups that a new login would have.
std::vector<gid_t> groups_by_account() {
  const passwd* account = ::getpwuid(::geteuid());
  if (account == nullptr) return {};
  std::vector<gid_t> groups(1024);
  int count = static_cast<int>(groups.size());
  if (::getgrouplist(account->pw_name, account->pw_gid, groups.data(), &count) < 0) return {};
  groups.resize(static_cast<std::size_t>(count));
  return groups;
}

std::string user_name(uid_t id) {
  const passwd* entry = ::getpwuid(id);
  return entry == nullptr ? fmt::format("{}", id) : entry->pw_name;
}

}  // namespace

Checks check_nvml(const nlohmann::json& status, const std::string& configured) {
  const std::string program = keep::our_program("sublet-gpu");
  if (program.empty()) {
    return {{"nvml", Level::fail, "sublet-gpu, which reads the GPUs, is not in the directory of this program",
             "install all programs of Sublet in one directory"}};
  }
  std::vector<std::string> argv{program, "snapshot", "--json"};
  // The library that answers the daemon, else the configured one, else the one that a driver installs.
  const auto& answers = member(member(status, "daemon"), "gpu_library");
  const std::string library = answers.is_string() ? answers.get<std::string>() : configured;
  if (!library.empty()) argv.insert(argv.end(), {"--nvml", library});
  const auto said = keep::capture(argv, program_environment(status), std::chrono::seconds(10));
  if (!said) return {{"nvml", Level::fail, said.error().detail, {}}};
  if (said->timed_out) {
    return {{"nvml", Level::fail, "NVML did not answer within 10 s: the driver hangs",
             "look for NVRM and Xid messages in the kernel's log; the GPU may need a reset, or the machine a restart"}};
  }
  return judge_snapshot(said->out, said->exit_status);
}

Check check_cgroups() {
  const auto root = proc::ProcRoot::open();
  const auto found = root ? proc::find_hierarchies(*root) : Result<proc::Hierarchies>(root.error());
  if (!found) return {"cgroups", Level::warn, "cgroups: " + found.error().detail, {}};
  if (found->layout == proc::CgroupLayout::none) {
    return {"cgroups", Level::warn, "no cgroup hierarchy is mounted: `sublet attach --cgroup` does not work",
            "mount one: mount -t cgroup2 none /sys/fs/cgroup"};
  }
  return {"cgroups", Level::ok, fmt::format("cgroup hierarchy: {}", proc::to_string(found->layout)), {}};
}

Check check_swap(const nlohmann::json& status) {
  const auto& ledger = member(status, "ledger");
  const auto root = proc::ProcRoot::open();
  const auto hierarchies = root ? proc::find_hierarchies(*root) : Result<proc::Hierarchies>(root.error());
  const auto groups = root ? proc::cgroups_of(*root, ::getpid()) : Result<proc::ProcessCgroups>(root.error());
  const auto group = hierarchies && groups ? proc::swap_group(*hierarchies, *groups) : std::nullopt;
  if (!group) return judge_swap(ledger, false, {});
  const auto uid = number_at(member(member(status, "daemon"), "actor"), "uid");
  return judge_swap(ledger, group->stopped || proc::may_stop_swap(*root, *group, {::getuid(), uid == 0}), group->path);
}

Check check_identity() {
  const auto root = proc::ProcRoot::open();
  if (!root) return {"identity", Level::fail, "/proc: " + root.error().detail, "mount it: mount -t proc proc /proc"};
  const auto report = proc::identity_report(*root);
  if (!report.may_signal()) {
    return {"identity", Level::fail, report.text,
            "Sublet needs Linux 5.3 or newer, and a sandbox that allows pidfd_open"};
  }
  if (!report.unique_inode) {
    return {"identity", Level::note, report.text,
            "from Linux 6.9 on, processes are identified beyond doubt after a restart of the daemon"};
  }
  return {"identity", Level::ok, report.text, {}};
}

Check check_user(const std::string& socket) {
  struct stat info {};
  const std::string me = user_name(::geteuid());
  if (::stat(socket.c_str(), &info) != 0) {
    if (errno == EACCES) {
      return {"user", Level::fail, fmt::format("{} cannot read the directory of {}", me, socket),
              "that daemon belongs to another user; name your own with SUBLET_HOST or --host"};
    }
    return {
        "user", Level::note, fmt::format("there is no socket at {}, so the rights of {} are unknown", socket, me), {}};
  }
  if (!S_ISSOCK(info.st_mode)) {
    return {"user", Level::fail, socket + " is not a socket", "remove the file, then start the daemon"};
  }
  if (::geteuid() == 0 || ::geteuid() == info.st_uid) {
    return {"user", Level::ok, fmt::format("{} has all rights at the daemon on {}", me, socket), {}};
  }
  const auto now = groups_now();
  for (const char* name : {"sublet-admin", "sublet"}) {
    const group* entry = ::getgrnam(name);
    if (entry == nullptr) continue;
    if (has(now, entry->gr_gid)) return {"user", Level::ok, fmt::format("{} is in the group {}", me, name), {}};
    if (has(groups_by_account(), entry->gr_gid)) {
      return {"user", Level::fail, fmt::format("{} was added to the group {} after this session began", me, name),
              "log in again"};
    }
  }
  return {"user", Level::fail,
          fmt::format("{} is not in the group sublet: the daemon of {} at {} refuses its requests", me,
                      user_name(info.st_uid), socket),
          fmt::format("as root: usermod -aG sublet {}; then log in again", me)};
}

Check check_config(const config::Loaded& loaded) {
  const std::string& file = loaded.file;
  if (!loaded.problems.empty()) {
    std::string text = config::to_string(loaded.problems.front());
    if (loaded.problems.size() > 1) text += fmt::format("; and {} more", loaded.problems.size() - 1);
    return {"config", Level::fail, text, "list all problems: sublet config check --file " + file};
  }
  if (!loaded.file_exists)
    return {"config", Level::ok, fmt::format("{} does not exist: every key has its default", file), {}};
  return {"config", Level::ok, fmt::format("{} is correct and sets {} keys", file, loaded.lines.size()), {}};
}

Check check_ptrace() {
  const auto root = proc::ProcRoot::open();
  const auto text = root ? root->read_file("sys/kernel/yama/ptrace_scope", 16) : Result<std::string>(root.error());
  if (!text) return {"ptrace", Level::ok, "ptrace is not restricted by Yama", {}};
  return judge_ptrace_scope(*text);
}

Check check_driver(const nlohmann::json& status, const std::string& configured_library) {
  const std::string program = keep::our_program("sublet-gpu");
  if (program.empty()) {
    return {"checkpoint", Level::warn, "sublet-gpu, which parks programs, is not in the directory of this program",
            "install all programs of Sublet in one directory"};
  }
  std::vector<std::string> argv{program, "support", "--json"};
  // The driver's two libraries stand side by side.
  std::string library = configured_library;
  const std::string nvml = text_at(member(status, "daemon"), "gpu_library");
  if (library.empty() && nvml.starts_with('/')) {
    const auto beside = std::filesystem::path(nvml).parent_path() / "libcuda.so.1";
    std::error_code unknown;
    if (std::filesystem::exists(beside, unknown)) library = beside.string();
  }
  if (!library.empty()) argv.insert(argv.end(), {"--driver", library});
  const auto said = keep::capture(argv, program_environment(status), std::chrono::seconds(20));
  if (!said) return {"checkpoint", Level::warn, said.error().detail, {}};
  if (said->timed_out) {
    return {"checkpoint", Level::warn, "the CUDA driver did not start within 20 s: it hangs",
            "look for NVRM and Xid messages in the kernel's log"};
  }
  return judge_support(said->out, said->exit_status);
}

}  // namespace sublet::cli
