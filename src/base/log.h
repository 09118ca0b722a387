// SPDX-License-Identifier: Apache-2.0
// The log of the daemon and its helpers: lines on stderr, with the priority prefixes of journald. Library code returns
// errors; only the engine, http and daemon folders log. Any thread.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

namespace sublet::log {

enum class Level { debug, info, warn, error };

// `name` stands at the start of each line. `verbose` lets debug lines through. Call once, before threads start.
void init(std::string_view name, bool verbose);
// Turns the log off. For simulations, which would log the same lines a million times.
void silence();
void write(Level level, std::string_view message);

template <typename... Args>
void debug(fmt::format_string<Args...> format, Args&&... args) {
  write(Level::debug, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void info(fmt::format_string<Args...> format, Args&&... args) {
  write(Level::info, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void warn(fmt::format_string<Args...> format, Args&&... args) {
  write(Level::warn, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void error(fmt::format_string<Args...> format, Args&&... args) {
  write(Level::error, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace sublet::log
