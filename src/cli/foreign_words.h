// SPDX-License-Identifier: Apache-2.0
// Verbs and flags of other tools, and how Sublet calls them.
#pragma once

#include <string_view>

namespace sublet::cli {

// The way in which Sublet does what `word` does elsewhere, as a hint; "": not known. `verb`: the verb before the word,
// such as "stack"; "": none.
std::string_view foreign_word_hint(std::string_view verb, std::string_view word);

}  // namespace sublet::cli
