// SPDX-License-Identifier: Apache-2.0
#include "engine/account.h"

#include "base/accounts.h"

namespace sublet::engine {
namespace {

// Where the database did not answer, or knows no such account yet, it may a minute later.
constexpr std::int64_t asked_again_ns = 60'000'000'000;

}  // namespace

AsideThread& accounts_thread() {
  static AsideThread thread;
  return thread;
}

std::string account_name(std::uint32_t uid) {
  static AskedAside<std::uint32_t, std::string> names(accounts_thread(), accounts_patience_ns);
  const auto fresh = [](const std::string& name, std::int64_t age_ns) {
    return !name.empty() || age_ns < asked_again_ns;
  };
  const std::string name = names.get(uid, fresh, [uid] { return account_named(uid).value_or(""); }).value_or("");
  return name.empty() ? std::to_string(uid) : name;
}

}  // namespace sublet::engine
