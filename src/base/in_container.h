// SPDX-License-Identifier: Apache-2.0
// The places at which containers of stacks and pods have the interposer, and the names in the daemon's folder for them.
#pragma once

namespace sublet::in_container {

inline constexpr const char* library = "/run/sublet/libsublet-cuda.so";
// Names the library to the loader. Not by LD_PRELOAD, which is the image's, and which the loader of another C library
// reads too.
inline constexpr const char* preload_list = "/etc/ld.so.preload";
inline constexpr const char* credit_folder = "/run/sublet/credit";
inline constexpr const char* credit_socket = "/run/sublet/credit/credit.sock";  // for SUBLET_CREDIT

// Beside the daemon's socket: a folder with a second name of the socket of credits alone.
inline constexpr const char* folder_name = "credit";
inline constexpr const char* socket_name = "credit.sock";
inline constexpr const char* fresh_name = "new";  // of the socket, until it takes the place of the earlier one

}  // namespace sublet::in_container
