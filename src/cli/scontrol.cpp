// SPDX-License-Identifier: Apache-2.0
#include "cli/scontrol.h"

#include "base/fd.h"
#include "base/text.h"
#include "cli/slurm.h"

#include <fmt/format.h>

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cctype>
#include <cerrno>

namespace sublet::cli {
namespace {

std::string last_line(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return printable(text.substr(text.rfind('\n') + 1));
}

std::string read_all(int fd) {
  std::string text;
  char chunk[4096];
  for (;;) {
    const ssize_t got = ::read(fd, chunk, sizeof chunk);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return text;
    text.append(chunk, static_cast<std::size_t>(got));
  }
}

}  // namespace

Result<std::string> run_scontrol(const std::string& program, const std::vector<std::string>& words) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return from_errno("cannot start " + program, errno);
  const Fd ours(ends[0]);
  Fd theirs(ends[1]);
  std::vector<char*> argv{const_cast<char*>(program.c_str())};
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, theirs.get(), 1);
  posix_spawn_file_actions_adddup2(&actions, theirs.get(), 2);
  pid_t pid = 0;
  const int failed = ::posix_spawnp(&pid, program.c_str(), &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  theirs = Fd();
  if (failed != 0) return from_errno("cannot start " + program, failed);
  std::string text = read_all(ours.get());
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return text;
  return unavailable(fmt::format("{} failed: {}", program, last_line(text)),
                     "the controller may be away, or this user may not change jobs");
}

std::map<std::string, std::string> parse_job(std::string_view line) {
  std::map<std::string, std::string> fields;
  std::string* last = nullptr;
  while (!line.empty()) {
    const auto end = std::min(line.find(' '), line.size());
    const std::string_view word = line.substr(0, end);
    const auto equals = word.find('=');
    const bool named = equals != std::string_view::npos && equals > 0 && std::isupper(word[0]) != 0;
    // A comment is the only value with blanks, and may hold such words: it ends at the field that follows it.
    const bool in_comment = last != nullptr && (last == &fields["AdminComment"] || last == &fields["Comment"]);
    const bool goes_on = in_comment && !word.starts_with("OverSubscribe=") && !word.starts_with("StdErr=") &&
                         !word.starts_with("Power=") && !word.starts_with("SystemComment=") &&
                         !word.starts_with("Comment=") && !word.starts_with("WorkDir=") &&
                         !word.starts_with("BurstBuffer") && !word.starts_with("Features=") &&
                         !word.starts_with("OverTimeLimit");
    if (named && !goes_on) {
      last = &fields[std::string(word.substr(0, equals))];
      *last = word.substr(equals + 1);
    } else if (last != nullptr && !word.empty()) {
      *last += fmt::format(" {}", word);
    }
    line.remove_prefix(std::min(end + 1, line.size()));
  }
  return fields;
}

Result<std::map<std::string, std::string>> show_job(const std::string& program, std::uint64_t job) {
  auto text = run_scontrol(program, {"show", "job", "-o", fmt::format("{}", job)});
  if (!text) return text.error();
  const std::string line = line_of_job(*text, job);
  if (line.empty() || !word_of_user(line).empty())
    return bad_request(fmt::format("a name or path of job {} has words of scontrol", job),
                       "its time limit and its comment stay as they are");
  return parse_job(line);
}

Result<std::string> show_job_in_detail(const std::string& program, std::uint64_t job) {
  return run_scontrol(program, {"show", "job", "-d", "-o", fmt::format("{}", job)});
}

std::vector<std::string> names_of_nodes(const std::string& program, const std::string& list) {
  std::vector<std::string> names;
  const auto text = run_scontrol(program, {"show", "hostnames", list});
  for (std::size_t at = 0; text && at < text->size();) {
    const auto end = std::min(text->find('\n', at), text->size());
    names.push_back(text->substr(at, end - at));
    at = end + 1;
  }
  return names;
}

}  // namespace sublet::cli
