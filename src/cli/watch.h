// SPDX-License-Identifier: Apache-2.0
// --watch: the same look again and again, until a key or a signal ends it.
#pragma once

#include "cli/fetch.h"

#include <functional>
#include <string>

namespace sublet::cli {

// What is to be shown now, or why it cannot be had.
using LookOnce = std::function<client::Answer<std::string>(client::Client& client)>;

// Looks every `common.watch`: on a terminal in place, elsewhere one block after the other, with --json one line a look.
// A daemon that was there and is away is waited for; the exit code when there was none, or when it refuses. Ended by a
// signal, it dies of it.
int watch(const Common& common, client::Client client, const LookOnce& look);

}  // namespace sublet::cli
