// SPDX-License-Identifier: Apache-2.0
#include "cli/start_check.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cctype>
#include <cerrno>
#include <filesystem>
#include <vector>

namespace sublet::cli {
namespace {

bool may_open(const std::string& path) { return ::access(path.c_str(), R_OK | W_OK) == 0 || errno == ENOENT; }

// The files /dev/nvidia0, /dev/nvidia1 …
std::vector<std::string> card_files(const std::string& dir) {
  std::vector<std::string> found;
  std::error_code failure;
  for (std::filesystem::directory_iterator entry(dir, failure), end; !failure && entry != end;
       entry.increment(failure)) {
    const std::string name = entry->path().filename().string();
    if (name.starts_with("nvidia") && name.size() > 6 && std::isdigit(static_cast<unsigned char>(name[6])) != 0)
      found.push_back(entry->path().string());
  }
  return found;
}

std::string no_right(const std::string& path) {
  return fmt::format(
      "this user may not read and write {0}, so the program needs more rights to use a GPU; `ls -l {0}` shows the "
      "group that may",
      path);
}

}  // namespace

Status check_directory() {
  std::error_code failure;
  (void)std::filesystem::current_path(failure);
  if (failure != std::errc::no_such_file_or_directory) return {};
  return not_found("the working directory was removed, so no program can start in it",
                   "change to a directory that exists, then repeat the command");
}

Status check_caller(const client::Client& client) {
  if (client.endpoint().tcp()) {
    return denied("a program cannot be started under a lease over TCP: the daemon cannot verify the process",
                  "use the daemon's Unix socket: --host unix://PATH or SUBLET_HOST");
  }
  if (client.daemon_pid() != 0) return {};
  return denied(
      "a program cannot be started under a lease from another pid namespace: the daemon cannot verify the process",
      "start the container with --pid=host, or hold the lease from outside: sublet hold --vram SIZE --pid PID");
}

std::string unusable_device_files(const std::string& dir) {
  for (const char* name : {"nvidiactl", "nvidia-uvm"}) {
    const std::string path = fmt::format("{}/{}", dir, name);
    if (!may_open(path)) return no_right(path);
  }
  // The numbers of the files are not those of the cards. A user may have a right to some cards only.
  const auto cards = card_files(dir);
  for (const std::string& path : cards) {
    if (may_open(path)) return {};
  }
  if (!cards.empty()) return no_right(cards.front());
  return {};
}

}  // namespace sublet::cli
