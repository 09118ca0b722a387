// SPDX-License-Identifier: Apache-2.0
// The loop of `sublet-gpu probe`.
#pragma once

#include "gpu/sampler.h"

namespace sublet::gpu {

// Answers each command on the socket with a line, until the peer closes the socket. Returns 0 then, and 1 if the socket
// fails or the peer sends an unknown command. Exits within 10 s of the peer's end, even if a driver call hangs, unless
// the call sleeps uninterruptibly.
int serve_probe(int socket, Sampler& sampler);

}  // namespace sublet::gpu
