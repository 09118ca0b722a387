// SPDX-License-Identifier: Apache-2.0
#include "keep/child.h"

#include "base/text.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

namespace sublet::keep {
namespace {

constexpr int abandoned_status = 125;

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (const std::string& text : texts) out.push_back(const_cast<char*>(text.c_str()));
  out.push_back(nullptr);
  return out;
}

// False, with errno: the program would have other descriptors than it was to have.
bool set_descriptors(int output) {
  if (output < 0) return true;
  const int nothing = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  return nothing >= 0 && ::dup2(nothing, STDIN_FILENO) >= 0 && ::dup2(output, STDOUT_FILENO) >= 0 &&
         ::dup2(output, STDERR_FILENO) >= 0;
}

// Runs in the child between fork and exec. No other thread can hold a lock, because there is only one thread.
[[noreturn]] void become(const char* file, char* const* arguments, char* const* environment, int gate, int exec) {
  char go = 0;
  ssize_t n = 0;
  do {
    n = ::read(gate, &go, 1);
  } while (n < 0 && errno == EINTR);
  if (n != 1) ::_exit(abandoned_status);
  ::execvpe(file, arguments, environment);
  const int errnum = errno;
  // A failed write cannot be reported: the parent sees the exit status.
  const ssize_t told = ::write(exec, &errnum, sizeof errnum);
  ::_exit(told == static_cast<ssize_t>(sizeof errnum) ? ExecFailure{errnum}.status() : abandoned_status);
}

}  // namespace

int ExecFailure::status() const { return errnum == ENOENT ? 127 : 126; }

std::string ExecFailure::detail(const std::string& program) const {
  if (errnum == ENOENT && why.empty() && program.find('/') == std::string::npos) {
    return fmt::format("'{}' was not found in PATH", printable(program));
  }
  return fmt::format("'{}' cannot be executed: {}", printable(program), why.empty() ? std::strerror(errnum) : why);
}

std::string describe_end(int status) {
  if (WIFSIGNALED(status)) return fmt::format("signal {} ({})", WTERMSIG(status), strsignal(WTERMSIG(status)));
  return fmt::format("exit status {}", WEXITSTATUS(status));
}

Result<Child> Child::fork(const Launch& launch, const Signals& signals, Grouping grouping) {
  int gate[2], exec[2];
  if (::pipe2(gate, O_CLOEXEC) != 0) return from_errno("cannot create a pipe for the program", errno);
  Child child;
  Fd gate_reader(gate[0]);
  child.gate_ = Fd(gate[1]);
  if (::pipe2(exec, O_CLOEXEC) != 0) return from_errno("cannot create a pipe for the program", errno);
  child.exec_ = Fd(exec[0]);
  Fd exec_writer(exec[1]);
  const auto arguments = pointers(launch.arguments);
  const auto environment = pointers(launch.environment);
  const pid_t pid = ::fork();
  if (pid < 0) return from_errno("cannot start the program: fork", errno);
  if (pid == 0) {
    if (grouping == Grouping::own) ::setpgid(0, 0);
    child.gate_.reset();  // else the child would never see the end of its parent
    signals.restore();
    if (!set_descriptors(launch.output)) ::_exit(abandoned_status);
    if (launch.umask) ::umask(static_cast<mode_t>(*launch.umask));
    set_limits(launch.limits);
    become(launch.file().c_str(), arguments.data(), environment.data(), gate_reader.get(), exec_writer.get());
  }
  child.pid_ = pid;
  // Called in parent and child, because either may run first and the group must exist before it is used.
  if (grouping == Grouping::own) ::setpgid(pid, pid);
  return child;
}

void Child::let_go() {
  const char go = 1;
  while (::write(gate_.get(), &go, 1) < 0 && errno == EINTR) {
  }
  gate_.reset();
}

void Child::abandon() { gate_.reset(); }

std::optional<ExecFailure> Child::exec_result() {
  int errnum = 0;
  ssize_t n = 0;
  do {
    n = ::read(exec_.get(), &errnum, sizeof errnum);
  } while (n < 0 && errno == EINTR);
  exec_.reset();
  if (n == static_cast<ssize_t>(sizeof errnum)) return ExecFailure{errnum};
  return std::nullopt;
}

}  // namespace sublet::keep
