// SPDX-License-Identifier: Apache-2.0
#include "keep/signals.h"

#include <sys/resource.h>
#include <sys/signalfd.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>

namespace sublet::keep {
namespace {

constexpr int wanted[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT, SIGWINCH, SIGCHLD};
// A closed pipe and a limit of the caller must not end this process.
constexpr std::array unwanted = {SIGPIPE, SIGXFSZ, SIGXCPU};

bool ignored(int signal) {
  struct sigaction action {};
  ::sigaction(signal, nullptr, &action);
  return action.sa_handler == SIG_IGN;
}

struct sigaction plain(void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  sigemptyset(&action.sa_mask);
  return action;
}

}  // namespace

Signals::Signals() {
  sigemptyset(&taken_);
  for (const int signal : wanted) {
    // With SIGCHLD ignored, the kernel would drop exit statuses. It is set to its default below.
    if (signal == SIGCHLD || !ignored(signal)) sigaddset(&taken_, signal);
  }
  const auto ignore = plain(SIG_IGN), standard = plain(SIG_DFL);
  for (std::size_t i = 0; i < unwanted.size(); ++i) ::sigaction(unwanted[i], &ignore, &ignored_before_[i]);
  ::sigaction(SIGCHLD, &standard, &child_before_);
  ::sigprocmask(SIG_BLOCK, &taken_, &mask_before_);
  fd_ = Fd(::signalfd(-1, &taken_, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd_) {
    std::perror("sublet: signalfd");
    std::exit(125);
  }
}

Signals::~Signals() { restore(); }

void Signals::restore() const {
  for (std::size_t i = 0; i < unwanted.size(); ++i) ::sigaction(unwanted[i], &ignored_before_[i], nullptr);
  ::sigaction(SIGCHLD, &child_before_, nullptr);
  ::sigprocmask(SIG_SETMASK, &mask_before_, nullptr);
}

void Signals::take(const Manners& manners) {
  const auto draw = [&] {
    if (manners.draw) manners.draw();
  };
  while (const auto signal = next()) {
    switch (signal->number) {
      case SIGINT:
      case SIGTERM:
      case SIGHUP:
      case SIGQUIT: manners.leave(*signal); break;
      case SIGTSTP:
        if (manners.hide) manners.hide();
        stop_self(SIGTSTP);
        draw();
        break;
      case SIGCONT:
      case SIGWINCH: draw(); break;
      default: break;
    }
  }
}

std::optional<Signal> Signals::next() {
  signalfd_siginfo info{};
  if (::read(fd_.get(), &info, sizeof info) != static_cast<ssize_t>(sizeof info)) return std::nullopt;
  return Signal{static_cast<int>(info.ssi_signo), info.ssi_code == SI_KERNEL};
}

void Signals::stop_self(int signal) {
  sigset_t one;
  sigemptyset(&one);
  sigaddset(&one, signal);
  ::sigprocmask(SIG_UNBLOCK, &one, nullptr);
  ::raise(signal);
  if (sigismember(&taken_, signal) == 1) ::sigprocmask(SIG_BLOCK, &one, nullptr);
  // Drops the SIGCONT that continued us: the caller continues here and needs no second notice.
  sigemptyset(&one);
  sigaddset(&one, SIGCONT);
  const timespec now{0, 0};
  while (::sigtimedwait(&one, nullptr, &now) > 0) {
  }
}

void Signals::die_of(int signal) {
  const rlimit none{0, 0};
  ::setrlimit(RLIMIT_CORE, &none);
  const auto standard = plain(SIG_DFL);
  ::sigaction(signal, &standard, nullptr);
  sigset_t one;
  sigemptyset(&one);
  sigaddset(&one, signal);
  ::raise(signal);
  ::sigprocmask(SIG_UNBLOCK, &one, nullptr);
  std::exit(128 + signal);
}

}  // namespace sublet::keep
