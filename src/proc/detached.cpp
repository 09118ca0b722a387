// SPDX-License-Identifier: Apache-2.0
#include "proc/detached.h"

#include "base/number.h"
#include "base/text.h"
#include "proc/launch.h"
#include "proc/process_table.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

namespace sublet::proc {
namespace {

// Writes the line about this process to the report.
bool report_process(pid_t pid) {
  const auto root = ProcRoot::open();
  const auto info = root ? root->read(pid) : Result<ProcessInfo>(root.error());
  if (!info) return false;
  const std::string line = fmt::format("{} {}\n", pid, info->ref.start_ticks);
  return ::write(report_descriptor, line.data(), line.size()) == static_cast<ssize_t>(line.size());
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
  const auto text = document_file(document);
  if (!text) return text.error();
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return from_errno("pipe2", errno);
  Detaching detaching{0, Fd(ends[0])};
  const Fd report(ends[1]);
  ::fcntl(detaching.report.get(), F_SETFL, O_NONBLOCK);
  Launch launch{.program = program, .arguments = arguments};
  launch.environment = {"PATH=/usr/local/bin:/usr/bin:/bin"};
  launch.descriptors = {{0, Launch::nothing},
                        {1, Launch::nothing},
                        {2, Launch::nothing},
                        {document_descriptor, text->get()},
                        {report_descriptor, report.get()}};
  const auto first = launch.start();
  if (!first) return first.error();
  detaching.first = *first;
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
