// SPDX-License-Identifier: Apache-2.0
#include "cli/scontrol.h"

#include "base/text.h"
#include "cli/slurm.h"
#include "keep/capture.h"

#include <fmt/format.h>

#include <cctype>

namespace sublet::cli {
namespace {

std::string last_line(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return printable(text.substr(text.rfind('\n') + 1));
}

}  // namespace

Result<std::string> run_scontrol(const Scontrol& scontrol, const std::vector<std::string>& words) {
  std::vector<std::string> argv{scontrol.program};
  argv.insert(argv.end(), words.begin(), words.end());
  const auto done = keep::capture(argv, {}, scontrol.limit, keep::Output::out_and_errors, scontrol.peer);
  if (!done) return done.error();
  if (done->timed_out)
    return unavailable(fmt::format("{} did not answer within {}", scontrol.program, format_duration(scontrol.limit)),
                       "the controller may be away");
  if (done->exit_status == 0) return done->out;
  return unavailable(fmt::format("{} failed: {}", scontrol.program, last_line(done->out)),
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

Result<ShownJob> show_job(const Scontrol& scontrol, std::uint64_t job) {
  auto text = run_scontrol(scontrol, {"show", "job", "-o", fmt::format("{}", job)});
  if (!text) return text.error();
  const std::string line = line_of_job(*text, job);
  if (line.empty() || !word_of_user(line).empty())
    return bad_request(fmt::format("a name or path of job {} has words of scontrol", job),
                       "its time limit and its comment stay as they are");
  return ShownJob{address_of_job(line, job), parse_job(line)};
}

Result<std::string> show_job_in_detail(const Scontrol& scontrol, std::uint64_t job) {
  return run_scontrol(scontrol, {"show", "job", "-d", "-o", fmt::format("{}", job)});
}

std::vector<std::string> names_of_nodes(const Scontrol& scontrol, const std::string& list) {
  std::vector<std::string> names;
  const auto text = run_scontrol(scontrol, {"show", "hostnames", list});
  for (std::size_t at = 0; text && at < text->size();) {
    const auto end = std::min(text->find('\n', at), text->size());
    names.push_back(text->substr(at, end - at));
    at = end + 1;
  }
  return names;
}

}  // namespace sublet::cli
