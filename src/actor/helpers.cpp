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
#include <map>
#include <optional>
#include <utility>

namespace sublet::actor {
namespace {

constexpr int above_fixed_descriptors = 10;
// For the few system calls that the child makes as root. Nobody else can stop the child before they are done.
constexpr int start_timeout_ms = 1000;

// Moves a descriptor above the fixed numbers that the child uses.
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

// None: the child is about to exec. The actor does not wait for the exec, because the user may stop the child from then
// on.
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

Helpers::Helpers(const proc::ProcRoot& root, HelperOptions options)
    : root_(root), options_(std::move(options)), records_(options_.records) {
  adopt();
}

void Helpers::adopt() {
  for (const Records::Record& record : records_.read()) {
    auto helper = proc::open_pidfd(root_, record.helper);
    auto target = proc::open_pidfd(root_, record.process);
    const auto untold = [](const Result<Fd>& opened) {
      return !opened && opened.error().code != sublet::Code::NotFound;
    };
    if (untold(helper) || untold(target)) continue;  // it may live, so it is neither swept nor forgotten
    if (!helper) {
      records_.remove(record.helper.pid);
      continue;
    }
    running_.push_back({.pid = record.helper.pid,
                        .pidfd = std::move(*helper),
                        .process = record.process,
                        .target = target ? std::move(*target) : Fd(),
                        .uid = record.uid});
  }
}

Code Helpers::may_start(ProcessRef process, std::uint32_t uid, bool to_bring_back) const {
  std::map<std::uint32_t, std::size_t> of_user;
  for (const Running& running : running_) {
    if (running.process == process) return Code::busy;
    ++of_user[running.uid];
  }
  if (to_bring_back) return Code::ok;
  std::size_t all = 0;
  for (const auto& [user, count] : of_user) all += std::min(count, options_.most_of_user);
  return all >= options_.most || of_user[uid] >= options_.most_of_user ? Code::too_many : Code::ok;
}

std::vector<std::string> Helpers::words_for(ProcessRef process) const {
  std::vector<std::string> words{options_.program, "checkpoint",
                                 "--fd",           std::to_string(proc::helper_socket),
                                 "--pid",          std::to_string(process.pid),
                                 "--start",        std::to_string(process.start_ticks)};
  if (!options_.driver.empty()) words.insert(words.end(), {"--driver", options_.driver});
  return words;
}

Helpers::Started Helpers::start(ProcessRef process, Fd target, const proc::Rights& rights, bool to_bring_back) {
  Started started;
  sweep();
  started.code = may_start(process, rights.uids[0], to_bring_back);
  if (started.code != Code::ok) return started;
  started.code = Code::failed;
  if (options_.program.empty()) {
    started.why = "sublet-gpu is not in the directory of sublet-actor";
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
  // If the actor ends before this line, the helper ends too, because the other end of its socket is closed.
  if (const auto child = root_.read(pid)) {
    records_.write({.helper = child->ref, .process = process, .uid = rights.uids[0]});
  }
  running_.push_back({.pid = pid, .pidfd = {}, .process = process, .target = std::move(target), .uid = rights.uids[0]});
  if (const auto wrong = trouble_of(trouble->ours)) {
    ::kill(pid, SIGKILL);
    started.error = wrong->error;
    const auto step = static_cast<std::size_t>(wrong->step);
    started.why = step < std::size(becoming_steps) ? becoming_steps[step] : "sublet-gpu did not start";
    return started;
  }
  started.code = Code::ok;
  started.pid = pid;
  started.socket = std::move(socket->ours);
  return started;
}

bool Helpers::ended(const Running& running) {
  if (running.pidfd) return proc::is_dead(running.pidfd.get());
  return ::waitpid(running.pid, nullptr, WNOHANG) != 0;
}

void Helpers::kill(const Running& running) {
  if (running.pidfd) (void)proc::send_signal(running.pidfd.get(), SIGKILL);
  else ::kill(running.pid, SIGKILL);  // not yet reaped, so the pid is still its own
}

void Helpers::sweep() {
  const std::int64_t now = monotonic_ns();
  std::erase_if(running_, [&](Running& running) {
    if (ended(running)) {
      records_.remove(running.pid);
      return true;
    }
    if (running.target && !proc::is_dead(running.target.get())) return false;
    if (running.useless_since_ns == 0) running.useless_since_ns = now;
    if (now - running.useless_since_ns >= options_.patience.count()) kill(running);
    return false;
  });
}

}  // namespace sublet::actor
