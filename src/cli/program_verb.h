// SPDX-License-Identifier: Apache-2.0
// Functions shared by the verbs that act on a supervised program.
#pragma once

#include "cli/output.h"
#include "client/client.h"

#include <nlohmann/json.hpp>

#include <functional>
#include <string>

namespace sublet::cli {

// Declares TAG and --json. `tag` must outlive the parse.
void add_program_tag(Command command, Common& common, std::string& tag);

// "/v1/programs/TAG" and a call below it. An admin names another user's program as USER/TAG.
std::string program_target(const std::string& tag, const std::string& call = {});

// POSTs `body` to a call of the program; prints the reply with --json, else `done(program)` on stderr.
int act_on_program(const Common& common, const std::string& tag, const std::string& call, const nlohmann::json& body,
                   const std::function<std::string(const nlohmann::json&)>& done);

// Whether `name` can only be a lease's id, such as "lease-7".
bool is_lease_id(const std::string& name);

// Whether the daemon has no such program, so that `name` may be a lease.
bool is_no_program(const client::Failure& failure);

// Prints the failure of a verb for which neither a program nor a lease has this name. Returns the exit code.
int fail_for_both(const Common& common, const std::string& name, const client::Failure& program,
                  const client::Failure& lease);

}  // namespace sublet::cli
