// SPDX-License-Identifier: Apache-2.0
// The log of the daemon and its helpers: lines on stderr, or entries of journald if it reads stderr. Library code
// returns errors; only the engine, guard, http and daemon folders log. Any thread.
#pragma once

#include "base/ids.h"

#include <fmt/format.h>

#include <string>
#include <string_view>

namespace sublet::log {

enum class Level { debug, info, warn, error };

// The subject of an entry. A line starts with it, and the journal has it as a field: SUBLET_LEASE, SUBLET_PROGRAM.
struct About {
  LeaseId lease{};
  std::string program{};  // USER/TAG of a supervised program
};

// `name` stands at the start of each line. `verbose` lets debug lines through. Call once, before threads start.
void init(std::string_view name, bool verbose);
// Turns the log off. For simulations, which would log the same lines a million times.
void silence();
void write(Level level, std::string_view message, const About& about = {});

template <typename... Args>
void debug(fmt::format_string<Args...> format, Args&&... args) {
  write(Level::debug, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void info(fmt::format_string<Args...> format, Args&&... args) {
  write(Level::info, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void info(const About& about, fmt::format_string<Args...> format, Args&&... args) {
  write(Level::info, fmt::format(format, std::forward<Args>(args)...), about);
}
template <typename... Args>
void warn(fmt::format_string<Args...> format, Args&&... args) {
  write(Level::warn, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void warn(const About& about, fmt::format_string<Args...> format, Args&&... args) {
  write(Level::warn, fmt::format(format, std::forward<Args>(args)...), about);
}
template <typename... Args>
void error(fmt::format_string<Args...> format, Args&&... args) {
  write(Level::error, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void error(const About& about, fmt::format_string<Args...> format, Args&&... args) {
  write(Level::error, fmt::format(format, std::forward<Args>(args)...), about);
}

}  // namespace sublet::log
