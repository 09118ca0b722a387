// SPDX-License-Identifier: Apache-2.0
// The log of the daemon and its helpers: lines on stderr, with priority prefixes that journald understands when it
// listens. Library code returns errors; only the daemon's own layers (engine, http, daemon) log. Any thread.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

namespace sublet::log {

enum class Level { debug, info, warn, error };

// `name` stands in front of each line; `verbose` lets debug lines through. Call once, before threads start.
void init(std::string_view name, bool verbose);
// Nothing is said from now on: for simulations, where the same is said a million times.
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
