// SPDX-License-Identifier: Apache-2.0
// The part of `doctor` that looks at this machine.
#include "cli/capture.h"
#include "cli/checks.h"
#include "config/config.h"
#include "proc/cgroup.h"
#include "proc/pidfd.h"

#include <fmt/format.h>

#include <grp.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

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

// Whether the user may be in `group` and is: by the rights this process has, and by what a new login would have.
bool in_group(gid_t group) {
  if (::getegid() == group) return true;
  std::vector<gid_t> groups(static_cast<std::size_t>(std::max(0, ::getgroups(0, nullptr))));
  const int count = ::getgroups(static_cast<int>(groups.size()), groups.data());
  for (int i = 0; i < count; ++i) {
    if (groups[static_cast<std::size_t>(i)] == group) return true;
  }
  return false;
}

std::string group_name(gid_t id) {
  const group* entry = ::getgrgid(id);
  return entry == nullptr ? fmt::format("{}", id) : entry->gr_name;
}

std::string user_name(uid_t id) {
  const passwd* entry = ::getpwuid(id);
  return entry == nullptr ? fmt::format("{}", id) : entry->pw_name;
}

}  // namespace

Check check_nvml_program() {
  if (!our_program("sublet-gpu").empty()) return {"nvml", Level::ok, "sublet-gpu is installed", {}};
  return {"nvml", Level::fail, "sublet-gpu, which reads the GPUs, is not installed beside this program",
          "install all programs of Sublet in one directory"};
}

Checks check_nvml(const nlohmann::json& status) {
  const std::string program = our_program("sublet-gpu");
  if (program.empty()) return {check_nvml_program()};
  std::vector<std::string> argv{program, "snapshot", "--json"};
  // The library that answers the daemon, else the one that a driver installs.
  const auto& library = member(member(status, "daemon"), "gpu_library");
  if (library.is_string() && !library.get_ref<const std::string&>().empty()) {
    argv.insert(argv.end(), {"--nvml", library.get<std::string>()});
  }
  const auto said = capture(argv, program_environment(status), std::chrono::seconds(10));
  if (!said) return {{"nvml", Level::fail, said.error().detail, {}}};
  if (said->timed_out) {
    return {{"nvml", Level::fail, "NVML did not answer within 10 s: the driver hangs",
             "look into the kernel's log for NVRM and Xid messages; a reset of the card or a restart may be needed"}};
  }
  return judge_snapshot(said->out, said->exit_status);
}

Check check_cgroups() {
  const auto root = proc::ProcRoot::open();
  const auto found = root ? proc::find_hierarchies(*root) : Result<proc::Hierarchies>(root.error());
  if (!found) return {"cgroups", Level::warn, "cgroups: " + found.error().detail, {}};
  if (found->layout == proc::CgroupLayout::none) {
    return {"cgroups", Level::warn, "no cgroup hierarchy is mounted here: `attach --cgroup` cannot work",
            "mount one: mount -t cgroup2 none /sys/fs/cgroup"};
  }
  return {"cgroups", Level::ok, fmt::format("cgroup hierarchy: {}", proc::to_string(found->layout)), {}};
}

Check check_identity() {
  const auto root = proc::ProcRoot::open();
  if (!root) return {"identity", Level::fail, "/proc: " + root.error().detail, "mount it: mount -t proc proc /proc"};
  const auto report = proc::identity_report(*root);
  if (!report.may_signal()) {
    return {"identity", Level::fail, report.text, "a kernel from 5.3 on, and a sandbox that allows pidfd_open, are needed"};
  }
  if (!report.unique_inode) {
    return {"identity", Level::note, report.text, "a kernel from 6.9 on tells processes apart without doubt over a restart"};
  }
  return {"identity", Level::ok, report.text, {}};
}

Check check_user(const std::string& socket) {
  struct stat info {};
  const std::string me = user_name(::geteuid());
  if (::stat(socket.c_str(), &info) != 0) {
    const int error = errno;
    if (error == EACCES) {
      return {"user", Level::fail, fmt::format("{} may not look into the directory of {}", me, socket),
              "ask for membership of the group 'sublet', then log in again"};
    }
    return {"user", Level::note, fmt::format("no socket at {}: whether {} may use it cannot be said", socket, me), {}};
  }
  if (!S_ISSOCK(info.st_mode)) return {"user", Level::fail, socket + " is not a socket", "remove it, then start the daemon"};
  const std::string group = group_name(info.st_gid);
  if (::access(socket.c_str(), W_OK) == 0) {
    const char* how = ::geteuid() == 0 ? "root" : ::geteuid() == info.st_uid ? "its owner"
                      : in_group(info.st_gid) ? "its group" : "everybody";
    return {"user", Level::ok, fmt::format("{} may use {} (as {})", me, socket, how), {}};
  }
  return {"user", Level::fail, fmt::format("{} may not use {}: it belongs to {} and group {}", me, socket,
                                           user_name(info.st_uid), group),
          fmt::format("as root: usermod -aG {} {}; then log in again", group, me)};
}

Check check_config(const std::string& file) {
  const auto loaded = config::load(file);
  if (!loaded.problems.empty()) {
    return {"config", Level::fail,
            fmt::format("{}{}", config::to_string(loaded.problems.front()),
                        loaded.problems.size() > 1 ? fmt::format("; and {} more", loaded.problems.size() - 1) : ""),
            "all of it: sublet config check --file " + file};
  }
  if (!loaded.file_exists) return {"config", Level::ok, fmt::format("no {}: all defaults", file), {}};
  return {"config", Level::ok, fmt::format("{} is right, {} keys set", file, loaded.lines.size()), {}};
}

Check check_ptrace() {
  const auto root = proc::ProcRoot::open();
  const auto text = root ? root->read_file("sys/kernel/yama/ptrace_scope", 16) : Result<std::string>(root.error());
  if (!text) return {"ptrace", Level::ok, "ptrace is not restricted by Yama (pausing, which comes later, can use it)", {}};
  const int scope = text->empty() ? -1 : (*text)[0] - '0';
  if (scope <= 0) return {"ptrace", Level::ok, "ptrace scope 0 (pausing, which comes later, can use it)", {}};
  return {"ptrace", Level::note, fmt::format("ptrace scope {}: pausing unchanged programs, which comes later, will need "
                                             "the daemon to have the right to trace", scope), {}};
}

}  // namespace sublet::cli
