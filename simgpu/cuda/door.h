// SPDX-License-Identifier: Apache-2.0
// The door through which every call enters the driver. A checkpoint's lock closes it: who is inside finishes,
// who comes later waits outside until it is opened again. A call made from inside another needs no door. Any
// thread.
#pragma once

namespace simgpu {

void enter_door();
void leave_door();

void close_door();
void open_door();
bool nobody_inside();

}  // namespace simgpu
