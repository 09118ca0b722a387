// SPDX-License-Identifier: Apache-2.0
// The table of all keys. Parsing, `config show` and the reference are made from it, so a
// new key is a member of Config and a row here.
#pragma once

#include "config/config.h"

#include <span>
#include <string>
#include <string_view>
#include <variant>

namespace sublet::config {

// How a value is reached in a Config. The alternative is the type.
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

std::span<const Key> keys();  // by name
const Key* find(std::string_view name);

// Keys of features that this version has not, with the feature's name: told apart from a wrong key.
struct LaterKey {
  std::string_view name;
  std::string_view feature;
};
std::span<const LaterKey> later_keys();

// "duration", "size", "integer", "number", "path", "address", "true or false"
std::string_view type_name(const Key& key);
std::string value_text(const Key& key, const Config& config);  // as it stands in the file: "10s" quoted, 256
std::string default_text(const Key& key);
std::string address_text(const LoopbackAddress& address);  // "[::1]:8080", "" for none

// The value of `text` ("10s", without quotes) into `config`; the range is checked. The detail names no key.
Status set_value(const Key& key, std::string_view text, Config& config);

std::string reference_page();  // docs/reference/config.md
std::string manual_page();     // sublet.toml(5)

}  // namespace sublet::config
