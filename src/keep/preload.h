// SPDX-License-Identifier: Apache-2.0
// The library that stands between a program and the CUDA driver, and how a program gets it.
#pragma once

#include "base/error.h"

#include <string>

namespace sublet::keep {

// The path of libsublet-cuda.so, which is beside our own program: in ../lib/sublet. An error if it is not installed, or
// if its path has a character that separates entries of LD_PRELOAD.
Result<std::string> find_interposer();

// A value of LD_PRELOAD with the library at its end. The libraries of the list come first, so that they wrap ours: it
// has to be the last before the driver. A list that has the library stays as it is.
std::string add_preload(const std::string& list, const std::string& library);

}  // namespace sublet::keep
