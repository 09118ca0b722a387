// SPDX-License-Identifier: Apache-2.0
#include "proc/detached.h"

#include "base/number.h"
#include "base/text.h"
#include "proc/process_table.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

namespace sublet::proc {
namespace {

constexpr int above_fixed = 10;

// Writes the line about this process to the report.
bool report_process(pid_t pid) {
  const auto root = ProcRoot::open();
  const auto info = root ? root->read(pid) : Result<ProcessInfo>(root.error());
  if (!info) return false;
  const std::string line = fmt::format("{} {}\n", pid, info->ref.start_ticks);
  return ::write(report_descriptor, line.data(), line.size()) == static_cast<ssize_t>(line.size());
}

// Moves a descriptor above the numbers that the program gets.
Fd above(int fd) {
  const Fd old(fd);
  return Fd(::fcntl(old.get(), F_DUPFD_CLOEXEC, above_fixed));
}

}  // namespace

Result<Fd> document_file(std::string_view text) {
  Fd file(::memfd_create("sublet-document", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file) return from_errno("memfd_create", errno);
  while (!text.empty()) {
    const ssize_t size = ::write(file.get(), text.data(), text.size());
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return from_errno("cannot write a document", errno);
    text.remove_prefix(static_cast<std::size_t>(size));
  }
  if (::lseek(file.get(), 0, SEEK_SET) != 0) return from_errno("lseek", errno);
  ::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL);
  return file;
}

Result<Detaching> detach(const std::string& program, const std::vector<std::string>& arguments,
                         std::string_view document) {
  auto text = document_file(document);
  if (!text) return text.error();
  const Fd file = above(text->release());
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return from_errno("pipe2", errno);
  Detaching detaching{0, Fd(ends[0])};
  const Fd report = above(ends[1]);
  if (!file || !report) return from_errno("cannot start " + program, errno);
  ::fcntl(detaching.report.get(), F_SETFL, O_NONBLOCK);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  for (const int fd : {0, 1, 2}) posix_spawn_file_actions_addopen(&actions, fd, "/dev/null", O_RDWR, 0);
  posix_spawn_file_actions_adddup2(&actions, file.get(), document_descriptor);
  posix_spawn_file_actions_adddup2(&actions, report.get(), report_descriptor);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  std::vector<char*> argv{const_cast<char*>(program.c_str())};
  for (const std::string& word : arguments) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  std::string path = "PATH=/usr/local/bin:/usr/bin:/bin";
  char* environment[] = {path.data(), nullptr};
  const int failed = ::posix_spawn(&detaching.first, program.c_str(), &actions, &attributes, argv.data(), environment);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (failed != 0) return from_errno("cannot start " + program, failed);
  return detaching;
}

Result<ProcessRef> finish_detaching(Detaching& detaching, std::string_view report) {
  while (::waitpid(detaching.first, nullptr, 0) < 0 && errno == EINTR) {
  }
  return parse_report(report);
}

Result<ProcessRef> parse_report(std::string_view report) {
  if (report.starts_with(failure_mark)) {
    report.remove_prefix(failure_mark.size());
    return unavailable(printable(report.substr(0, report.find('\n'))));
  }
  const auto blank = report.find(' ');
  const auto end = report.find('\n');
  const auto pid = parse_number<std::int32_t>(report.substr(0, blank));
  const auto ticks = blank == std::string_view::npos || end == std::string_view::npos
                         ? std::nullopt
                         : parse_number<std::uint64_t>(report.substr(blank + 1, end - blank - 1));
  if (!pid || !ticks) return unavailable("the keeper ended before it said its pid");
  return ProcessRef{*pid, *ticks};
}

void leave_parent() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) ::_exit(1);
  const pid_t second = ::fork();
  if (second < 0) ::_exit(1);
  if (second > 0) {
    const bool reported = report_process(second);
    (void)!::write(ends[1], "+", 1);
    ::_exit(reported ? 0 : 1);
  }
  char gone;
  ::close(ends[1]);
  (void)!::read(ends[0], &gone, 1);  // the process is alive and known before it goes on
  ::close(ends[0]);
  ::close(report_descriptor);
  ::setsid();
}

bool report_self() {
  const bool reported = report_process(::getpid());
  ::close(report_descriptor);
  return reported;
}

}  // namespace sublet::proc
