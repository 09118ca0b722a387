// SPDX-License-Identifier: Apache-2.0
// Pages of the manual, in the macros of man(7). The programs write their pages from the tables that also make their
// --help, so that the two cannot tell different stories. Values, no I/O, any thread.
#pragma once

#include <string>
#include <string_view>

namespace sublet {

class ManPage {
 public:
  // "sublet-run", 1, "Run a program under a lease": what NAME says. The page carries no date: it is as old as the
  // program that prints it.
  ManPage(std::string_view name, int section, std::string_view summary);

  void heading(std::string_view title);  // "EXIT STATUS"
  // Words between `backticks` come out bold; a line break is a blank.
  void paragraph(std::string_view text);
  // A line that ends as written: a synopsis. `Backticks` as above.
  void line(std::string_view text);
  // "`-m`, `--vram` SIZE" and what it means.
  void item(std::string_view tag, std::string_view text);
  // An example: as it stands, line breaks too.
  void verbatim(std::string_view text);

  const std::string& text() const { return text_; }

 private:
  std::string text_;
  bool fresh_ = true;  // nothing stands below the heading yet: it parts what follows from what was before

  void part(std::string_view macro);
};

// Plain text as roff would print it unchanged: escapes, control characters at the start of a line.
std::string roff_escaped(std::string_view text);

}  // namespace sublet
