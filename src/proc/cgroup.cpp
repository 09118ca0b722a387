// SPDX-License-Identifier: Apache-2.0
#include "proc/cgroup.h"

#include "base/directory.h"
#include "base/text.h"

#include <fmt/format.h>

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <climits>
#include <cstdlib>
#include <memory>
#include <optional>

namespace sublet::proc {
namespace {

constexpr long v1_magic = 0x27e0eb;
constexpr long v2_magic = 0x63677270;
constexpr int max_depth = 32;
constexpr std::size_t max_pids = 65536;
constexpr std::size_t max_procs_file = 16u * max_pids;

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const auto at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

// mountinfo writes space, tab, newline and backslash as \ and three octal digits.
std::string unescape(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto octal = [&](std::size_t k) { return text[k] >= '0' && text[k] <= '7'; };
    if (text[i] == '\\' && i + 3 < text.size() && octal(i + 1) && octal(i + 2) && octal(i + 3)) {
      out += static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 + (text[i + 3] - '0'));
      i += 3;
    } else {
      out += text[i];
    }
  }
  return out;
}

bool below(std::string_view path, std::string_view parent) {
  if (parent == "/") return true;
  return path.starts_with(parent) && (path.size() == parent.size() || path[parent.size()] == '/');
}

struct MountLine {
  int id = 0;
  int parent = 0;
  std::string type;
  CgroupMount mount;
};

// Parses a line of mountinfo: id parent dev root path options [tags…] - type source superoptions
bool parse_mount(std::string_view line, MountLine& parsed) {
  const auto fields = split(line, ' ');
  const auto dash = std::find(fields.begin(), fields.end(), std::string_view("-"));
  if (dash - fields.begin() < 6 || fields.end() - dash < 4) return false;
  const auto number = [](std::string_view text, int& value) {
    return std::from_chars(text.data(), text.data() + text.size(), value).ec == std::errc{};
  };
  if (!number(fields[0], parsed.id) || !number(fields[1], parsed.parent)) return false;
  CgroupMount& mount = parsed.mount;
  mount.root = unescape(fields[3]);
  mount.path = unescape(fields[4]);
  parsed.type = dash[1];
  mount.v2 = parsed.type == "cgroup2";
  if (parsed.type != "cgroup") return true;
  static constexpr std::string_view flags[] = {"rw", "ro", "xattr", "clone_children", "noprefix", "favordynmods"};
  for (const auto option : split(dash[3], ',')) {
    const bool flag = std::find(std::begin(flags), std::end(flags), option) != std::end(flags);
    if (!flag && !option.starts_with("release_agent=")) mount.controllers.emplace_back(option);
  }
  return true;
}

// Whether another mount on the same path or above it covers this mount. A mount does not cover mounts inside of it. The
// order of the lines does not matter: the root may come after a mount inside of it.
bool covered(const MountLine& mount, const std::map<int, MountLine>& all) {
  std::vector<int> inside;
  for (auto at = all.find(mount.parent); at != all.end() && inside.size() < 64; at = all.find(at->second.parent)) {
    inside.push_back(at->first);
  }
  return std::any_of(all.begin(), all.end(), [&](const auto& entry) {
    const auto& [id, other] = entry;
    return id != mount.id && below(mount.mount.path, other.mount.path) &&
           std::find(inside.begin(), inside.end(), id) == inside.end();
  });
}

Error not_a_cgroup(const std::string& path, std::string_view why) {
  return bad_request(fmt::format("{} {}", printable(path), why),
                     "name a directory below /sys/fs/cgroup; /proc/PID/cgroup shows a process's own");
}

// Reads the pids of a cgroup.procs below an open directory.
Status read_procs(int dir, CgroupProcesses& found) {
  const Fd file(::openat(dir, "cgroup.procs", O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  if (!file) {
    // The group is gone meanwhile, or the directory is no group.
    return errno == ENOENT || errno == ENODEV ? Status{} : Status{from_errno("cannot read cgroup.procs", errno)};
  }
  std::string text;
  char chunk[8192];
  for (;;) {
    const ssize_t got = ::read(file.get(), chunk, sizeof chunk);
    if (got < 0 && errno == EINTR) continue;
    // EOPNOTSUPP: a threaded group, whose processes are listed in the group above. ENODEV: removed meanwhile.
    if (got < 0 && (errno == EOPNOTSUPP || errno == ENODEV)) return {};
    if (got < 0) return from_errno("cannot read cgroup.procs", errno);
    if (got == 0) break;
    text.append(chunk, static_cast<std::size_t>(got));
    if (text.size() > max_procs_file) break;
  }
  for (const auto line : split(text, '\n')) {
    std::int32_t pid = 0;
    const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), pid);
    if (line.empty() || error != std::errc{} || end != line.data() + line.size()) continue;
    if (pid > 0) found.pids.push_back(pid);
    else ++found.outside;
  }
  if (found.pids.size() > max_pids) {
    return unavailable(fmt::format("the cgroup holds more than {} processes", max_pids));
  }
  return {};
}

Status walk(Fd dir, int depth, CgroupProcesses& found) {
  if (depth > max_depth) return unavailable(fmt::format("the cgroup is deeper than {} levels", max_depth));
  if (auto status = read_procs(dir.get(), found); !status) return status;
  const Directory entries = read_directory(std::move(dir));
  if (!entries) return from_errno("cannot list a cgroup", errno);
  while (const dirent* entry = ::readdir(entries.get())) {
    if (entry->d_type != DT_DIR || entry->d_name[0] == '.') continue;
    Fd child(::openat(::dirfd(entries.get()), entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!child && errno == ENOENT) continue;
    if (!child) return from_errno("cannot open a cgroup", errno);
    if (auto status = walk(std::move(child), depth + 1, found); !status) return status;
  }
  return {};
}

Result<CgroupProcesses> walk_all(Fd dir) {
  CgroupProcesses found;
  if (auto status = walk(std::move(dir), 0, found); !status) return status.error();
  std::sort(found.pids.begin(), found.pids.end());
  found.pids.erase(std::unique(found.pids.begin(), found.pids.end()), found.pids.end());
  return found;
}

// Whether the kernel counts a process in the group or below it, as version 2 tells. Unset: it does not tell.
std::optional<bool> told_by_the_kernel(int dir) {
  const Fd file(::openat(dir, "cgroup.events", O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  char text[256];
  const ssize_t got = file ? ::read(file.get(), text, sizeof text) : -1;
  for (const auto line : split(std::string_view(text, static_cast<std::size_t>(std::max<ssize_t>(got, 0))), '\n')) {
    if (line == "populated 1") return true;
    if (line == "populated 0") return false;
  }
  return std::nullopt;
}

Result<Fd> open_group(const std::string& path) {
  Fd dir(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (dir) return dir;
  if (errno == ENOENT)
    return not_found(fmt::format("cgroup {} does not exist", printable(path)),
                     "name the group's directory below /sys/fs/cgroup");
  return from_errno(fmt::format("cannot open {}", printable(path)), errno);
}

}  // namespace

std::string_view to_string(CgroupLayout layout) {
  switch (layout) {
    case CgroupLayout::none: return "none";
    case CgroupLayout::v2: return "v2";
    case CgroupLayout::hybrid: return "hybrid";
    case CgroupLayout::v1: return "v1";
  }
  return "none";
}

std::string directory_of(const CgroupMount& mount, const std::string& inside) {
  if (inside.empty() || inside.find("/..") != std::string::npos || !below(inside, mount.root)) return {};
  const std::string rest = mount.root == "/" ? inside : inside.substr(mount.root.size());
  return mount.path + (rest == "/" ? "" : rest);
}

const CgroupMount* Hierarchies::v2() const {
  const auto found = std::find_if(mounts.begin(), mounts.end(), [](const CgroupMount& m) { return m.v2; });
  return found == mounts.end() ? nullptr : &*found;
}

const CgroupMount* Hierarchies::v1(std::string_view controller) const {
  for (const CgroupMount& mount : mounts) {
    const auto& names = mount.controllers;
    if (!mount.v2 && std::find(names.begin(), names.end(), controller) != names.end()) return &mount;
  }
  return nullptr;
}

Hierarchies parse_mountinfo(std::string_view text) {
  std::map<int, MountLine> all;
  std::vector<int> order;
  for (const auto line : split(text, '\n')) {
    MountLine parsed;
    if (!parse_mount(line, parsed)) continue;
    order.push_back(parsed.id);
    all[parsed.id] = std::move(parsed);
  }
  Hierarchies found;
  for (const int id : order) {
    const MountLine& line = all[id];
    if (line.type != "cgroup" && line.type != "cgroup2") continue;
    if (!covered(line, all)) found.mounts.push_back(line.mount);
  }
  const bool v2 = found.v2() != nullptr;
  const bool v1 = std::any_of(found.mounts.begin(), found.mounts.end(), [](const CgroupMount& m) { return !m.v2; });
  if (v2) found.layout = v1 ? CgroupLayout::hybrid : CgroupLayout::v2;
  else if (v1) found.layout = CgroupLayout::v1;
  return found;
}

Result<Hierarchies> find_hierarchies(const ProcRoot& root) {
  const auto text = root.read_file("self/mountinfo", 8u << 20);
  if (!text) return text.error();
  return parse_mountinfo(*text);
}

const Hierarchies* MountedHierarchies::now(const ProcRoot& root) {
  if (!mounts_) {
    const auto self = root.open_directory("self");
    if (self) mounts_ = Fd(::openat(self->get(), "mountinfo", O_RDONLY | O_CLOEXEC));
  }
  pollfd changes{mounts_.get(), POLLPRI, 0};
  if (known_ && mounts_ && ::poll(&changes, 1, 0) == 0) return &*known_;
  auto found = find_hierarchies(root);
  known_.reset();
  if (found) known_ = std::move(*found);
  return known_ ? &*known_ : nullptr;
}

ProcessCgroups parse_process_cgroups(std::string_view text) {
  ProcessCgroups found;
  for (const auto line : split(text, '\n')) {
    const auto first = line.find(':');
    const auto second = first == std::string_view::npos ? first : line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    std::string_view path = line.substr(second + 1);
    if (!controllers.empty()) {
      for (const auto controller : split(controllers, ',')) found.v1[std::string(controller)] = path;
    } else if (line.starts_with("0:")) {
      constexpr std::string_view gone = " (deleted)";
      found.removed = path.ends_with(gone);
      if (found.removed) path.remove_suffix(gone.size());
      found.v2 = path;
    }
  }
  return found;
}

Result<ProcessCgroups> cgroups_of(const ProcRoot& root, std::int32_t pid) {
  const auto text = root.read_file(fmt::format("{}/cgroup", pid));
  if (!text) return text.error();
  return parse_process_cgroups(*text);
}

std::vector<std::string> directories_of(const Hierarchies& hierarchies, const ProcessCgroups& groups) {
  std::vector<std::string> found;
  for (const CgroupMount& mount : hierarchies.mounts) {
    const auto v1 = mount.controllers.empty() ? groups.v1.end() : groups.v1.find(mount.controllers.front());
    if (mount.v2 ? groups.removed : v1 == groups.v1.end()) continue;
    std::string directory = directory_of(mount, mount.v2 ? groups.v2 : v1->second);
    if (!directory.empty()) found.push_back(std::move(directory));
  }
  return found;
}

Result<std::string> group_directory(const Hierarchies& hierarchies, const std::string& path) {
  std::string name = path;
  while (name.size() > 1 && name.back() == '/') name.pop_back();
  if (name.empty() || name[0] != '/') return not_a_cgroup(path, "is not an absolute path");
  const bool plain = (name + "/").find("/./") == std::string::npos && (name + "/").find("/../") == std::string::npos &&
                     name.find("//") == std::string::npos && name.find('\0') == std::string::npos;
  if (!plain || name.size() >= PATH_MAX) return not_a_cgroup(path, "is not a plain path");
  if (auto known = check_cgroup(hierarchies, name)) return known->path;
  const bool exists = ::access(name.c_str(), F_OK) == 0;
  std::string first;  // of the directories that the group would have
  for (const CgroupMount& mount : hierarchies.mounts) {
    if (name == mount.path) return not_a_cgroup(path, "is the root of its hierarchy, which holds every process");
    if (!exists && below(name, mount.path)) return name;
    const std::string directory = exists ? std::string() : directory_of(mount, name);
    if (directory.empty() || directory == mount.path) continue;
    if (auto known = check_cgroup(hierarchies, directory)) return known->path;
    if (first.empty() || mount.v2) first = directory;
  }
  if (exists) return not_a_cgroup(path, "is not a cgroup");
  if (first.empty()) return not_a_cgroup(path, "is in no cgroup hierarchy that is mounted here");
  return first;
}

Result<GroupState> look_at_group(const std::string& path) {
  Fd dir(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!dir && (errno == ENOENT || errno == ENODEV)) return GroupState{};
  if (!dir) return from_errno(fmt::format("cannot open {}", printable(path)), errno);
  struct statfs fs {};
  struct stat file {};
  if (::fstatfs(dir.get(), &fs) != 0 || ::fstat(dir.get(), &file) != 0)
    return from_errno(fmt::format("cannot read {}", printable(path)), errno);
  if (fs.f_type != v1_magic && fs.f_type != v2_magic) return not_a_cgroup(path, "is not a cgroup");
  if (const auto populated = told_by_the_kernel(dir.get())) return GroupState{file.st_ino, *populated};
  const auto inside = walk_all(std::move(dir));
  if (!inside) return inside.error();
  const bool populated = !inside->pids.empty() || inside->outside > 0;
  return GroupState{file.st_ino, populated, populated};
}

Result<CgroupRef> check_cgroup(const Hierarchies& hierarchies, const std::string& path) {
  if (path.empty() || path[0] != '/') return not_a_cgroup(path, "is not an absolute path");
  if (path.size() >= PATH_MAX || path.find('\0') != std::string::npos) return not_a_cgroup(path, "is not a path");
  const std::unique_ptr<char, decltype(&std::free)> real(::realpath(path.c_str(), nullptr), &std::free);
  if (!real) return not_a_cgroup(path, "does not exist, or cannot be read");
  CgroupRef group;
  group.path = real.get();
  const Fd dir(::open(group.path.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!dir) return not_a_cgroup(path, "is not a directory");
  struct statfs fs {};
  struct stat file {};
  if (::fstatfs(dir.get(), &fs) != 0 || ::fstat(dir.get(), &file) != 0) {
    return from_errno(fmt::format("cannot read {}", printable(path)), errno);
  }
  if (fs.f_type != v1_magic && fs.f_type != v2_magic) return not_a_cgroup(path, "is not a cgroup");
  group.v2 = fs.f_type == v2_magic;
  group.device = file.st_dev;
  group.inode = file.st_ino;
  group.uid = file.st_uid;
  for (const CgroupMount& mount : hierarchies.mounts) {
    if (mount.v2 != group.v2 || !below(group.path, mount.path)) continue;
    if (group.path != mount.path) return group;
    return not_a_cgroup(path, "is the root of its hierarchy, which holds every process");
  }
  return not_a_cgroup(path, "is in no cgroup hierarchy that is mounted here");
}

Result<CgroupProcesses> processes_in(const CgroupRef& group) {
  auto dir = open_group(group.path);
  if (!dir) return dir.error();
  struct stat file {};
  if (::fstat(dir->get(), &file) != 0) return from_errno(fmt::format("cannot read {}", group.path), errno);
  if (file.st_dev != group.device || file.st_ino != group.inode) {
    return not_found(fmt::format("the cgroup {} is gone; another cgroup has its name now", group.path));
  }
  return walk_all(std::move(*dir));
}

Result<CgroupProcesses> processes_below(const std::string& path) {
  auto dir = open_group(path);
  if (!dir) return dir.error();
  return walk_all(std::move(*dir));
}

}  // namespace sublet::proc
