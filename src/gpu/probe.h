// SPDX-License-Identifier: Apache-2.0
// The loop of `sublet-gpu probe`.
#pragma once

#include "gpu/sampler.h"

namespace sublet::gpu {

// Closes every descriptor but 0, 1, 2 and `keep` (a helper that inherits a lock would hold it for ever),
// makes `keep` close-on-exec, and puts /dev/null where 0, 1 or 2 is closed, so that no library's descriptor
// lands there.
void shed_descriptors(int keep);

// Answers each command on the socket with one line, until the peer closes it. Returns 0 then, 1 when the
// socket fails or the peer sends what is no command. Within 10 s of the peer's end it exits although a driver
// call hangs, unless that call sleeps in the kernel beyond signals.
int serve_probe(int socket, Sampler& sampler);

}  // namespace sublet::gpu
