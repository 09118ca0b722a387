// SPDX-License-Identifier: Apache-2.0
// Manual pages in the macros of man(7). The programs write their pages from the tables that also make their --help, so
// that the two agree. Values, no I/O, any thread.
#pragma once

#include <string>
#include <string_view>

namespace sublet {

class ManPage {
 public:
  // Starts a page: "sublet-run", 1, and the summary for NAME, "Run a program under a lease". The page carries no date.
  ManPage(std::string_view name, int section, std::string_view summary);

  void heading(std::string_view title);  // "EXIT STATUS"
  // Adds a paragraph. Words between `backticks` become bold; a line break becomes a blank.
  void paragraph(std::string_view text);
  // Adds a line that ends as written, such as a synopsis. `Backticks` as above.
  void line(std::string_view text);
  // Adds a list item: a tag such as "`-m`, `--vram` SIZE", and its meaning.
  void item(std::string_view tag, std::string_view text);
  // Adds an example as it stands, with its line breaks.
  void verbatim(std::string_view text);

  const std::string& text() const { return text_; }

 private:
  std::string text_;
  bool fresh_ = true;  // nothing follows the last heading yet

  void part(std::string_view macro);
};

// Returns plain text with escapes, so that roff prints it unchanged.
std::string roff_escaped(std::string_view text);

}  // namespace sublet
