// SPDX-License-Identifier: Apache-2.0
// What a program does first: it is somebody else's child, and has whatever that one left open, or closed.
#pragma once

namespace sublet {

// Closes every descriptor but 0, 1, 2 and `keep` (a helper that inherits a lock would hold it for ever),
// makes `keep` close-on-exec, and puts /dev/null where 0, 1 or 2 is closed, so that no library's descriptor
// lands there.
void shed_descriptors(int keep);

// What every other program of ours does first: occupies 0, 1 and 2 where they are closed, so that no socket lands there
// and gets what is printed. Writing to such a one fails as before, so that output that nobody gets is still noticed.
void occupy_standard_descriptors();

}  // namespace sublet
