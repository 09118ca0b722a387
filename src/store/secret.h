// SPDX-License-Identifier: Apache-2.0
// Makes secrets and their hashes. Only hashes are stored. Pure functions except random_hex() and random_number(); any
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace sublet::store {

std::string random_hex(std::size_t bytes);  // from the kernel
std::uint64_t random_number();              // from the kernel

// Returns SHA-256 as hex. This is enough for secrets with at least 128 random bits, which cannot be guessed.
std::string hash_secret(std::string_view secret);

// Whether `hash` is the hash of `given`. Takes the same time for a wrong secret as for the right one.
bool is_secret(std::string_view given, std::string_view hash);

// Returns a secret of 128 bits (HMAC-SHA-256, as hex). Only a program that has `key` can make it again from `salt`.
std::string derive_secret(std::string_view key, std::string_view salt);

}  // namespace sublet::store
