// SPDX-License-Identifier: Apache-2.0
// Secrets that a reply shows once. A retry must get the same reply, but the store must not know the secret. With an
// Idempotency-Key, the secret is derived from the key, which only the caller has, and from a salt, which is stored.
#pragma once

#include "http/message.h"
#include "store/secret.h"

#include <fmt/format.h>

namespace sublet::http {

struct Secret {
  std::string text;
  std::string salt;  // "" without an Idempotency-Key: nothing is remembered
};

inline Secret new_secret(const Request& request) {
  if (request.idempotency_key.empty()) return {store::random_hex(16), {}};
  const std::string salt = store::random_hex(16);
  return {store::derive_secret(request.idempotency_key, salt), salt};
}

// Appends one field to the JSON object in `text`.
inline std::string with_field(std::string text, std::string_view name, std::string_view value) {
  text.back() = ',';
  text.append("\"").append(name).append("\":\"").append(value).append("\"}");
  return text;
}

// The stored form of a reply. `prefix`: the text before the secret in the reply's token.
inline std::string sealed(const std::string& text, const Secret& secret, std::string_view prefix = {}) {
  if (secret.salt.empty()) return text;
  return with_field(with_field(text, "token", prefix), "token_salt", secret.salt);
}

// Restores the secret in a stored reply for a retry with the same key.
inline void unseal(json& body, const Request& request) {
  if (!body.is_object() || !body.contains("token_salt")) return;
  const std::string secret = store::derive_secret(request.idempotency_key, body.value("token_salt", ""));
  body["token"] = body.value("token", "") + secret;
  body.erase("token_salt");
}

}  // namespace sublet::http
