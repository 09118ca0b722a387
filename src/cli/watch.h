// SPDX-License-Identifier: Apache-2.0
// --watch: refreshes until a key or a signal ends it.
#pragma once

#include "cli/fetch.h"

#include <functional>
#include <string>

namespace sublet::cli {

// Returns the text to show now, or the failure.
using LookOnce = std::function<client::Answer<std::string>(client::Client& client)>;

// Refreshes every `common.watch`: in place on a terminal, else one block after the other, with --json one line each.
// Waits for a daemon that goes away. Returns the exit code if there was no daemon, or if it refuses. A signal ends the
// process.
int watch(const Common& common, client::Client client, const LookOnce& look);

}  // namespace sublet::cli
