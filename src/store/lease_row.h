// SPDX-License-Identifier: Apache-2.0
// A lease as a row of the table `leases`.
#pragma once

#include "core/lease.h"
#include "store/sqlite.h"

#include <optional>
#include <string>

namespace sublet::store {

// The columns in the order in which bind_lease binds them and read_lease reads them: "id, generation, …".
const std::string& lease_columns();

// INSERT of a lease, or UPDATE of the one with its id; never takes `settled` back.
std::string upsert_lease_sql();

// UPDATE of the one with its id while it lives, for a lease that lives: takes three quarters of the time, because no
// index is touched. No row is changed where that is not so.
std::string update_living_sql();

void bind_lease(Statement& statement, const core::Lease& lease);  // its strings must live until the statement is done

// The lease in the current row; nothing if a word in it is none of ours, or a number is out of range.
std::optional<core::Lease> read_lease(Statement& row);

}  // namespace sublet::store
