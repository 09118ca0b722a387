// SPDX-License-Identifier: Apache-2.0
// Stores a lease as a row of the table `leases`: a document with all its fields, and columns that repeat those by which
// rows are found.
#pragma once

#include "lease/lease.h"
#include "store/sqlite.h"

#include <optional>
#include <string>

namespace sublet::store {

// Returns the SQL that inserts a lease or updates the row with its id. It never clears `settled`.
std::string upsert_lease_sql();

// Returns the SQL that updates the row of a living lease. It changes no row if the lease does not live or has no row.
std::string update_living_sql();

void bind_lease(Statement& statement, const core::Lease& lease);  // its strings must live until the statement is done

// Returns the lease in the current row, whose first column is `document`. Nothing if the document is damaged.
std::optional<core::Lease> read_lease(Statement& row);

}  // namespace sublet::store
