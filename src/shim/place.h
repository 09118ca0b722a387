// SPDX-License-Identifier: Apache-2.0
// The places of shims: their directories, and the program that a shim is a symbolic link to. Reads the file system and
// the environment; any thread.
#pragma once

#include "base/error.h"

#include <optional>
#include <string>
#include <string_view>

namespace sublet::shim {

inline constexpr std::string_view program_name = "sublet-shim";

// A variable of a shim's program: the number of shims that started each other.
inline constexpr const char* depth_variable = "SUBLET_SHIM_DEPTH";

std::string program_path();      // "/usr/bin/sublet-shim": beside the program that runs; "" if this is unknown
std::string user_directory();    // $XDG_DATA_HOME/sublet/shims, else ~/.local/share/sublet/shims; "" without a home
std::string system_directory();  // "/usr/lib/sublet/shims" of programs in /usr/bin

// Whether the file is a shim: it leads to the program sublet-shim, of this or another installation, there or not.
bool is_shim(const std::string& path);

// The shim that was called as `path`: the first of the symbolic links from there that has settings beside it. Nothing
// if there is none.
std::optional<std::string> called_shim(std::string path);

std::string directory_of(const std::string& path);  // "." without a slash
std::string name_of(const std::string& path);       // behind the last slash

}  // namespace sublet::shim
