// SPDX-License-Identifier: Apache-2.0
#include "gpu/target.h"

#include "proc/cgroup.h"

#include <fmt/format.h>

#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <array>
#include <cerrno>
#include <charconv>
#include <optional>
#include <string_view>

namespace sublet::gpu {
namespace {

constexpr long call_pidfd_open = 434;

std::string read_file(const std::string& path) {
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text;
  std::array<char, 4096> chunk;
  ssize_t got = 0;
  while (file && (got = ::read(file.get(), chunk.data(), chunk.size())) > 0) {
    text.append(chunk.data(), static_cast<std::size_t>(got));
  }
  return text;
}

// Returns the text after "KEY" at the beginning of a line, up to the end of the line.
std::string_view line_of(std::string_view text, std::string_view key) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    std::string_view line = text.substr(at, end - at);
    if (line.starts_with(key)) {
      line.remove_prefix(key.size());
      while (!line.empty() && (line[0] == '\t' || line[0] == ' ')) line.remove_prefix(1);
      return line;
    }
    at = end + 1;
  }
  return {};
}

std::int64_t number(std::string_view text) {
  std::int64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

// Returns the n-th word of /proc/PID/stat after the name in brackets. The first word is the state.
std::string_view stat_word(std::string_view stat, int n) {
  const std::size_t name_end = stat.rfind(')');
  if (name_end == std::string_view::npos) return {};
  stat.remove_prefix(name_end + 1);
  for (; n >= 0; --n) {
    while (!stat.empty() && stat[0] == ' ') stat.remove_prefix(1);
    if (n == 0) return stat.substr(0, stat.find(' '));
    stat.remove_prefix(std::min(stat.find(' '), stat.size()));
  }
  return {};
}

}  // namespace

// A group that is being frozen is treated as frozen. Version 1 reports both states, version 2 only the frozen state.
bool is_frozen(const proc::ProcRoot& root, std::int32_t pid) {
  const auto hierarchies = proc::find_hierarchies(root);
  const auto groups = proc::cgroups_of(root, pid);
  if (!hierarchies || !groups) return false;
  if (const proc::CgroupMount* mount = hierarchies->v2(); mount != nullptr) {
    const std::string group = proc::directory_of(*mount, groups->v2);
    if (!group.empty() && line_of(read_file(group + "/cgroup.events"), "frozen ") == "1") return true;
  }
  const proc::CgroupMount* mount = hierarchies->v1("freezer");
  const auto inside = groups->v1.find("freezer");
  if (mount == nullptr || inside == groups->v1.end()) return false;
  const std::string group = proc::directory_of(*mount, inside->second);
  const std::string state = group.empty() ? std::string() : read_file(group + "/freezer.state");
  return state.starts_with("FROZEN") || state.starts_with("FREEZING");
}

NcclLook look_for_nccl(std::string_view maps) {
  NcclLook look;
  bool torch = false;
  for (std::size_t at = 0; at < maps.size();) {
    const std::size_t end = std::min(maps.find('\n', at), maps.size());
    const std::string_view line = maps.substr(at, end - at);
    at = end + 1;
    const std::size_t slash = line.rfind('/');
    if (slash == std::string_view::npos) continue;
    const std::string_view name = line.substr(slash + 1);
    if (name.starts_with("nccl-") && line.find(" /dev/shm/") != std::string_view::npos) look.shares = true;
    if (name.starts_with("libnccl.so")) look.links = true;
    if (name.starts_with("libtorch_cuda")) torch = true;
  }
  look.links = look.links && !torch;
  return look;
}

Target::Target(ProcessRef process) : process_(process) {
  pidfd_ = Fd(static_cast<int>(::syscall(call_pidfd_open, process.pid, 0)));
  constexpr int start_time = 19;
  const std::string stat = read_file(fmt::format("/proc/{}/stat", process.pid));
  const auto started = static_cast<std::uint64_t>(number(stat_word(stat, start_time)));
  if (process_.start_ticks == 0) process_.start_ticks = started;
  if (started == 0 || started != process_.start_ticks) {
    pidfd_.reset();
    process_.start_ticks = 0;
  }
}

bool Target::gone() const {
  if (process_.start_ticks == 0) return true;
  if (pidfd_) {
    pollfd entry{pidfd_.get(), POLLIN, 0};
    return ::poll(&entry, 1, 0) > 0;
  }
  const std::string stat = read_file(fmt::format("/proc/{}/stat", process_.pid));
  const std::string_view state = stat_word(stat, 0);
  return state.empty() || state == "Z" || state == "X" ||
         static_cast<std::uint64_t>(number(stat_word(stat, 19))) != process_.start_ticks;
}

std::string Target::slice() const {
  constexpr std::string_view variable = "CUDA_VISIBLE_DEVICES=";
  const std::string environment = read_file(fmt::format("/proc/{}/environ", process_.pid));
  for (std::string_view rest = environment; !rest.empty();) {
    const auto end = std::min(rest.find('\0'), rest.size());
    const std::string_view entry = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (!entry.starts_with(variable)) continue;
    const std::string_view first = entry.substr(variable.size(), entry.find(',') - variable.size());
    return first.starts_with("MIG-") ? std::string(first) : std::string();
  }
  return {};
}

NcclLook Target::nccl() const { return look_for_nccl(read_file(fmt::format("/proc/{}/maps", process_.pid))); }

TargetLook Target::look() const {
  TargetLook look;
  const std::string status = read_file(fmt::format("/proc/{}/status", process_.pid));
  look.there = !status.empty();
  const Fd environment(::open(fmt::format("/proc/{}/environ", process_.pid).c_str(), O_RDONLY | O_CLOEXEC));
  const int problem = environment ? 0 : errno;
  look.may_trace = problem == 0 || problem == ESRCH;  // ESRCH: no caller can read anything
  std::string_view users = line_of(status, "Uid:");
  users.remove_prefix(std::min(users.find('\t'), users.size()));  // the second uid is the effective one
  if (!users.empty()) users.remove_prefix(1);
  look.same_user = look.there && number(users) == static_cast<std::int64_t>(::geteuid());
  look.tracer = static_cast<std::int32_t>(number(line_of(status, "TracerPid:")));
  const std::string_view state = line_of(status, "State:");
  const auto root = proc::ProcRoot::open();
  const bool empty = problem == ESRCH || line_of(status, "VmSize:").empty();  // at least its first thread has no memory
  look.ending = look.there && empty && root && !root->has_memory(process_.pid);
  look.stopped = state.starts_with('T') || state.starts_with('t') || (root && is_frozen(*root, process_.pid));
  look.resident = number(line_of(status, "VmRSS:")) * KiB;
  return look;
}

}  // namespace sublet::gpu
