// SPDX-License-Identifier: Apache-2.0
#include "proc/launch.h"

#include "base/fd.h"

#include <fcntl.h>
#include <spawn.h>
#include <unistd.h>
#include <cerrno>
#include <csignal>

namespace sublet::proc {
namespace {

constexpr int above_all = 10;  // no program gets this number

std::vector<char*> pointers_to(const std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (const std::string& word : words) pointers.push_back(const_cast<char*>(word.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

struct Actions {
  Actions() { ::posix_spawn_file_actions_init(&all); }
  ~Actions() { ::posix_spawn_file_actions_destroy(&all); }
  Actions(const Actions&) = delete;
  Actions& operator=(const Actions&) = delete;
  posix_spawn_file_actions_t all;
};

}  // namespace

Result<pid_t> Launch::start() const {
  Actions actions;
  std::vector<Fd> moved;  // a copy with another number: dup2 to the same number would leave close-on-exec set
  for (const auto& [number, from] : descriptors) {
    if (from == nothing) {
      ::posix_spawn_file_actions_addopen(&actions.all, number, "/dev/null", O_RDWR, 0);
      continue;
    }
    moved.emplace_back(::fcntl(from, F_DUPFD_CLOEXEC, above_all));
    if (!moved.back()) return from_errno("cannot start " + program, errno);
    ::posix_spawn_file_actions_adddup2(&actions.all, moved.back().get(), number);
  }
  if (!directory.empty()) ::posix_spawn_file_actions_addchdir_np(&actions.all, directory.c_str());
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  sigset_t none, all;
  ::sigemptyset(&none);
  ::sigfillset(&all);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setsigdefault(&attributes, &all);
  const int session = new_session ? POSIX_SPAWN_SETSID : 0;
  ::posix_spawnattr_setflags(&attributes, static_cast<short>(POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | session));
  std::vector<std::string> words{program};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> variables;
  if (environment) variables = pointers_to(*environment);
  pid_t pid = 0;
  const int failed = ::posix_spawnp(&pid, program.c_str(), &actions.all, &attributes, pointers_to(words).data(),
                                    environment ? variables.data() : environ);
  ::posix_spawnattr_destroy(&attributes);
  if (failed != 0) return from_errno("cannot start " + program, failed);
  return pid;
}

}  // namespace sublet::proc
