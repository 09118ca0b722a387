// SPDX-License-Identifier: Apache-2.0
#include "compose/program.h"

#include "base/clock.h"
#include "base/fd.h"
#include "base/text.h"
#include "proc/launch.h"

#include <fmt/format.h>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <csignal>

namespace sublet::compose {
namespace {

namespace asio = boost::asio;
constexpr auto quiet = asio::as_tuple(asio::use_awaitable);
constexpr std::size_t most_tail = 4096;  // bytes
constexpr std::size_t most_lines = 12;
constexpr int inherited_number = 3;
constexpr std::chrono::milliseconds look_again{2};
constexpr Duration time_to_end = std::chrono::seconds(3);  // between SIGTERM and SIGKILL

struct Pipe {
  Fd read_end, write_end;
};

Result<Pipe> make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return from_errno("pipe", errno);
  return Pipe{Fd(ends[0]), Fd(ends[1])};
}

// Returns the last lines, without control characters.
std::string last_lines_of(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const auto end = std::min(text.find_first_of("\r\n"), text.size());
    const std::string line = visible(text.substr(0, end));
    if (line.find_first_not_of(" \t") != std::string::npos) lines.push_back(line);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  if (lines.size() > most_lines) lines.erase(lines.begin(), lines.end() - most_lines);
  return fmt::format("{}", fmt::join(lines, "\n"));
}

}  // namespace

struct Programs::Running {
  explicit Running(asio::io_context& io) : exit(io), output(io), errors(io), timer(io), pause(io) {}
  asio::posix::stream_descriptor exit;  // pidfd
  asio::posix::stream_descriptor output, errors;
  asio::steady_timer timer, pause;
  pid_t pid = 0;  // the process group too; not yet reaped
  std::size_t most_output = 0;
  Outcome outcome;
  std::string output_tail, errors_tail;

  void signal(int number) const { ::kill(-pid, number); }
  void take(std::string_view piece, bool standard) {
    std::string& tail = standard ? output_tail : errors_tail;
    tail.append(piece);
    if (tail.size() > 2 * most_tail) tail.erase(0, tail.size() - most_tail);
    if (!standard || most_output == 0) return;
    outcome.output.append(piece.substr(0, most_output - outcome.output.size()));
    if (outcome.output.size() == most_output) {
      outcome.flooded = true;
      signal(SIGKILL);
    }
  }
};

std::string Outcome::text() const {
  if (stopped) return "it was ended, because the daemon left";
  if (timed_out) return "it did not end in time and was ended";
  if (flooded) return "it wrote too much and was ended";
  if (WIFSIGNALED(status)) return "it was ended by " + signal_name(WTERMSIG(status));
  return fmt::format("exit status {}", WEXITSTATUS(status));
}

namespace {

// Reads once. Returns what read(2) does.
template <typename State>
ssize_t read_some(State& state, bool standard) {
  std::array<char, 16384> piece;
  auto& pipe = standard ? state.output : state.errors;
  const ssize_t got = ::read(pipe.native_handle(), piece.data(), piece.size());
  if (got > 0) state.take({piece.data(), static_cast<std::size_t>(got)}, standard);
  return got;
}

// Waits, and reads only then: drain() would miss bytes that a waiting read has already taken out of the pipe.
template <typename State>
asio::awaitable<void> read_pipe(std::shared_ptr<State> state, bool standard) {
  auto& pipe = standard ? state->output : state->errors;
  for (;;) {
    const auto [error] = co_await pipe.async_wait(asio::posix::stream_descriptor::wait_read, quiet);
    if (error) co_return;
    const ssize_t got = read_some(*state, standard);
    if (got == 0 || (got < 0 && errno != EAGAIN)) co_return;
  }
}

// Reads what is there already. A process that left the group may keep the pipe open for ever.
template <typename State>
void drain(State& state, bool standard) {
  (standard ? state.output : state.errors).cancel();
  int pieces = 16;  // a pipe holds 64 KiB
  while (pieces-- > 0 && read_some(state, standard) > 0) {
  }
}

bool has_ended(pid_t pid) {
  siginfo_t end{};
  return ::waitid(P_PID, static_cast<id_t>(pid), &end, WEXITED | WNOWAIT | WNOHANG) != 0 || end.si_pid == pid;
}

// Waits for the end of the program, until its timer at most. Returns whether it has ended. The kernel may say so of a
// pidfd while the program runs on (seen with Linux 6.18): all that it writes then would be lost.
template <typename State>
asio::awaitable<bool> until_ended(State& state) {
  using namespace asio::experimental::awaitable_operators;
  while (!has_ended(state.pid)) {
    auto first = co_await (state.exit.async_wait(asio::posix::stream_descriptor::wait_read, quiet) ||
                           state.timer.async_wait(quiet));
    if (first.index() == 1) co_return false;
    if (has_ended(state.pid)) break;
    state.pause.expires_after(look_again);
    first = co_await (state.pause.async_wait(quiet) || state.timer.async_wait(quiet));
    if (first.index() == 1) co_return false;
  }
  co_return true;
}

Result<pid_t> spawn(const Command& command, int output, int errors) {
  proc::Launch launch{.program = command.program, .arguments = command.arguments};
  launch.environment = command.environment;
  launch.directory = command.directory;
  launch.descriptors = {{0, proc::Launch::nothing}, {1, output}, {2, errors}};
  if (command.inherited >= 0) launch.descriptors.push_back({inherited_number, command.inherited});
  launch.new_session = true;  // without a terminal on which a program could ask questions
  return launch.start();
}

}  // namespace

Programs::Programs(asio::io_context& io) : io_(io), running_(std::make_shared<std::set<Running*>>()) {}
Programs::~Programs() { end_all(); }
bool Programs::empty() const { return running_->empty(); }

void Programs::end_all() {
  for (Running* one : *running_) {
    one->outcome.stopped = true;
    one->signal(SIGKILL);
  }
}

asio::awaitable<Result<Outcome>> Programs::run(Command command) {
  auto output = make_pipe();
  auto errors = make_pipe();
  if (!output || !errors) co_return output ? errors.error() : output.error();
  const auto pid = spawn(command, output->write_end.get(), errors->write_end.get());
  if (!pid) co_return pid.error();
  output->write_end.reset();
  errors->write_end.reset();
  const int pidfd = static_cast<int>(::syscall(SYS_pidfd_open, *pid, 0));
  if (pidfd < 0) {
    const int error = errno;
    ::kill(-*pid, SIGKILL);
    ::waitpid(*pid, nullptr, 0);
    co_return from_errno("pidfd_open", error);
  }
  const auto state = std::make_shared<Running>(io_);
  state->pid = *pid;
  state->most_output = command.most_output;
  state->exit.assign(pidfd);
  state->output.assign(output->read_end.release());
  state->errors.assign(errors->read_end.release());
  state->output.non_blocking(true);
  state->errors.non_blocking(true);
  const auto all = running_;  // this object may be gone at the end of the program
  all->insert(state.get());
  asio::co_spawn(io_, read_pipe(state, true), asio::detached);
  asio::co_spawn(io_, read_pipe(state, false), asio::detached);

  // A zombie keeps its number, so the group can be signalled until the program is reaped.
  state->timer.expires_after(std::chrono::duration_cast<std::chrono::steady_clock::duration>(command.timeout));
  if (!co_await until_ended(*state)) {
    state->outcome.timed_out = true;
    state->signal(SIGTERM);
    state->timer.expires_after(time_to_end);
    const bool has_left = co_await until_ended(*state);
    state->signal(SIGKILL);
    state->timer.expires_at(asio::steady_timer::time_point::max());
    if (!has_left) co_await until_ended(*state);
  }
  drain(*state, true);
  drain(*state, false);
  all->erase(state.get());
  Outcome& outcome = state->outcome;
  siginfo_t end{};
  ::waitid(P_PID, static_cast<id_t>(state->pid), &end, WEXITED | WNOWAIT);
  const bool failed = end.si_code != CLD_EXITED || end.si_status != 0 || !outcome.succeeded();
  if (failed) state->signal(SIGKILL);  // what the program left behind
  ::waitpid(state->pid, &outcome.status, 0);
  outcome.last_lines = last_lines_of(state->errors_tail);
  if (outcome.last_lines.empty()) outcome.last_lines = last_lines_of(state->output_tail);
  co_return std::move(outcome);
}

}  // namespace sublet::compose
