// SPDX-License-Identifier: Apache-2.0
// The library that stands between a program and the CUDA driver, and how a program gets it.
#pragma once

#include "base/error.h"

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

namespace sublet::keep {

// The path of libsublet-cuda.so, which is beside our own program: in ../lib/sublet. An error if it is not installed, or
// if its path has a character that separates entries of LD_PRELOAD.
Result<std::string> find_interposer();

// A value of LD_PRELOAD with the library at its end. The libraries of the list come first, so that they wrap ours: it
// has to be the last before the driver. A list that has the library stays as it is.
std::string add_preload(const std::string& list, const std::string& library);

// Sets LD_PRELOAD and SUBLET_CREDIT in an environment of "NAME=value", and in that of this process. All ways to start a
// program behind the interposer call this. `status`: a reply of /v1/status, which names the socket of the questions;
// without a socket the program has no limit.
Status interpose(std::vector<std::string>& environment, const nlohmann::json& status);
Status interpose_self(const nlohmann::json& status);

}  // namespace sublet::keep
