// SPDX-License-Identifier: Apache-2.0
// The table of all keys. Parsing, `config show` and the reference are made from it. So a new key is a member of Config
// and a row here.
#pragma once

#include "config/config.h"

#include <span>
#include <string>
#include <string_view>
#include <variant>

namespace sublet::config {

// Returns a reference to the value in a Config. The alternative of the variant is the type of the value.
using Access =
    std::variant<Duration& (*)(Config&), Bytes& (*)(Config&), std::int64_t& (*)(Config&), double& (*)(Config&),
                 std::string& (*)(Config&), LoopbackAddress& (*)(Config&), bool& (*)(Config&)>;

struct Key {
  std::string_view name;     // "queue.claim_window": table and key
  std::string_view minimum;  // smallest value in the file's own form, "" for a path
  std::string_view maximum;
  std::string_view summary;  // one sentence
  Access access;
};

std::span<const Key> keys();  // sorted by name
const Key* find(std::string_view name);

// Keys of features that this version does not have, with the feature's name. Such a key gets a different message than a
// wrong key.
struct LaterKey {
  std::string_view name;
  std::string_view feature;
};
std::span<const LaterKey> later_keys();

// "duration", "size", "integer", "number", "path", "address", "true or false"
std::string_view type_name(const Key& key);
std::string value_text(const Key& key, const Config& config);  // as the value stands in the file: "10s" in quotes, 256
std::string default_text(const Key& key);
std::string address_text(const LoopbackAddress& address);  // "[::1]:8080", "" for none

// Stores the value of `text` ("10s", without quotes) in `config`, and checks its range. The error's detail does not
// name the key.
Status set_value(const Key& key, std::string_view text, Config& config);

std::string reference_page();  // docs/reference/config.md
std::string manual_page();     // sublet.toml(5)

}  // namespace sublet::config
