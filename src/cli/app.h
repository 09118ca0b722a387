// SPDX-License-Identifier: Apache-2.0
// The tree of verbs and flags in CLI11. Help, completion and the reference are made from this tree.
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
  std::map<const CLI::Option*, Offer> offers;  // values that completion offers, by option
};

struct Program {
  Tree app{"Sublet leases your GPU's memory: it queues programs instead of letting them crash each other.", "sublet"};
  Common common;
  std::map<std::string, Action, std::less<>> actions;  // by the verb's name
};

// The program holds pointers into itself and must not be moved. `only`: the name of the only verb that is made.
std::unique_ptr<Program> make_program(std::string_view only = {});

std::string usage_line(const CLI::App& app);  // "Usage: sublet why [flags] LEASE"

// The hidden verbs for completion scripts and docs/reference/. The tree does not parse their arguments.
int run_complete(const std::vector<std::string>& words);
int run_reference(const std::vector<std::string>& words);
std::string reference_page();

// Parses the command line and runs the verb. Returns the exit code; throws nothing.
int run_program(int argc, const char* const* argv);

}  // namespace sublet::cli
