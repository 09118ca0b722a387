// SPDX-License-Identifier: Apache-2.0
// `run` inside `run`.
#pragma once

#include "client/client.h"
#include "client/lease.h"

#include <optional>

namespace sublet::cli {

// The lease that this process runs under already: the one in SUBLET_LEASE, if it is granted by this daemon and a
// process of it is really among our ancestors (the variable alone may have been copied anywhere).
std::optional<client::Lease> outer_lease(client::Client& client);

}  // namespace sublet::cli
