// SPDX-License-Identifier: Apache-2.0
#include "store/secret.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sodium.h>

#include <array>
#include <cstdlib>
#include <vector>

namespace sublet::store {
namespace {

void need_sodium() {
  static const int ready = sodium_init();
  if (ready < 0) std::abort();  // without randomness no secret can be made
}

template <typename Bytes>
std::string hex(const Bytes& bytes) {
  return fmt::format("{:02x}", fmt::join(bytes, ""));
}

const unsigned char* data(std::string_view text) { return reinterpret_cast<const unsigned char*>(text.data()); }

}  // namespace

std::string random_hex(std::size_t bytes) {
  need_sodium();
  std::vector<unsigned char> random(bytes);
  randombytes_buf(random.data(), random.size());
  return hex(random);
}

std::uint64_t random_number() {
  need_sodium();
  std::uint64_t number = 0;
  randombytes_buf(&number, sizeof number);
  return number;
}

std::string hash_secret(std::string_view secret) {
  std::array<unsigned char, crypto_hash_sha256_BYTES> hash{};
  crypto_hash_sha256(hash.data(), data(secret), secret.size());
  return hex(hash);
}

bool is_secret(std::string_view given, std::string_view hash) {
  const std::string other = hash_secret(given);
  return hash.size() == other.size() && sodium_memcmp(other.data(), hash.data(), hash.size()) == 0;
}

std::string derive_secret(std::string_view key, std::string_view salt) {
  crypto_auth_hmacsha256_state state;
  std::array<unsigned char, crypto_auth_hmacsha256_BYTES> code{};
  crypto_auth_hmacsha256_init(&state, data(key), key.size());
  crypto_auth_hmacsha256_update(&state, data(salt), salt.size());
  crypto_auth_hmacsha256_final(&state, code.data());
  return hex(code).substr(0, 32);
}

}  // namespace sublet::store
