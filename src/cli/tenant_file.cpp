// SPDX-License-Identifier: Apache-2.0
#include "cli/tenant_file.h"

#include "base/text.h"
#include "config/schema.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace sublet::cli {
namespace {

using nlohmann::json;

const config::List& tenant_list() { return config::tenant_schema().lists.front(); }

// The API's name of a key, which has its unit.
std::string api_name(std::string_view key) {
  if (key == "quota" || key == "limit") return fmt::format("{}_bytes", key);
  if (key == "longest_lease") return "longest_lease_seconds";
  return std::string(key);
}

// The value of a key as the API has it.
json value_of(const config::Field& field, void* row) {
  return std::visit(
      [row](auto access) -> json {
        const auto& value = access(row);
        using Value = std::remove_cvref_t<decltype(value)>;
        if constexpr (std::is_same_v<Value, Duration>) return value / std::chrono::seconds(1);
        else if constexpr (std::is_same_v<Value, Bytes>) return value.count;
        else if constexpr (std::is_arithmetic_v<Value>) return value;
        else if constexpr (std::is_same_v<Value, Choice>) return value.word;
        else if constexpr (std::is_same_v<Value, Words>) return value.words;
        else if constexpr (std::is_same_v<Value, Text>) return value.text;
        else return nullptr;
      },
      field.access);
}

const config::Field* find_field(std::string_view key) {
  const auto& fields = tenant_list().fields;
  const auto found = std::ranges::find(fields, key, &config::Field::name);
  return found == fields.end() ? nullptr : &*found;
}

Error unknown_key(std::string_view key) {
  std::vector<std::string_view> known;
  for (const config::Field& field : tenant_list().fields)
    if (field.name != "name") known.push_back(field.name);
  return bad_request(fmt::format("'{}' is no key of a tenant{}", printable(key), did_you_mean(key, known)),
                     fmt::format("the keys are {}", fmt::join(known, ", ")));
}

}  // namespace

json tenants_in(const config::Loaded& loaded) {
  config::Loaded copy = loaded;  // access to a row may change it
  json all = json::array();
  for (std::size_t i = 0; i < tenant_list().rows.count(copy.config); ++i) {
    json entry = json::object();
    for (const config::Field& field : tenant_list().fields)
      if (loaded.row_lines.contains(fmt::format("tenant[{}].{}", i, field.name)))
        entry[api_name(field.name)] = value_of(field, tenant_list().rows.at(copy.config, i));
    all.push_back(std::move(entry));
  }
  return all;
}

Result<json> tenant_fields(const std::vector<std::string>& words) {
  json fields = json::object();
  for (const std::string& word : words) {
    const auto equals = word.find('=');
    if (equals == std::string::npos)
      return bad_request(fmt::format("'{}' is not KEY=VALUE", printable(word)),
                         "for example quota=4GiB; a key without a value is stated no more: limit=");
    const std::string key = word.substr(0, equals);
    std::string value = word.substr(equals + 1);
    const config::Field* field = find_field(key);
    if (field == nullptr || key == "name") return unknown_key(key);
    if (fields.contains(api_name(key)))
      return bad_request(fmt::format("{} is given twice", key), "leave one of the two out");
    if (value.empty()) {
      fields[api_name(key)] = nullptr;
      continue;
    }
    if (config::type_name(*field) == "list of words") std::ranges::replace(value, ',', '\n');
    Config::TenantEntry row;
    if (const Status set = config::set_value(tenant_list(), *field, value, &row); !set)
      return bad_request(fmt::format("{}: {}", key, set.error().detail),
                         fmt::format("the range is {}", config::range_text(*field)));
    fields[api_name(key)] = value_of(*field, &row);
  }
  return Result<json>(boost::system::in_place_value, std::move(fields));
}

Error in_tenant_file(Error error, const config::Loaded& loaded) {
  const auto entry = error.numbers.find("entry");
  if (entry == error.numbers.end()) return error;
  error.detail =
      fmt::format("{}: {}", config::place_of(loaded, fmt::format("tenant[{}]", entry->second)), error.detail);
  return error;
}

}  // namespace sublet::cli
