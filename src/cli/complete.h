// SPDX-License-Identifier: Apache-2.0
// What may stand where the cursor is. One function over the same tree that parses, so that it cannot tell another
// story.
#pragma once

#include "cli/app.h"

#include <functional>
#include <string>
#include <vector>

namespace sublet::cli {

struct Candidate {
  std::string word;
  std::string text;  // what it means, one line; may be ""
};

struct Completion {
  // What the shell itself knows better: it completes this, and `candidates` is empty.
  enum class Shell { nothing, files, directories, commands } shell = Shell::nothing;
  std::vector<Candidate> candidates;
};

// Names of things that only the daemon knows; empty when there is none.
using LookUp = std::function<std::vector<Candidate>(Offer::Of)>;

// `words`: what stands after "sublet", the last one being the word under the cursor (perhaps "").
Completion complete(const Tree& root, std::vector<std::string> words, const LookUp& look_up);

// The script that makes a shell ask: bash, zsh or fish. "" for another name.
std::string completion_script(std::string_view shell);

}  // namespace sublet::cli
