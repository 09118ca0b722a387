// SPDX-License-Identifier: Apache-2.0
// Handles inherited descriptors at the start of a program.
#pragma once

namespace sublet {

// Closes every descriptor except 0, 1, 2 and `keep`, and sets close-on-exec on `keep`. A helper that inherits a lock
// would hold the lock for ever. Opens /dev/null for 0, 1 or 2 if they are closed, so that no library's descriptor gets
// such a number.
void shed_descriptors(int keep);

// Occupies 0, 1 and 2 if they are closed, so that no socket gets such a number and receives printed text. Writing to
// such a descriptor still fails, so that lost output is noticed. Every program except the helpers calls this first.
void occupy_standard_descriptors();

}  // namespace sublet
