// SPDX-License-Identifier: Apache-2.0
// Functions shared by the verbs that act on a supervised program.
#pragma once

#include "cli/output.h"
#include "client/client.h"

#include <nlohmann/json.hpp>

#include <functional>
#include <string>
#include <vector>

namespace sublet::cli {

// Declares TAG and --json. `tag` must outlive the parse.
void add_program_tag(Command command, Common& common, std::string& tag);

// The programs of a verb that takes several.
struct ProgramChoice {
  std::vector<std::string> tags;  // in the order given
  bool all = false;               // --all: the caller's own programs
};

// Declares TAG..., --all and --json. `choice` must outlive the parse.
void add_program_tags(Command command, Common& common, ProgramChoice& choice);
// Declares --all alone.
void add_all(Command command, ProgramChoice& choice);
// Prints the usage error of a choice that is empty or double; nothing if it fits.
std::optional<int> check_choice(const ProgramChoice& choice, std::string_view verb);
// The tags that were given, or with --all those of the caller's own programs.
client::Answer<std::vector<std::string>> tags_of(const ProgramChoice& choice, client::Client& client);

// A program, as the daemon told it.
struct Supervised {
  client::Reply reply;
  nlohmann::json body;
};
client::Answer<Supervised> parse_program(client::Answer<client::Reply> reply);

// Asks about the program until `is_done`, over restarts of the daemon.
client::Answer<Supervised> wait_for_program(const Common& common, client::Client& client, const std::string& tag,
                                         const std::function<bool(const nlohmann::json&)>& is_done);
// Says that the end of a paused program waits for its resume.
void tell_resumed_first(const Common& common, const std::string& tag, const nlohmann::json& program);
// Waits until the program of the reply to a start or restart has ended its earlier run, and runs or waits for memory.
client::Answer<Supervised> wait_for_start(const Common& common, client::Client& client, const std::string& tag,
                                       Supervised asked);
// Prints the program with --json, else its state, or why it could not be started. Returns the exit code.
int tell_started(const Common& common, const std::string& tag, const Supervised& program);

// POSTs `body` to a call of each program, then completes each by `finish`, which prints. So their ends and starts
// overlap. Returns the first exit code that is not 0.
using Finish = std::function<int(client::Client& client, const std::string& tag, Supervised asked)>;
int act_on_programs(const Common& common, const ProgramChoice& choice, const std::string& call,
                    const nlohmann::json& body, const Finish& finish);

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
