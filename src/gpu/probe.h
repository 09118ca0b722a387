// SPDX-License-Identifier: Apache-2.0
// The loop of `sublet-gpu probe`.
#pragma once

#include "gpu/sampler.h"

namespace sublet::gpu {

// Answers each command on the socket with one line, until the peer closes it. Returns 0 then, 1 when the
// socket fails or the peer sends what is no command. Within 10 s of the peer's end it exits although a driver
// call hangs, unless that call sleeps in the kernel beyond signals.
int serve_probe(int socket, Sampler& sampler);

}  // namespace sublet::gpu
