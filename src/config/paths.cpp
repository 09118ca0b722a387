// SPDX-License-Identifier: Apache-2.0
#include "config/config.h"

#include <cstdlib>

namespace sublet::config {

std::filesystem::path file_in(const std::filesystem::path& dir) { return dir / "sublet.toml"; }

std::filesystem::path system_file() { return "/etc/sublet/sublet.toml"; }

std::filesystem::path user_file() {
  // The XDG base directory specification says to ignore a relative value.
  const char* config_home = std::getenv("XDG_CONFIG_HOME");
  if (config_home != nullptr && config_home[0] == '/') {
    return std::filesystem::path(config_home) / "sublet" / "sublet.toml";
  }
  const char* home = std::getenv("HOME");
  if (home == nullptr || home[0] != '/') return {};
  return std::filesystem::path(home) / ".config" / "sublet" / "sublet.toml";
}

}  // namespace sublet::config
