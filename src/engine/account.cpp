// SPDX-License-Identifier: Apache-2.0
#include "engine/account.h"

#include "base/accounts.h"
#include "base/aside.h"

namespace sublet::engine {
namespace {

// An account that the database does not know yet may exist a minute later.
constexpr std::int64_t asked_again_ns = 60'000'000'000;

}  // namespace

std::string account_name(std::uint32_t uid) {
  using Name = std::optional<std::string>;
  static AsideThread thread;
  static AskedAside<std::uint32_t, Name> names(thread, {.patience_ns = accounts_patience_ns});
  const auto fresh = [](const Name& name, std::int64_t age_ns) { return name || age_ns < asked_again_ns; };
  const Name name = names.get(uid, fresh, [uid] { return account_named(uid); }).value_or(std::nullopt);
  return name ? *name : std::to_string(uid);
}

}  // namespace sublet::engine
