// SPDX-License-Identifier: Apache-2.0
// The door through which every call enters the driver. A checkpoint's lock closes the door: calls that are inside
// finish, and later calls wait until the door opens again. A call from inside another call needs no door. Any thread.
#pragma once

namespace simgpu {

void enter_door();
void leave_door();

void close_door();
void open_door();
bool nobody_inside();

}  // namespace simgpu
