// SPDX-License-Identifier: Apache-2.0
#include "base/ids.h"

#include "base/text.h"

#include <fmt/format.h>

#include <charconv>

namespace sublet {

std::string to_string(LeaseId id) { return fmt::format("lease-{}", id.number); }

Result<LeaseId> parse_lease_id(std::string_view text) {
  std::string_view digits = text;
  if (digits.starts_with("lease-")) digits.remove_prefix(6);
  LeaseId id;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), id.number);
  if (error != std::errc{} || end != digits.data() + digits.size() || !id) {
    return bad_request(fmt::format("'{}' is not a lease's id", printable(text)),
                       "an id looks like lease-7; 'sublet ps' lists them");
  }
  return id;
}

}  // namespace sublet
