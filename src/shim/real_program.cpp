// SPDX-License-Identifier: Apache-2.0
#include "shim/real_program.h"

#include "base/text.h"
#include "shim/place.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <functional>

namespace sublet::shim {
namespace {

// 0 if exec takes the file, else its errno.
int executable(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return errno;
  if (!S_ISREG(status.st_mode)) return EACCES;
  return ::access(path.c_str(), X_OK) == 0 ? 0 : errno;
}

bool is_same_file(const std::string& a, const std::string& b) {
  struct stat first {
  }, second{};
  return ::stat(a.c_str(), &first) == 0 && ::stat(b.c_str(), &second) == 0 && first.st_dev == second.st_dev &&
         first.st_ino == second.st_ino;
}

bool is_directory(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

struct Found {
  std::string path;     // "": none
  std::string blocked;  // a file that is there and cannot be executed; "": none
};

// An empty entry of PATH is the working directory, as for exec.
Found search(const std::string& name, std::string_view path,
             const std::function<bool(const std::string& directory, const std::string& file)>& skips) {
  Found found;
  for (;;) {
    const auto colon = path.find(':');
    const std::string directory(colon == 0 || path.empty() ? "." : path.substr(0, colon));
    const std::string file = directory == "/" ? "/" + name : directory + "/" + name;
    const int errnum = executable(file);
    if ((errnum == 0 || errnum == EACCES) && !skips(directory, file)) {
      if (errnum == 0) return {file, {}};
      if (found.blocked.empty()) found.blocked = file;
    }
    if (colon == std::string_view::npos) return found;
    path.remove_prefix(colon + 1);
  }
}

Error real_is_shim(const std::string& real, const std::string& name) {
  return denied(fmt::format("the real program {} of the shim '{}' is a shim itself", printable(real), printable(name)),
                fmt::format("name the real program: sublet shim add {} --vram SIZE --real PATH", printable(name)));
}

Error real_is_directory(std::string directory, const std::string& name) {
  while (directory.ends_with('/')) directory.pop_back();
  return denied(fmt::format("the real program of the shim '{}' is the directory {}", printable(name),
                            directory.empty() ? "/" : printable(directory)),
                fmt::format("name the program itself: sublet shim add {0} --vram SIZE --real {1}/{0}", printable(name),
                            printable(directory)));
}

}  // namespace

std::string first_in_path(const std::string& name, std::string_view path) {
  return search(name, path, [](const std::string&, const std::string&) { return false; }).path;
}

Result<std::string> find_real_program(const std::string& shim, const Settings& settings, std::string_view path) {
  const std::string name = name_of(shim);
  if (!settings.real.empty()) {
    if (is_shim(settings.real)) return real_is_shim(settings.real, name);
    if (is_directory(settings.real)) return real_is_directory(settings.real, name);
    const int errnum = executable(settings.real);
    if (errnum == 0) return settings.real;
    const std::string detail = fmt::format("the real program {} of the shim '{}' cannot be executed: {}",
                                           printable(settings.real), printable(name), std::strerror(errnum));
    const std::string hint =
        fmt::format("install it, or name another: sublet shim add {} --vram SIZE --real PATH", printable(name));
    return errnum == ENOENT || errnum == ENOTDIR ? not_found(detail, hint) : denied(detail, hint);
  }
  const std::string own_directory = directory_of(shim);
  const Found found = search(name, path, [&](const std::string& directory, const std::string& file) {
    return is_same_file(directory, own_directory) || is_shim(file);
  });
  if (!found.path.empty()) return found.path;
  if (!found.blocked.empty())
    return denied(fmt::format("'{}' cannot be executed: {}", printable(found.blocked), std::strerror(EACCES)));
  return not_found(
      fmt::format("PATH has no program '{}' besides its shim", printable(name)),
      fmt::format("install it, or name its file: sublet shim add {} --vram SIZE --real PATH", printable(name)));
}

std::string path_variable() {
  const char* path = std::getenv("PATH");
  return path != nullptr ? path : "/bin:/usr/bin";
}

}  // namespace sublet::shim
