// SPDX-License-Identifier: Apache-2.0
// Completion: the candidates at the cursor, from the tree that parses the command line.
#pragma once

#include "cli/app.h"

#include <functional>
#include <string>
#include <vector>

namespace sublet::cli {

struct Candidate {
  std::string word;
  std::string text;  // one-line explanation; may be ""
};

struct Completion {
  // Completed by the shell itself; `candidates` is then empty.
  enum class Shell { nothing, files, directories, commands } shell = Shell::nothing;
  std::vector<Candidate> candidates;
};

// Looks up names that only the daemon knows; empty without a daemon.
using LookUp = std::function<std::vector<Candidate>(Offer::Of)>;

// `words`: the words after "sublet"; the last one is under the cursor and may be "".
Completion complete(const Tree& root, std::vector<std::string> words, const LookUp& look_up);

// The completion script for bash, zsh or fish; "" for another name.
std::string completion_script(std::string_view shell);

}  // namespace sublet::cli
