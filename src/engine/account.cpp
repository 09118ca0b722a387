// SPDX-License-Identifier: Apache-2.0
#include "engine/account.h"

#include "base/accounts.h"
#include "base/clock.h"

#include <unordered_map>

namespace sublet::engine {
namespace {

// Where the database did not answer, or knows no such account yet, it may a minute later.
constexpr std::int64_t asked_again_ns = 60'000'000'000;

}  // namespace

std::string account_name(std::uint32_t uid) {
  // The account database may be a network service: asked once for each account that it knows.
  struct Known {
    std::string name;
    std::int64_t asked_at_ns = 0;
  };
  static std::unordered_map<std::uint32_t, Known> all;
  Known& known = all[uid];
  const std::int64_t now = monotonic_ns();
  if (known.name.empty() && (known.asked_at_ns == 0 || now - known.asked_at_ns >= asked_again_ns))
    known = {account_named(uid).value_or(""), now};
  return known.name.empty() ? std::to_string(uid) : known.name;
}

}  // namespace sublet::engine
