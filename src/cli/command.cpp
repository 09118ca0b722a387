// SPDX-License-Identifier: Apache-2.0
#include "cli/command.h"

#include "base/clock.h"
#include "base/number.h"
#include "base/size_bounds.h"
#include "base/text.h"
#include "cli/app.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <climits>

namespace sublet::cli {
namespace {

// CLI11 prints the message as it is; ours names the flag, so its own prefix is not wanted.
[[noreturn]] void refuse(const std::string& message) {
  throw CLI::ValidationError(message, CLI::ExitCodes::ValidationError);
}

// The longest name of "-m,--vram": what the message calls the flag.
std::string long_name(const std::string& names) {
  const auto dash = names.find("--");
  if (dash == std::string::npos) return names;
  return names.substr(dash, names.find(',', dash) - dash);
}

Status take_number(const std::string& text, int& into) {
  const auto number = parse_number<int>(text);
  if (!number) return bad_request(fmt::format("'{}' is not a whole number", printable(text)));
  into = *number;
  return {};
}

Status take_size(const std::string& value, std::optional<Bytes>& into) {
  const auto size = parse_size(value);
  const auto point = value.find_first_not_of("0123456789");
  const bool is_fraction = point != std::string::npos && point > 0 && value[point] == '.' &&
                           value.find_first_not_of("0123456789", point + 1) == std::string::npos;
  const bool is_small = size && *size < least_lease && point == std::string::npos;
  // No size has a part of a byte, and no lease is as small as that.
  if (is_fraction || is_small)
    return bad_request(fmt::format("size '{}' has no unit", value),
                       fmt::format("add a unit: {0}GiB or {0}MiB; a number alone is in bytes", value));
  if (!size) return size.error();
  into = *size;
  return {};
}

// The words of "a,b,c".
std::vector<std::string> pieces(const std::string& list) {
  std::vector<std::string> found;
  for (std::size_t at = 0; at <= list.size();) {
    const auto comma = std::min(list.find(',', at), list.size());
    found.push_back(list.substr(at, comma - at));
    at = comma + 1;
  }
  return found;
}

std::string range_text(int least, int most) {
  return most == INT_MAX ? fmt::format("at least {}", least) : fmt::format("between {} and {}", least, most);
}

}  // namespace

Option Option::required() const {
  option_->required();
  return *this;
}

Option Option::excludes(Option other) const {
  option_->excludes(other.option_);
  return *this;
}

Option Option::type(const char* name) const {
  option_->type_name(name);
  return *this;
}

Option Option::not_empty(const char* asks) const {
  option_->check([asks](const std::string& text) { return text.empty() ? std::string(asks) : std::string(); });
  return *this;
}

Option Option::between(int least, int most) const {
  option_->check([least, most](const std::string& text) {
    int value = 0;
    if (const Status taken = take_number(text, value); !taken) return taken.error().detail;
    if (value >= least && value <= most) return std::string();
    return fmt::format("{} is not {}", printable(text), range_text(least, most));
  });
  return *this;
}

Option Option::one_of(std::vector<std::string> words, bool list) const {
  option_->check([words, list](const std::string& text) {
    for (const std::string& word : list ? pieces(text) : std::vector{text}) {
      if (std::find(words.begin(), words.end(), word) != words.end()) continue;
      const std::vector<std::string_view> known(words.begin(), words.end());
      return fmt::format("'{}' is not one of {}{}", printable(word), fmt::join(words, ", "), did_you_mean(word, known));
    }
    return std::string();
  });
  return offers({Offer::Of::words, std::move(words), list});
}

// Kept with the tree, which alone lives as long as the option.
Option Option::offers(Offer offer) const {
  CLI::App* root = app_;
  while (root->get_parent() != nullptr) root = root->get_parent();
  if (auto* tree = dynamic_cast<Tree*>(root)) tree->offers[option_] = std::move(offer);
  return *this;
}

Option Option::show_default() const {
  option_->capture_default_str();
  return *this;
}

Option Option::maybe_value(const char* shown) const {
  option_->expected(0, 1)->default_str(shown);
  return *this;
}

Option Option::common() const {
  option_->group("Common");
  return *this;
}

Option Option::hidden() const {
  option_->group("");
  return *this;
}

Option Command::flag(const char* names, bool& into, const char* text) const {
  return {app_->add_flag(names, into, text)->disable_flag_override(), app_};
}

Option Command::option(const char* names, std::string& into, const char* text) const {
  return {app_->add_option(names, into, text), app_};
}

Option Command::option(const char* names, std::vector<std::string>& into, const char* text) const {
  return {app_->add_option(names, into, text), app_};
}

Option Command::repeated(const char* names, std::vector<std::string>& into, const char* text) const {
  return {app_->add_option(names, into, text)->expected(1, INT_MAX)->allow_extra_args(false), app_};
}

Option Command::option(const char* names, int& into, const char* text) const {
  return taken(
      names, [&into](const std::string& value) { return take_number(value, into); }, text);
}

Option Command::option(const char* names, std::optional<int>& into, const char* text) const {
  return taken(
      names, [&into](const std::string& value) { return take_number(value, into.emplace()); }, text);
}

Option Command::size(const char* names, std::optional<Bytes>& into, const char* text) const {
  return taken(
             names, [&into](const std::string& value) { return take_size(value, into); }, text)
      .type("SIZE");
}

Option Command::size_or_word(const char* names, std::optional<Bytes>& into, const char* word, bool& is_word,
                             const char* text) const {
  const auto take = [&into, word, &is_word](const std::string& value) {
    is_word = value == word;
    return is_word ? Status() : take_size(value, into);
  };
  return taken(names, take, text).type("SIZE").offers({Offer::Of::words, {word}});
}

Option Command::duration(const char* names, std::optional<Duration>& into, const char* text) const {
  const auto take = [&into](const std::string& value) -> Status {
    const auto duration = parse_duration(value);
    if (!duration) return duration.error();
    into = *duration;
    return {};
  };
  return taken(names, take, text).type("DURATION");
}

Option Command::idle_time(const char* names, std::optional<Duration>& into, const char* text) const {
  const auto take = [&into](const std::string& value) -> Status {
    const auto duration = value == "off" ? Result<Duration>(Duration{}) : parse_duration(value);
    if (!duration) return duration.error();
    if (value != "off" && *duration < std::chrono::seconds(1))
      return bad_request(fmt::format("an idle time of {} is less than a second", printable(value)),
                         "write a duration such as 10m, or off");
    into = *duration;
    return {};
  };
  return taken(names, take, text).type("DURATION|off").offers({Offer::Of::words, {"off"}});
}

Option Command::ttl(const char* names, std::optional<Duration>& into, const char* text) const {
  const auto take = [&into](const std::string& value) -> Status {
    const auto duration = parse_duration(value);
    if (!duration) return duration.error();
    if (*duration < std::chrono::seconds(1))
      return bad_request(fmt::format("a time to live of {} is less than a second", printable(value)),
                         "write a duration such as 90s, 5m or 1h30m");
    into = *duration;
    return {};
  };
  return taken(names, take, text).type("DURATION");
}

Option Command::moment(const char* names, std::optional<Moment>& into, Tense tense, const char* text) const {
  const auto take = [&into, tense](const std::string& value) -> Status {
    const auto moment = parse_moment(value, wall_time(), tense, Zone::local);
    if (!moment) return moment.error();
    into = *moment;
    return {};
  };
  return taken(names, take, text).type("TIME");
}

Option Command::taken(const char* names, std::function<Status(const std::string&)> take, const char* text) const {
  const auto judge = [take = std::move(take), flag = long_name(names)](const std::string& value) {
    const Status taken = take(value);
    if (taken) return;
    const Error& error = taken.error();
    // As one message: refuse_parse() in app.cpp tells the hint from the rest by the line's end.
    refuse(fmt::format("{}: {}{}{}", flag, error.detail, error.hint.empty() ? "" : "\n", error.hint));
  };
  return {app_->add_option_function<std::string>(names, judge, text), app_};
}

Command Command::verb(const char* name, const char* text) const { return Command(*app_->add_subcommand(name, text)); }

bool Command::parsed() const { return app_->parsed(); }

void Command::footer(const char* text) const { app_->footer(text); }

}  // namespace sublet::cli
