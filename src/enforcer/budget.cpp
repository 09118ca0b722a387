// SPDX-License-Identifier: Apache-2.0
#include "enforcer/budget.h"

#include "base/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

namespace sublet::enforcer {
namespace {

bool is_interpreter(std::string_view program) {
  constexpr std::array<std::string_view, 14> names{"sh",   "bash", "dash",  "zsh", "ksh",    "perl", "ruby",
                                                   "node", "java", "julia", "lua", "Rscript", "php",  "env"};
  return program.starts_with("python") || program.starts_with("pypy") ||
         std::ranges::find(names, program) != names.end();
}

std::string_view take_word(std::string_view& rest) {
  rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
  const auto word = rest.substr(0, rest.find(' '));
  rest.remove_prefix(word.size());
  return word;
}

bool counts(const Kill& kill, const Kill& next) {
  return next.at - kill.at < kill_window && kill.used.count >= next.used.count / 2 && kill.process != next.process;
}

bool is_same_program(const Kill& kill, const Kill& next) {
  if (kill.uid != next.uid || kill.unit != next.unit) return false;
  return !next.unit.empty() || (kill.container == next.container && kill.program == next.program);
}

}  // namespace

std::string program_of(const std::string& exe, const std::string& command) {
  if (!is_interpreter(std::string_view(exe).substr(exe.rfind('/') + 1))) return exe;
  std::string_view rest = command;
  (void)take_word(rest);
  for (auto word = take_word(rest); !word.empty(); word = take_word(rest)) {
    if (word == "-m") return fmt::format("{} -m {}", exe, take_word(rest));
    if (word == "-c" || word == "-e") return fmt::format("{} {}", exe, word);  // any text follows
    if (!word.starts_with('-')) return fmt::format("{} {}", exe, word);
  }
  return exe;
}

Kill kill_of(const Verdict& verdict, Time at) {
  Kill kill{.at = at,
            .process = verdict.record.process,
            .used = verdict.used(),
            .unit = verdict.system_unit(),
            .container = verdict.record.container,
            .program = verdict.exe.empty() ? std::string() : program_of(verdict.exe, verdict.record.command),
            .parent = {},
            .uid = verdict.record.uid,
            .user = verdict.user};
  if (!verdict.record.ancestry.empty() && verdict.record.ancestry.front().process.pid != 1) {
    kill.parent = verdict.record.ancestry.front().process;
    kill.parent_name = verdict.record.ancestry.front().name;
  }
  return kill;
}

void add_kill(std::deque<Kill>& kills, Kill kill) {
  std::erase_if(kills, [&](const Kill& other) {
    return kill.at - other.at >= kill_window || other.process == kill.process;
  });
  kills.push_back(std::move(kill));
}

std::string Exhausted::sentence() const {
  return fmt::format("{} processes {} were ended within an hour", kills, group);
}

std::optional<Exhausted> find_exhausted(const std::deque<Kill>& kills, const Kill& next) {
  const auto reaches = [&](int most, const auto& is_same) {
    return std::ranges::count_if(kills, [&](const Kill& kill) { return counts(kill, next) && is_same(kill); }) >= most;
  };
  const bool known = !next.unit.empty() || !next.program.empty();
  if (known && reaches(most_of_program, [&](const Kill& kill) { return is_same_program(kill, next); }))
    return Exhausted{most_of_program, fmt::format("of {}{} of user {}", next.unit.empty() ? "" : "unit ",
                                                  printable(next.unit.empty() ? next.program : next.unit), next.user)};
  if (next.parent.pid != 0 && reaches(most_of_parent, [&](const Kill& kill) { return kill.parent == next.parent; }))
    return Exhausted{most_of_parent, fmt::format("started by {} (pid {})",
                                                 next.parent_name.empty() ? "a process" : printable(next.parent_name),
                                                 next.parent.pid)};
  if (reaches(most_of_user, [&](const Kill& kill) { return kill.uid == next.uid; }))
    return Exhausted{most_of_user, fmt::format("of user {}", next.user)};
  return std::nullopt;
}

}  // namespace sublet::enforcer
