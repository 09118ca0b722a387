// SPDX-License-Identifier: Apache-2.0
// What runs on this machine, read from /proc. Reading is a snapshot of something that moves: a process may be
// gone, or its pid somebody else's, by the time the answer is used. Who wants to signal uses a pidfd
// (pidfd.h).
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
  std::int32_t ppid = 0;  // 0: none that this pid namespace can see
  std::int32_t pgrp = 0;
  std::int32_t session = 0;
  std::uint32_t uid = 0;  // effective
  char state = '?';       // as in /proc/PID/stat: R S D T t Z X I
  std::int32_t threads = 0;
  std::string comm;     // the kernel's short name, printable
  bool kernel = false;  // a thread of the kernel, which no signal ends

  // Nothing of it runs any more and its memory is gone. A process whose first thread has ended shows Z while
  // its other threads go on: that one lives.
  bool dead() const { return (state == 'Z' || state == 'X' || state == 'x') && threads <= 1; }
};

// Reads /proc, or a tree that looks like it. Holds the directory open; one thread at a time.
class ProcRoot {
 public:
  static Result<ProcRoot> open(const std::string& path = "/proc");

  // All processes in one pass, in no order, dead ones included. What ends during the pass is left out.
  Result<std::vector<ProcessInfo>> list() const;

  // One process; NotFound when there is none with this pid.
  Result<ProcessInfo> read(std::int32_t pid) const;

  // The same, with the text of another file of its directory ("status", "cgroup") that is certainly of the same
  // process.
  struct Detailed {
    ProcessInfo info;
    std::string text;
  };
  Result<Detailed> read_with(std::int32_t pid, const char* file) const;

  // The arguments joined by spaces, printable, at most 4 KiB (then ending in "…"); "[comm]" where there are
  // none (a kernel thread, or a process that hides them); "" for a process that is gone. A process chooses
  // what it shows here. The kernel may make the reader wait while that process's memory is being rearranged:
  // not for the event loop in bulk.
  std::string command_line(std::int32_t pid) const;

  // A file below the root, at most `limit` bytes of it.
  Result<std::string> read_file(const std::string& relative, std::size_t limit = 65536) const;

  // To whom a file below the root belongs; none where there is no such file. That of a process which does not let
  // itself be traced is root's.
  std::optional<std::uint32_t> owner_of(const std::string& relative) const;

  // Whether any of its threads has memory: one of which none has is ending, though its pidfd does not say so yet, and
  // it may take seconds to. Where that cannot be read: yes.
  bool has_memory(std::int32_t pid) const;

  // Whether the process, whose status was just read, is in the pid and user namespaces in which this root shows pids
  // and uids. By what everybody may read; of a process that is gone: no.
  bool shares_namespaces(std::int32_t pid, std::string_view status) const;

  // The kernel's id of this boot, 36 characters: start ticks of another boot mean nothing.
  Result<std::string> boot_id() const;

 private:
  explicit ProcRoot(Fd dir) : dir_(std::move(dir)) {}
  Fd dir_;
};

// The user ids of a process from the text of its /proc/PID/status.
struct Uids {
  std::uint32_t real = 0;
  std::uint32_t effective = 0;
  std::uint32_t saved = 0;
};
std::optional<Uids> parse_uids(std::string_view status);

// Whose rights a process has, from the same text. The four numbers are the real, effective, saved and file system's.
struct Rights {
  std::array<std::uint32_t, 4> uids{};
  std::array<std::uint32_t, 4> gids{};
  std::vector<std::uint32_t> groups;  // supplementary

  // It is one user's and one group's through and through: no program with the rights of its file's owner.
  bool plain() const;
};
std::optional<Rights> parse_rights(std::string_view status);

// Parses the text of /proc/PID/stat (uid is not in it). A name may hold spaces and parentheses.
std::optional<ProcessInfo> parse_stat(std::string_view text);

}  // namespace sublet::proc
