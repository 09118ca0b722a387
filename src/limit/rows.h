// SPDX-License-Identifier: Apache-2.0
// The stored form of credits, and the names of devices. Pure functions, any thread.
#pragma once

#include "base/error.h"
#include "base/ids.h"
#include "base/units.h"
#include "credit/pages.h"
#include "store/store.h"

#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace sublet::limit {

inline constexpr std::string_view credit_kind = "credit";
inline constexpr std::string_view context_kind = "context_bytes";

// The credit of a process, as it was stored before the process got it.
struct StoredCredit {
  ProcessRef process;
  LeaseId lease;
  std::string boot_id;                // the process is gone after another boot
  std::map<std::string, Bytes> each;  // by uuid of the device
  bool operator==(const StoredCredit&) const = default;
};
store::CapabilityRow to_row(const StoredCredit& credit);  // a row without data if it has no lease
Result<StoredCredit> from_row(const store::CapabilityRow& row);

// The bytes that a context takes on a device, as they were measured with this version of the driver.
struct StoredContext {
  std::string uuid, driver;
  Bytes bytes;
  bool operator==(const StoredContext&) const = default;
};
store::CapabilityRow to_row(const StoredContext& context);
Result<StoredContext> context_from_row(const store::CapabilityRow& row);

// The 16 bytes of "GPU-…" or "MIG-…", as the driver tells them; unset: the name has another form.
std::optional<credit::Uuid> uuid_bytes(std::string_view name);

}  // namespace sublet::limit
