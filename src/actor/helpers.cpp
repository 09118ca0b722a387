// SPDX-License-Identifier: Apache-2.0
#include "actor/helpers.h"

#include "actor/become.h"
#include "base/clock.h"
#include "proc/pidfd.h"
#include "proc/spawn.h"

#include <fmt/format.h>

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <optional>
#include <utility>

namespace sublet::actor {
namespace {

constexpr int above_fixed_descriptors = 10;
// Its user may stop it as soon as it is that user's, which is just before it starts; nobody waits for that for long.
constexpr int start_timeout_ms = 1000;

// Two descriptors that are out of the way of the numbers which the child gives out.
bool move_up(Fd& fd) {
  Fd higher(::fcntl(fd.get(), F_DUPFD_CLOEXEC, above_fixed_descriptors));
  fd = std::move(higher);
  return static_cast<bool>(fd);
}

struct Pair {
  Fd ours, theirs;
};

std::optional<Pair> make_socket() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return {};
  Pair pair{Fd(ends[0]), Fd(ends[1])};
  if (!move_up(pair.theirs)) return {};
  return pair;
}

std::optional<Pair> make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return {};
  Pair pair{Fd(ends[0]), Fd(ends[1])};
  if (!move_up(pair.theirs)) return {};
  return pair;
}

// None: it runs, or has been ended from outside, which who has the socket will see.
std::optional<Trouble> trouble_of(const Fd& pipe) {
  pollfd entry{pipe.get(), POLLIN, 0};
  int ready = 0;
  do {
    ready = ::poll(&entry, 1, start_timeout_ms);
  } while (ready < 0 && errno == EINTR);
  Trouble trouble{static_cast<int>(std::size(becoming_steps)) - 1, ETIMEDOUT};
  if (ready <= 0) return trouble;
  if (::read(pipe.get(), &trouble, sizeof trouble) != static_cast<ssize_t>(sizeof trouble)) return {};
  return trouble;
}

}  // namespace

Code Helpers::may_start(ProcessRef process, std::uint32_t uid) const {
  const auto of_process = [&](const Running& running) { return running.process == process; };
  if (std::any_of(running_.begin(), running_.end(), of_process)) return Code::busy;
  const auto of_user = std::count_if(running_.begin(), running_.end(), [&](const Running& r) { return r.uid == uid; });
  const bool full = running_.size() >= options_.most || static_cast<std::size_t>(of_user) >= options_.most_of_user;
  return full ? Code::too_many : Code::ok;
}

std::vector<std::string> Helpers::words_for(ProcessRef process) const {
  std::vector<std::string> words{options_.program, "checkpoint",
                                 "--fd",           std::to_string(proc::helper_socket),
                                 "--pid",          std::to_string(process.pid),
                                 "--start",        std::to_string(process.start_ticks)};
  if (!options_.driver.empty()) words.insert(words.end(), {"--driver", options_.driver});
  return words;
}

Helpers::Started Helpers::start(ProcessRef process, Fd target, const proc::Rights& rights) {
  Started started;
  sweep();
  if (started.code = may_start(process, rights.uids[0]); started.code != Code::ok) return started;
  started.code = Code::failed;
  if (options_.program.empty()) {
    started.why = "sublet-gpu is not installed beside it";
    return started;
  }
  auto socket = make_socket(), trouble = make_pipe();
  const std::vector<std::string> words = words_for(process);
  const pid_t pid = socket && trouble ? ::fork() : -1;
  if (pid == 0) {
    become({.rights = rights,
            .program = options_.program,
            .words = words,
            .environment = options_.environment,
            .socket = socket->theirs.get(),
            .trouble = trouble->theirs.get()});
  }
  if (pid < 0) {
    started.error = errno;
    return started;
  }
  socket->theirs.reset();
  trouble->theirs.reset();
  running_.push_back({.pid = pid, .process = process, .target = std::move(target), .uid = rights.uids[0]});
  if (const auto wrong = trouble_of(trouble->ours)) {
    ::kill(pid, SIGKILL);
    started.error = wrong->error;
    const auto step = static_cast<std::size_t>(wrong->step);
    started.why = step < std::size(becoming_steps) ? becoming_steps[step] : "its start failed";
    return started;
  }
  started.code = Code::ok;
  started.pid = pid;
  started.socket = std::move(socket->ours);
  return started;
}

void Helpers::sweep() {
  const std::int64_t now = monotonic_ns();
  std::erase_if(running_, [&](Running& running) {
    if (::waitpid(running.pid, nullptr, WNOHANG) != 0) return true;
    if (!proc::is_dead(running.target.get())) return false;
    if (running.useless_since_ns == 0) running.useless_since_ns = now;
    // Not yet waited for, so the pid is still its own.
    if (now - running.useless_since_ns >= options_.patience.count()) ::kill(running.pid, SIGKILL);
    return false;
  });
}

}  // namespace sublet::actor
