// SPDX-License-Identifier: Apache-2.0
// The side of a checkpoint that happens in the process to be parked: a thread of the driver, there from cuInit
// on, does what others ask for through the table (simgpu/table/control.h). The process need not cooperate, but
// it must be able to run: a stopped process answers nobody.
#pragma once

namespace simgpu {

// Starts the thread. Called once, by cuInit.
void serve_checkpoints();

}  // namespace simgpu
