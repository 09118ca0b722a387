// SPDX-License-Identifier: Apache-2.0
#include "machine/account.h"

#include "base/accounts.h"

namespace sublet::machine {
namespace {

// An account that the database does not know yet may exist a minute later.
constexpr std::int64_t asked_again_ns = 60'000'000'000;

}  // namespace

std::optional<std::string> find_account_name(std::uint32_t uid) {
  using Name = std::optional<std::string>;
  static AsideThread thread;
  static AskedAside<std::uint32_t, Name> names(thread, {.patience_ns = accounts_patience_ns});
  const auto fresh = [](const Name& name, std::int64_t age_ns) { return name || age_ns < asked_again_ns; };
  const std::optional<Name> name = names.get(uid, fresh, [uid] { return account_named(uid); });
  if (!name) return std::nullopt;
  return *name ? **name : std::to_string(uid);
}

std::string account_name(std::uint32_t uid) { return find_account_name(uid).value_or(std::to_string(uid)); }

std::optional<bool> account_exists(const std::string& name) {
  static AsideThread thread;
  static AskedAside<std::string, bool> known(thread, {.patience_ns = accounts_patience_ns});
  const auto fresh = [](bool exists, std::int64_t age_ns) { return exists || age_ns < accounts_patience_ns; };
  return known.get(name, fresh, [name] { return has_account(name); });
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

}  // namespace sublet::machine
