// SPDX-License-Identifier: Apache-2.0
#include "maintenance/errors.h"

#include "base/text.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <utility>

namespace sublet::maintenance {
namespace {

using nlohmann::json;
using Figure = std::optional<std::int64_t> Errors::*;

struct Kind {
  const char* name;  // in a row
  Figure figure;
  Cause cause;
};
constexpr std::array<Kind, 5> kinds{{{"double_bit", &Errors::double_bit, Cause::ecc},
                                     {"falls", &Errors::falls, Cause::xid},
                                     {"retirement", &Errors::retirement, Cause::retired},
                                     {"remapping", &Errors::remapping, Cause::retired},
                                     {"failed", &Errors::failed, Cause::retired}}};

std::string text_of(Figure figure, std::int64_t count) {
  if (figure == &Errors::double_bit) return fmt::format("{} double-bit memory error{}", count, count == 1 ? "" : "s");
  if (figure == &Errors::falls) return "it has fallen off the bus (Xid 79)";
  if (figure == &Errors::retirement) return "pages of its memory are to be retired";
  if (figure == &Errors::remapping) return "rows of its memory are to be remapped";
  return "a row of its memory could not be remapped";
}

}  // namespace

std::optional<Cause> parse_cause(std::string_view word) {
  if (word == "ecc") return Cause::ecc;
  if (word == "xid") return Cause::xid;
  if (word == "retired") return Cause::retired;
  return std::nullopt;
}

Errors errors_of(const gpu::Facts& facts) {
  return {.double_bit = facts.uncorrected_errors,
          .falls = facts.falls.value_or(0),
          .retirement = facts.retirement_pending,
          .remapping = facts.remapping_pending,
          .failed = facts.remapping_failed};
}

Errors learn(const Errors& known, const Errors& now) {
  Errors all = known;
  for (const Kind& kind : kinds)
    if (now.*kind.figure) all.*kind.figure = now.*kind.figure;
  return all;
}

Errors forget_gone(const Errors& known, const Errors& now) {
  Errors left = known;
  for (const Kind& kind : kinds)
    if (const auto& told = now.*kind.figure; told && told < left.*kind.figure) left.*kind.figure = told;
  return left;
}

std::string new_errors(const Errors& known, const Errors& now, const Causes& causes) {
  std::string text;
  for (const Kind& kind : kinds) {
    const std::int64_t count = (now.*kind.figure).value_or(0);
    if (count <= (known.*kind.figure).value_or(0) || !causes.contains(kind.cause)) continue;
    text += (text.empty() ? "" : "; ") + text_of(kind.figure, count);
  }
  return text;
}

store::CapabilityRow to_row(const std::string& device, const Errors& known) {
  json data = json::object();
  for (const Kind& kind : kinds)
    if (const auto& count = known.*kind.figure) data[kind.name] = *count;
  return {std::string(errors_row_kind), device, data.dump()};
}

Result<Errors> errors_from_row(const store::CapabilityRow& row) {
  const json data = json::parse(row.data, nullptr, false);
  Errors known;
  bool readable = data.is_object();
  for (const Kind& kind : kinds) {
    if (!readable || !data.contains(kind.name)) continue;
    readable = data[kind.name].is_number_integer();
    if (readable) known.*kind.figure = data[kind.name].get<std::int64_t>();
  }
  if (readable) return known;
  return bad_request(
      fmt::format("the row of the errors of device {} cannot be read: {}", printable(row.key), printable(row.data)));
}

}  // namespace sublet::maintenance
