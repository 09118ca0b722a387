// SPDX-License-Identifier: Apache-2.0
#include "shim/place.h"

#include "shim/settings.h"

#include <sys/stat.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>

namespace sublet::shim {
namespace {

constexpr int most_links = 40;  // as the kernel follows

// "" if the path is no symbolic link.
std::string link_target(const std::string& path) {
  std::string target(PATH_MAX, '\0');
  const ssize_t size = ::readlink(path.c_str(), target.data(), target.size());
  target.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
  return target;
}

// The path that the link leads to; "" if the path is no link.
std::string followed(const std::string& path) {
  std::string target = link_target(path);
  if (target.empty() || target.front() == '/') return target;
  return directory_of(path) + "/" + target;
}

// "" unless it is an absolute path.
std::string absolute_variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value == '/' ? value : std::string();
}

}  // namespace

std::string directory_of(const std::string& path) {
  const auto slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string name_of(const std::string& path) { return path.substr(path.rfind('/') + 1); }

std::string program_path() {
  const std::string self = link_target("/proc/self/exe");
  return self.empty() ? std::string() : directory_of(self) + "/" + std::string(program_name);
}

std::string user_directory() {
  std::string data = absolute_variable("XDG_DATA_HOME");
  if (data.empty()) {
    const std::string home = absolute_variable("HOME");
    if (home.empty()) return {};
    data = home + "/.local/share";
  }
  return data + "/sublet/shims";
}

std::string system_directory() {
  const std::string prefix = directory_of(directory_of(program_path()));
  return (prefix == "/" ? "" : prefix) + "/lib/sublet/shims";
}

bool is_shim(const std::string& path) {
  std::string at = path;
  for (int i = 0; i < most_links; ++i) {
    if (name_of(at) == program_name) return true;
    const std::string next = followed(at);
    if (next.empty()) break;
    at = next;
  }
  struct stat file {
  }, ours{};
  return ::stat(path.c_str(), &file) == 0 && ::stat(program_path().c_str(), &ours) == 0 && file.st_dev == ours.st_dev &&
         file.st_ino == ours.st_ino;
}

std::optional<std::string> called_shim(std::string path) {
  for (int i = 0; i < most_links; ++i) {
    struct stat status {};
    if (name_of(path) != program_name && ::lstat(settings_path(path).c_str(), &status) == 0) return path;
    std::string next = followed(path);
    if (next.empty()) break;
    // The last link leads to our program: its own name is that of the shim, with or without settings.
    if (name_of(next) == program_name) return path;
    path = std::move(next);
  }
  return std::nullopt;
}

}  // namespace sublet::shim
