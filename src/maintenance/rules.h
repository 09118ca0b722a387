// SPDX-License-Identifier: Apache-2.0
// Devices out of service, and the next step of a drain for each lease. Plain values and pure functions.
#pragma once

#include "base/error.h"
#include "base/units.h"
#include "lease/lease.h"
#include "store/store.h"

#include <optional>
#include <string>
#include <string_view>

namespace sublet::maintenance {

// cordon: nothing is granted. drain: leases there are paused too, and ended at the deadline if they cannot be paused.
enum class Mode { cordon, drain };

// A device out of service. Stored.
struct OutOfService {
  Mode mode = Mode::cordon;
  std::string device{};            // uuid
  std::string by{};                // account name of the admin
  std::string reason{};            // free text; may be ""
  Time since{};                    // of the last change
  std::optional<Time> deadline{};  // of a drain; unset: no program is ended
  bool automatic = false;          // Sublet took it out of service, for an error of the device
  bool operator==(const OutOfService&) const = default;
};

// "cordoned by root: new fan"
std::string why_text(const OutOfService& out);

// The last pause of a lease that a drain ordered.
struct Tried {
  Time at{};
  std::string problem{};  // why it was refused; "": it was begun
};

enum class Act { nothing, pause, end };
// A lease is ended only at the deadline, and only if it is not to be paused or a pause was tried.
Act next_act(const OutOfService& out, const core::Lease& lease, const std::optional<Tried>& tried, Time now);
// A pause is tried again after this time.
inline constexpr Duration try_again_after = std::chrono::minutes(1);

inline constexpr std::string_view row_kind = "out_of_service";
store::CapabilityRow to_row(const OutOfService& out);
store::CapabilityRow removed_row(const std::string& device);
Result<OutOfService> from_row(const store::CapabilityRow& row);

}  // namespace sublet::maintenance
