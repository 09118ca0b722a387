// SPDX-License-Identifier: Apache-2.0
#include "cli/talk.h"

#include "base/clock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

namespace sublet::cli {
Talk::Talk(const Common& common, int status_fd, bool json_on_stderr, Look look)
    : common_(common),
      status_fd_(status_fd),
      json_on_stderr_(json_on_stderr),
      line_(std::move(look), WaitLine::stderr_is_live(), common.quiet || json_on_stderr) {}

keep::Listener Talk::listener() {
  return {[this](const std::string& text) { say(text); },
          [this](const char* event, const nlohmann::json& fields) { note(event, fields); },
          [this](const std::string& text) { fail(text); }};
}

void Talk::say(const std::string& line) {
  if (!common_.quiet && !json_on_stderr_) fail(line);
}

void Talk::fail(const std::string& line) {
  if (json_on_stderr_) return note("error", {{"detail", line}});
  line_.clear();
  write_stderr(fmt::format("sublet: {}\n", visible(line)));
}

void Talk::note(const char* event, nlohmann::json fields) {
  if (status_fd_ < 0 && !json_on_stderr_) return;
  fields["event"] = event;
  fields["at"] = format_rfc3339(SystemClock().now());
  const std::string line = client::to_text(fields) + "\n";
  if (json_on_stderr_) (void)write_all(STDERR_FILENO, line);
  if (status_fd_ < 0 || write_all(status_fd_, line)) return;
  const Error error = from_errno(fmt::format("--status-fd {} cannot be written", status_fd_), errno);
  status_fd_ = -1;
  fail(error.detail);
}

Status check_status_fd(int fd) {
  const int flags = ::fcntl(fd, F_GETFD);
  if (flags < 0) {
    return bad_request(fmt::format("--status-fd {}: the file descriptor is not open", fd),
                       "open it in the shell: sublet run --status-fd 3 … 3>status.jsonl");
  }
  if (fd > STDERR_FILENO) ::fcntl(fd, F_SETFD, flags | FD_CLOEXEC);
  return {};
}

}  // namespace sublet::cli
