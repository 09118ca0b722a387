// SPDX-License-Identifier: Apache-2.0
// Errors for which a device goes out of service by itself. Plain values and pure functions.
#pragma once

#include "base/error.h"
#include "gpu/condition.h"
#include "store/store.h"

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>

namespace sublet::maintenance {

// The words of gpu.cordon_on. ecc: double-bit errors. xid: Xid 79, or the device is lost. retired: pages are to be
// retired, rows are to be remapped, or a row could not be remapped.
enum class Cause { ecc, xid, retired };
using Causes = std::set<Cause>;
std::optional<Cause> parse_cause(std::string_view word);

// The errors of a device that are known. An unset figure is not told.
struct Errors {
  std::optional<std::int64_t> double_bit{};
  std::optional<std::int64_t> falls{};
  std::optional<std::int64_t> retirement{};  // 0 or 1, like the next two
  std::optional<std::int64_t> remapping{};
  std::optional<std::int64_t> failed{};
  bool operator==(const Errors&) const = default;
};
Errors errors_of(const gpu::Facts& facts);
// The errors that are there now; those that are not told now stay as they were known.
Errors learn(const Errors& known, const Errors& now);
// The known errors without those that are gone, as after a load of the driver: the next ones are new.
Errors forget_gone(const Errors& known, const Errors& now);
// "2 double-bit memory errors": the errors that were not known, for these causes; "": there are none.
std::string new_errors(const Errors& known, const Errors& now, const Causes& causes);

inline constexpr std::string_view errors_row_kind = "device_errors";
store::CapabilityRow to_row(const std::string& device, const Errors& known);
Result<Errors> errors_from_row(const store::CapabilityRow& row);

}  // namespace sublet::maintenance
