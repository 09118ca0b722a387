// SPDX-License-Identifier: Apache-2.0
// The tree of verbs and flags as CLI11 holds it. Help, completion and the reference are made from this one tree.
#pragma once

#include "cli/verb.h"

#include <CLI/CLI.hpp>

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace sublet::cli {

struct Tree : CLI::App {
  using CLI::App::App;
  std::map<const CLI::Option*, Offer> offers;  // what completion has for the values of these
};

struct Program {
  Tree app{"Sublet leases your GPU's memory: it queues programs instead of letting them crash each other.", "sublet"};
  Common common;
  std::map<std::string, Action, std::less<>> actions;  // by name of the verb
};

// Holds pointers into itself: stays where it is.
std::unique_ptr<Program> make_program();

std::string usage_line(const CLI::App& app);  // "Usage: sublet why [flags] LEASE"

// The hidden verbs: what completion scripts call, and docs/reference/ is made with. Not parsed by the tree, because
// what follows them is not for us to understand.
int run_complete(const std::vector<std::string>& words);
int run_reference(const std::vector<std::string>& words);
std::string reference_page();

// Parses and does it. Returns the exit code; throws nothing.
int run_program(int argc, const char* const* argv);

}  // namespace sublet::cli
