// SPDX-License-Identifier: Apache-2.0
// Whether this process runs inside a lease already. Reads /proc and the environment.
#pragma once

namespace sublet::shim {

// Whether SUBLET_LEASE names a lease and a keeper of this installation is an ancestor. The variable alone proves
// nothing, since anyone can copy it. A keeper lives as long as the processes below it. False also if it cannot be told:
// the daemon knows then.
bool is_below_keeper();

}  // namespace sublet::shim
