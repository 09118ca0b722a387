// SPDX-License-Identifier: Apache-2.0
#include "base/failpoints.h"

#include "base/text.h"

#include <fmt/format.h>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <set>

namespace sublet {
namespace {

constexpr std::array steps{Failpoints::decided,   Failpoints::queued, Failpoints::writing, Failpoints::written,
                           Failpoints::committed, Failpoints::told,   Failpoints::done};
constexpr std::array failing_steps{Failpoints::writing, Failpoints::written, Failpoints::committed};

}  // namespace

std::vector<std::string> Failpoints::list(std::span<const std::string_view> subjects) {
  std::vector<std::string> all;
  for (const std::string_view subject : subjects) {
    for (const std::string_view step : steps) all.push_back(fmt::format("{}.{}=kill", subject, step));
    for (const std::string_view step : failing_steps) all.push_back(fmt::format("{}.{}=error", subject, step));
  }
  return all;
}

Status Failpoints::arm(std::string_view text, std::span<const std::string_view> subjects) {
  log_ = text == "log";
  if (log_) return {};
  const auto at = text.find('@');
  const std::string_view which = text.substr(0, at);
  const auto known = list(subjects);
  if (std::find(known.begin(), known.end(), which) == known.end()) {
    const std::vector<std::string_view> words(known.begin(), known.end());
    return bad_request(fmt::format("there is no failpoint '{}'{}", printable(which), did_you_mean(which, words)),
                       "--list-failpoints lists them");
  }
  int times = 1;
  if (at != std::string_view::npos) {
    const std::string_view number = text.substr(at + 1);
    const auto [end, problem] = std::from_chars(number.data(), number.data() + number.size(), times);
    if (problem != std::errc() || end != number.data() + number.size() || times < 1)
      return bad_request(fmt::format("'{}' is not a number of at least 1", printable(number)));
  }
  const auto equals = which.find('=');
  name_ = which.substr(0, equals);
  kill_ = which.substr(equals + 1) == "kill";
  left_ = times;
  return {};
}

bool Failpoints::at(std::span<const std::string_view> subjects, std::string_view step) {
  if (log_) {
    // Each subject has its own line and is written at once. Several threads write, and the process may be about to end.
    const std::set<std::string_view> distinct(subjects.begin(), subjects.end());
    for (const std::string_view subject : distinct) fmt::print(stderr, "failpoint {}.{}\n", subject, step);
  }
  if (left_ <= 0) return false;
  const auto is_named = [&](std::string_view subject) {
    return name_.size() == subject.size() + 1 + step.size() && name_.starts_with(subject) && name_.ends_with(step);
  };
  if (std::none_of(subjects.begin(), subjects.end(), is_named) || left_.fetch_sub(1) != 1) return false;
  if (kill_) ::kill(::getpid(), SIGKILL);
  return true;
}

}  // namespace sublet
