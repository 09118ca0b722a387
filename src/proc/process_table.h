// SPDX-License-Identifier: Apache-2.0
// Reads the processes of this machine from /proc. A result is already old when it is used: a process may be gone, or
// its pid reused. Code that signals a process uses a pidfd (pidfd.h).
#pragma once

#include "base/error.h"
#include "base/fd.h"
#include "base/ids.h"

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace sublet::proc {

struct ProcessInfo {
  ProcessRef ref;
  std::int32_t ppid = 0;  // 0: this pid namespace does not show the parent
  std::int32_t pgrp = 0;
  std::int32_t session = 0;
  std::uint32_t uid = 0;  // effective
  char state = '?';       // as in /proc/PID/stat: R S D T t Z X I
  std::int32_t threads = 0;
  std::string comm;     // the kernel's short name, printable
  bool kernel = false;  // a thread of the kernel, which no signal ends

  // All threads have ended, and the memory is freed. If only the first thread has ended, the state is Z while other
  // threads still run: such a process is alive.
  bool dead() const { return (state == 'Z' || state == 'X' || state == 'x') && threads <= 1; }
};

// Reads /proc, or a test tree with the same layout. Keeps the directory open. One thread at a time.
class ProcRoot {
 public:
  static Result<ProcRoot> open(const std::string& path = "/proc");

  // Returns all processes in one pass, unordered, with dead ones. Processes that end during the pass are left out.
  Result<std::vector<ProcessInfo>> list() const;

  // Returns a process; NotFound if no process has this pid.
  Result<ProcessInfo> read(std::int32_t pid) const;

  // The same, with the text of another file ("status", "cgroup") that is certainly of the same process.
  struct Detailed {
    ProcessInfo info;
    std::string text;
  };
  Result<Detailed> read_with(std::int32_t pid, const char* file) const;

  // Returns the arguments joined by spaces, printable, at most 4 KiB (longer text ends in "…"). "[comm]" if there are
  // no arguments: a kernel thread, or a process that hides them. "" if the process is gone. The process itself chooses
  // this text. The kernel may block the reader while the memory map of the process changes, so the event loop must not
  // call this for many processes.
  std::string command_line(std::int32_t pid) const;

  // Returns at most `limit` bytes of a file below the root.
  Result<std::string> read_file(const std::string& relative, std::size_t limit = 65536) const;

  // Opens the directory of a process, or a directory below the root. The kernel binds the directory of a process to
  // that process: once it has ended, nothing can be read there, also if its pid is reused.
  Result<Fd> open_directory(const std::string& relative) const;

  // Returns the owner of a file below the root; none if there is no such file. Files of a process that may not be
  // traced belong to root.
  std::optional<std::uint32_t> owner_of(const std::string& relative) const;

  // Whether any thread of the process still has memory. A process without memory is ending, although its pidfd may not
  // say so for seconds. True if the kernel does not tell.
  bool has_memory(std::int32_t pid) const;

  // Whether the process has the pid and user namespaces of this root. `status`: the text of its status file, just read.
  // Uses only files that every user may read. False if the process is gone.
  bool shares_namespaces(std::int32_t pid, std::string_view status) const;

  // Returns the kernel's id of this boot, 36 characters. Start ticks are comparable only within a boot.
  Result<std::string> boot_id() const;

 private:
  explicit ProcRoot(Fd dir) : dir_(std::move(dir)) {}
  Fd dir_;
};

// The user ids of a process, from the text of its /proc/PID/status.
struct Uids {
  std::uint32_t real = 0;
  std::uint32_t effective = 0;
  std::uint32_t saved = 0;
};
std::optional<Uids> parse_uids(std::string_view status);

// The ids that decide a process's rights, from the same text. Each array is real, effective, saved and file system id.
struct Rights {
  std::array<std::uint32_t, 4> uids{};
  std::array<std::uint32_t, 4> gids{};
  std::vector<std::uint32_t> groups;  // supplementary

  // Whether all uids and all gids are equal, so that the process has no rights of a set-uid file.
  bool plain() const;
};
std::optional<Rights> parse_rights(std::string_view status);

// Parses the text of /proc/PID/stat, which has no uid. The name may contain spaces and parentheses.
std::optional<ProcessInfo> parse_stat(std::string_view text);

}  // namespace sublet::proc
