// SPDX-License-Identifier: Apache-2.0
// The table of all keys. Parsing, `config show` and the reference are made from it. So a new key is a member of Config
// and a row here.
#pragma once

#include "config/config.h"

#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace sublet::config {

// Returns a reference to the value in a Config. The alternative of the variant is the type of the value.
using Access = std::variant<Duration& (*)(Config&), Bytes& (*)(Config&), std::int64_t& (*)(Config&),
                            double& (*)(Config&), std::string& (*)(Config&), LoopbackAddress& (*)(Config&),
                            bool& (*)(Config&), Choice& (*)(Config&), Text& (*)(Config&), Url& (*)(Config&),
                            Secret& (*)(Config&), Accounts& (*)(Config&), Words& (*)(Config&)>;

struct Key {
  std::string_view name;  // "queue.claim_window": table and key
  // The smallest value in the file's own form; "" for a path; the words of a choice or a list, separated by blanks.
  std::string_view minimum;
  std::string_view maximum;
  std::string_view summary;  // one sentence
  Access access;
};

std::span<const Key> keys();  // sorted by name
const Key* find(std::string_view name);

// How a value is reached in a row of a list; the row is of the list's own type. The alternative is the type.
using FieldAccess = std::variant<Duration& (*)(void*), Bytes& (*)(void*), std::int64_t& (*)(void*), double& (*)(void*),
                                 std::string& (*)(void*), LoopbackAddress& (*)(void*), bool& (*)(void*),
                                 Choice& (*)(void*), Text& (*)(void*), Url& (*)(void*), Secret& (*)(void*),
                                 Accounts& (*)(void*), Name& (*)(void*), Words& (*)(void*)>;

namespace detail {
template <typename Row, typename Value>
Row row_type(Value Row::*);
template <typename Row, typename Value>
Value value_type(Value Row::*);
}  // namespace detail

// field<&Config::Quota::limit>(): the access to that member.
template <auto Member>
constexpr FieldAccess field() {
  using Row = decltype(detail::row_type(Member));
  using Value = decltype(detail::value_type(Member));
  return FieldAccess(+[](void* row) -> Value& { return static_cast<Row*>(row)->*Member; });
}

// A sub-key: one key of a table in a list.
struct Field {
  std::string_view name;     // "limit"
  std::string_view minimum;  // as of Key; "" for a path, a name, an address, and true or false
  std::string_view maximum;
  std::string_view summary;  // one sentence
  FieldAccess access;
  bool required = false;  // true: a table without the sub-key is a problem
};

// How the rows of a list are reached in a Config.
struct Rows {
  std::size_t (*count)(Config&);
  void* (*add)(Config&);  // appends a row that holds the defaults
  void* (*at)(Config&, std::size_t);
  void* (*defaults)();  // a row that holds the defaults; the caller only reads the row
};

// rows<quotas>() for a function `std::vector<Config::Quota>& quotas(Config&)`.
template <auto Access>
constexpr Rows rows() {
  using Row = typename std::remove_reference_t<decltype(Access(std::declval<Config&>()))>::value_type;
  return {+[](Config& config) { return Access(config).size(); },
          +[](Config& config) -> void* { return &Access(config).emplace_back(); },
          +[](Config& config, std::size_t index) -> void* { return &Access(config)[index]; },
          +[]() -> void* {
            static Row row;
            return &row;
          }};
}

// A list of tables: each [[name]] of the file is one row.
struct List {
  std::string_view name;          // "quota.user": table and key
  std::string_view summary;       // one sentence
  std::string_view unique;        // the field whose value no two rows share; a required field of type name or text
  std::span<const Field> fields;  // by name
  Rows rows;
};

std::span<const List> daemon_lists();  // sorted by name

// All that a file may set. The daemon's own schema is schema(); a test builds others.
struct Schema {
  std::span<const Key> keys;
  std::span<const List> lists;  // by name; no key and no table has the name of a list
};
const Schema& schema();
// The schema of a file with a tree of tenants (`sublet tenant apply`). Its rows are Config::tenants.entries.
const Schema& tenant_schema();
// The schema of a scenario for `sublet simulate`: the keys of the daemon, those of the scenario, its tenants and its
// streams of jobs.
const Schema& scenario_schema();

// Keys of features that this version does not have, with the feature's name. Such a key gets a different message than a
// wrong key.
struct LaterKey {
  std::string_view name;
  std::string_view feature;
};
std::span<const LaterKey> later_keys();

// "duration", "size", "integer", "number", "path", "address", "true or false", "word", "text", "URL", "secret",
// "list of accounts" (keys alone), "name" (fields alone)
std::string_view type_name(const Key& key);
std::string_view type_name(const Field& field);
std::string value_text(const Key& key, const Config& config);  // as the value stands in the file: "10s" in quotes, 256
std::string value_text(const Field& field, const void* row);
std::string default_text(const Key& key);
std::string default_text(const List& list, const Field& field);  // "" of a required field
std::string address_text(const LoopbackAddress& address);        // "[::1]:8080", "" for none

// Stores the value of `text` ("10s", without quotes) in `config`, and checks its range. The error's detail does not
// name the key.
Status set_value(const Key& key, std::string_view text, Config& config);
Status set_value(const List& list, const Field& field, std::string_view text, void* row);

// "1s to 1h", or which values there are.
std::string range_text(const Key& key);
std::string range_text(const Field& field);

// As of config.h, with another schema than the daemon's.
Loaded load_named(const std::filesystem::path& file, const Schema& schema);
Loaded parse(std::string_view text, const std::string& file_name, const Schema& schema);

// "FILE:LINE" of an entry of Loaded::row_lines; without its line: "FILE".
std::string place_of(const Loaded& loaded, const std::string& entry);

// `config show`: a file that sets every key; `origin`: with a comment behind each line, where its value comes from.
std::string file_text(const Loaded& loaded, bool origin, const Schema& schema = config::schema());
// `config show --json`: {"queue.claim_window": {"value": "10s", "origin": "FILE:2"}}; a list's value is an array of
// objects, and its origin an array of the places of its tables.
std::string values_json(const Loaded& loaded, const Schema& schema = config::schema());

std::string reference_page(const Schema& schema = config::schema());  // docs/reference/config.md
std::string manual_page(const Schema& schema = config::schema());     // sublet.toml(5)

}  // namespace sublet::config
