// SPDX-License-Identifier: Apache-2.0
// A lease as a JSON document, by the tables of lease/lease_fields.h. A field that has its default is left out, and a
// field that is left out has its default: so a new field needs no migration. Sizes are bytes, times and durations
// nanoseconds, an enum is its word in the API. Pure functions.
#pragma once

#include "lease/lease.h"

#include <optional>
#include <string>
#include <string_view>

namespace sublet::store {

std::string encode_lease(const core::Lease& lease);

// Nothing: the text is no document, a word is unknown, or a number is out of range. Unknown fields are passed over.
std::optional<core::Lease> decode_lease(std::string_view text);

}  // namespace sublet::store
