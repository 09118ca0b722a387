// SPDX-License-Identifier: Apache-2.0
#include "engine/account.h"

#include <pwd.h>

#include <array>
#include <unordered_map>

namespace sublet::engine {

std::string account_name(std::uint32_t uid) {
  // The account database may be a network service: asked once per uid, and the daemon's life is short enough for it.
  static std::unordered_map<std::uint32_t, std::string> known;
  const auto [entry, fresh] = known.try_emplace(uid, std::to_string(uid));
  if (fresh) {
    std::array<char, 4096> buffer{};
    passwd account{};
    passwd* found = nullptr;
    if (::getpwuid_r(uid, &account, buffer.data(), buffer.size(), &found) == 0 && found != nullptr) {
      entry->second = found->pw_name;
    }
  }
  return entry->second;
}

}  // namespace sublet::engine
