// SPDX-License-Identifier: Apache-2.0
#include "cli/web_gate.h"

#include "client/client.h"

#include <fmt/format.h>

namespace sublet::cli {
namespace {

// Takes the same time wherever the texts differ.
bool is_same(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned char difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i) difference |= static_cast<unsigned char>(a[i] ^ b[i]);
  return difference == 0;
}

// The value of a cookie in "a=1; b=2"; "" if it is absent.
std::string_view cookie_in(std::string_view cookies, std::string_view name) {
  while (!cookies.empty()) {
    auto one = cookies.substr(0, cookies.find(';'));
    cookies.remove_prefix(std::min(one.size() + 1, cookies.size()));
    while (one.starts_with(' ')) one.remove_prefix(1);
    if (one.starts_with(name) && one.substr(name.size()).starts_with('=')) return one.substr(name.size() + 1);
  }
  return {};
}

}  // namespace

WebGate::WebGate(std::uint16_t port)
    : name_(fmt::format("sublet-web-{}", port)),
      secret_(client::new_idempotency_key()),
      cookie_(client::new_idempotency_key()),
      key_(client::new_idempotency_key()) {}

std::optional<WebGate::Pass> WebGate::exchange(std::string_view secret) {
  const std::lock_guard lock(mutex_);
  if (spent_ || !is_same(secret, secret_)) return std::nullopt;
  spent_ = true;
  return Pass{fmt::format("{}={}; Path=/; HttpOnly; SameSite=Strict", name_, cookie_), key_};
}

bool WebGate::admits(std::string_view cookies, std::string_view authorization) const {
  constexpr std::string_view scheme = "Bearer ";
  if (!authorization.starts_with(scheme)) return false;
  return is_same(cookie_in(cookies, name_), cookie_) && is_same(authorization.substr(scheme.size()), key_);
}

}  // namespace sublet::cli
