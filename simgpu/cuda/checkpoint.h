// SPDX-License-Identifier: Apache-2.0
// Checkpoints, on the side of the process that is parked. A thread of its driver starts with cuInit and carries out the
// requests that other processes post in the table (simgpu/table/control.h). The process need not cooperate, but it must
// be able to run: a stopped process answers no request.
#pragma once

namespace simgpu {

// Starts the thread. cuInit calls this function once.
void serve_checkpoints();

}  // namespace simgpu
