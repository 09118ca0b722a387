// SPDX-License-Identifier: Apache-2.0
#include "base/failpoints.h"

#include "base/text.h"

#include <fmt/format.h>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>

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
  const auto known = list(subjects);
  if (std::find(known.begin(), known.end(), text) == known.end()) {
    const std::vector<std::string_view> words(known.begin(), known.end());
    return bad_request(fmt::format("there is no failpoint '{}'{}", printable(text), did_you_mean(text, words)),
                       "--list-failpoints lists them");
  }
  const auto equals = text.find('=');
  name_ = text.substr(0, equals);
  kill_ = text.substr(equals + 1) == "kill";
  armed_ = true;
  return {};
}

bool Failpoints::at(std::span<const std::string_view> subjects, std::string_view step) {
  if (!armed_) return false;
  const auto is_named = [&](std::string_view subject) {
    return name_.size() == subject.size() + 1 + step.size() && name_.starts_with(subject) && name_.ends_with(step);
  };
  if (std::none_of(subjects.begin(), subjects.end(), is_named)) return false;
  if (kill_) ::kill(::getpid(), SIGKILL);
  return armed_.exchange(false);
}

}  // namespace sublet
