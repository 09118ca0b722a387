// SPDX-License-Identifier: Apache-2.0
#include "engine/account.h"

#include "base/accounts.h"

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

AsideThread& rights_thread() {
  static AsideThread thread;
  return thread;
}

std::optional<std::vector<gid_t>> account_groups(std::uint32_t uid) {
  static AskedAside<std::uint32_t, std::vector<gid_t>> groups(
      rights_thread(), {.patience_ns = accounts_patience_ns, .serves_ns = rights_serve_ns});
  const auto fresh = [](const auto&, std::int64_t age_ns) { return age_ns < rights_fresh_ns; };
  return groups.get(uid, fresh, [uid] { return groups_of_account(uid); });
}

}  // namespace sublet::engine
