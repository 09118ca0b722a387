// SPDX-License-Identifier: Apache-2.0
#include "limit/rows.h"

#include "base/number.h"
#include "base/text.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace sublet::limit {
namespace {

using nlohmann::json;

Error unreadable(std::string_view what, const store::CapabilityRow& row) {
  return bad_request(fmt::format("the {} of {} cannot be read: {}", what, printable(row.key), printable(row.data)));
}

// Unset: no whole number of bytes.
std::optional<Bytes> bytes_of(const json& value) {
  if (!value.is_number_integer() || value < 0) return std::nullopt;
  return Bytes{value.get<std::int64_t>()};
}

std::optional<int> digit_of(char digit) {
  if (digit >= '0' && digit <= '9') return digit - '0';
  if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
  if (digit >= 'A' && digit <= 'F') return digit - 'A' + 10;
  return std::nullopt;
}

}  // namespace

store::CapabilityRow to_row(const StoredCredit& credit) {
  store::CapabilityRow row{std::string(credit_kind),
                           fmt::format("{}:{}", credit.process.pid, credit.process.start_ticks), ""};
  if (!credit.lease) return row;
  json each = json::object();
  for (const auto& [uuid, bytes] : credit.each)
    if (bytes > Bytes{}) each[uuid] = bytes.count;
  row.data = json{{"lease", credit.lease.number}, {"boot", credit.boot_id}, {"bytes", std::move(each)}}.dump();
  return row;
}

Result<StoredCredit> from_row(const store::CapabilityRow& row) {
  const auto colon = std::min(row.key.find(':'), row.key.size());
  const auto pid = parse_number<std::int32_t>(std::string_view(row.key).substr(0, colon));
  const auto start = parse_number<std::uint64_t>(std::string_view(row.key).substr(std::min(colon + 1, row.key.size())));
  const json data = json::parse(row.data, nullptr, false);
  if (!pid || *pid <= 0 || !start || !data.is_object()) return unreadable("credit", row);
  const json lease = data.value("lease", json()), boot = data.value("boot", json()), each = data.value("bytes", json());
  if (!lease.is_number_unsigned() || !boot.is_string() || !each.is_object()) return unreadable("credit", row);
  StoredCredit credit{{*pid, *start}, LeaseId{lease.get<std::uint64_t>()}, boot.get<std::string>(), {}};
  for (const auto& [uuid, value] : each.items()) {
    const auto bytes = bytes_of(value);
    if (!bytes) return unreadable("credit", row);
    credit.each[uuid] = *bytes;
  }
  return credit;
}

store::CapabilityRow to_row(const StoredContext& context) {
  return {std::string(context_kind), context.uuid,
          json{{"driver", context.driver}, {"bytes", context.bytes.count}}.dump()};
}

Result<StoredContext> context_from_row(const store::CapabilityRow& row) {
  const json data = json::parse(row.data, nullptr, false);
  if (!data.is_object()) return unreadable("size of a context", row);
  const json driver = data.value("driver", json());
  const auto bytes = bytes_of(data.value("bytes", json()));
  if (!driver.is_string() || !bytes) return unreadable("size of a context", row);
  return StoredContext{row.key, driver.get<std::string>(), *bytes};
}

std::optional<credit::Uuid> uuid_bytes(std::string_view name) {
  if (!name.starts_with("GPU-") && !name.starts_with("MIG-")) return std::nullopt;
  name.remove_prefix(4);
  constexpr std::string_view form = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";
  if (name.size() != form.size()) return std::nullopt;
  credit::Uuid bytes{};
  std::size_t digits = 0;
  for (std::size_t i = 0; i < form.size(); ++i) {
    if (form[i] == '-') {
      if (name[i] != '-') return std::nullopt;
      continue;
    }
    const auto digit = digit_of(name[i]);
    if (!digit) return std::nullopt;
    auto& byte = bytes.at(digits++ / 2);
    byte = static_cast<std::uint8_t>(byte << 4 | *digit);
  }
  return bytes;
}

}  // namespace sublet::limit
