// SPDX-License-Identifier: Apache-2.0
// The part of `run` for shims: a daemon that does not answer, and the hidden verb that sublet-shim calls. One thread.
#pragma once

#include "cli/fetch.h"
#include "cli/run_flags.h"

#include <string>
#include <string_view>
#include <vector>

namespace sublet::cli {

// As meet(), but waits shortly for a daemon that restarts, and without a limit if the shim says so.
client::Answer<client::Reply> meet_for_shim(const Common& common, const ShimCall& shim, client::Client& client);

// Whether the program runs although the call failed: no daemon answers, and the shim allows it or a lease is named in
// the environment. A refusal of the daemon is an answer.
bool may_run_without_daemon(const ShimCall& shim, const client::Failure& failure);

// Becomes the real program, with a line on stderr. Returns an exit code if that failed.
int run_without_daemon(const ShimCall& shim, const std::vector<std::string>& command, const client::Failure& failure);

// Becomes the program `file`, looked up in PATH unless it contains a slash. Returns an exit code if that failed, after
// the reason and `hint` were printed.
int exec_program(const std::string& file, const std::vector<std::string>& command, std::string_view hint);

// The hint for a real program that cannot start.
std::string real_hint(const std::string& shim);

// `sublet __shim NAME BYTES CONSUMER IF_ABSENT INTERPOSER SHARE REAL -- ARGV…`, which sublet-shim executes. `words`:
// all behind the verb.
int run_shim(const std::vector<std::string>& words);

}  // namespace sublet::cli
