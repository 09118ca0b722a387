// SPDX-License-Identifier: Apache-2.0
// `status TAG`: gathers what the daemon and /proc tell about one program or lease.
#pragma once

#include "cli/verb.h"

#include <nlohmann/json.hpp>

#include <string>

namespace sublet::cli {

// The exit status of `status` for a program or a lease in the API's form, by its state.
int exit_status_of(const nlohmann::json& subject);

// Shows the program with this tag, else the lease with this id or tag. Returns the exit code.
int show_subject(const Common& common, const std::string& name);

}  // namespace sublet::cli
