// SPDX-License-Identifier: Apache-2.0
// What a helper does first: it is somebody else's child, and has whatever that one left open.
#pragma once

namespace sublet {

// Closes every descriptor but 0, 1, 2 and `keep` (a helper that inherits a lock would hold it for ever),
// makes `keep` close-on-exec, and puts /dev/null where 0, 1 or 2 is closed, so that no library's descriptor
// lands there.
void shed_descriptors(int keep);

}  // namespace sublet
