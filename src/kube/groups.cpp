// SPDX-License-Identifier: Apache-2.0
#include "kube/groups.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>

namespace sublet::kube {
namespace {

constexpr std::string_view classes[] = {"", "burstable", "besteffort"};  // a guaranteed pod has none

bool is_directory(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

// "/a.slice/a-b.slice" of the root "/a/b": slices lie below those that their names begin with. A root that is a slice
// stays as it is.
std::string slices_of(const std::string& root) {
  if (root.ends_with(".slice")) return root;
  std::string path, name;
  for (std::size_t at = 0; at < root.size();) {
    const auto end = std::min(root.find('/', at), root.size());
    const std::string part = root.substr(at, end - at);
    at = end + 1;
    if (part.empty()) continue;
    name += part;
    path += fmt::format("/{}.slice", name);
    name += "-";
  }
  return path;
}

std::string last_slice(const std::string& slices) {
  const auto slash = slices.rfind('/');
  if (slash == std::string::npos) return {};
  std::string name = slices.substr(slash + 1);
  return name.substr(0, name.size() - 6) + "-";  // without ".slice"
}

}  // namespace

std::vector<std::string> group_candidates(const std::string& root, std::string_view uid) {
  std::vector<std::string> paths;
  const std::string top = root == "/" ? "" : root.ends_with('/') ? root.substr(0, root.size() - 1) : root;
  for (const std::string_view quality : classes)
    paths.push_back(fmt::format("{}/kubepods{}{}/pod{}", top, quality.empty() ? "" : "/", quality, uid));
  std::string escaped(uid);
  std::ranges::replace(escaped, '-', '_');
  const std::string slices = slices_of(top), before = last_slice(slices);
  for (const std::string_view quality : classes) {
    std::string name = fmt::format("{}kubepods", before), path = fmt::format("{}/{}.slice", slices, name);
    if (!quality.empty()) {
      name += fmt::format("-{}", quality);
      path += fmt::format("/{}.slice", name);
    }
    paths.push_back(fmt::format("{}/{}-pod{}.slice", path, name, escaped));
  }
  return paths;
}

Result<std::string> find_group(const proc::Hierarchies& hierarchies, const std::string& root, std::string_view uid) {
  if (uid.empty() || uid.find('/') != std::string_view::npos) return bad_request("the pod has no uid");
  std::vector<const proc::CgroupMount*> mounts;
  for (const char* controller : {"memory", "pids", "cpu", "cpuset", "freezer"})
    if (const auto* mount = hierarchies.v1(controller)) mounts.push_back(mount);
  if (const auto* mount = hierarchies.v2()) mounts.push_back(mount);
  for (const proc::CgroupMount* mount : mounts)
    for (const std::string& candidate : group_candidates(root, uid)) {
      std::string directory = proc::directory_of(*mount, candidate);
      if (!directory.empty() && is_directory(directory)) return directory;
    }
  return not_found(fmt::format("the kubelet has made no control group for the pod with the uid {}", uid),
                   "check --cgroup-root, and that the agent sees the node's control groups");
}

std::string uid_of_group(std::string_view path) {
  const auto slash = path.rfind('/');
  std::string name(slash == std::string_view::npos ? path : path.substr(slash + 1));
  if (path.find("kubepods") == std::string_view::npos) return {};
  if (name.starts_with("pod")) return name.substr(3);
  const auto at = name.rfind("-pod");
  if (!name.ends_with(".slice") || at == std::string::npos) return {};
  name = name.substr(at + 4, name.size() - at - 4 - 6);
  std::ranges::replace(name, '_', '-');
  return name;
}

}  // namespace sublet::kube
