// SPDX-License-Identifier: Apache-2.0
// What is kept of secrets: never they themselves. Pure functions but for random_hex() and random_number(); any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace sublet::store {

std::string random_hex(std::size_t bytes);  // from the kernel
std::uint64_t random_number();              // from the kernel

// SHA-256 as hex: enough for secrets of 128 random bits and more, which nobody can try through.
std::string hash_secret(std::string_view secret);

// Whether `given` is the secret that `hash` was made of; takes as long for a wrong one as for the right one.
bool is_secret(std::string_view given, std::string_view hash);

// A secret of 128 bits that only who has `key` can make again from `salt` (HMAC-SHA-256, as hex).
std::string derive_secret(std::string_view key, std::string_view salt);

}  // namespace sublet::store
