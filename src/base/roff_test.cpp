// SPDX-License-Identifier: Apache-2.0
#include "base/roff.h"

#include <gtest/gtest.h>

namespace sublet {
namespace {

TEST(Roff, WhatRoffWouldReadAsItsOwnIsPrintedAsItStands) {
  EXPECT_EQ(roff_escaped("a\\b -c `d` ~e ^f"), "a\\eb \\-c \\(gad\\(ga \\(tie \\(haf");
}

TEST(Roff, AWordInBackticksIsBold) {
  ManPage page("sublet-run", 1, "Run a program");
  page.paragraph("see `sublet ps` or\nask");
  EXPECT_NE(page.text().find("\nsee \\fBsublet ps\\fR or ask\n"), std::string::npos) << page.text();
  EXPECT_TRUE(page.text().starts_with(".TH \"SUBLET\\-RUN\" 1 ")) << page.text();
}

TEST(Roff, NoTextBecomesAMacro) {
  ManPage page("x", 1, "y");
  page.paragraph(".SH not a heading");
  page.item("'tag", ".text");
  page.verbatim("first\n.second\n\n'third");
  for (const char* line : {"\n\\&.SH not a heading\n", "\n\\&'tag\n\\&.text\n", "\n\\&.second\n\n\\&'third\n"}) {
    EXPECT_NE(page.text().find(line), std::string::npos) << line << page.text();
  }
}

}  // namespace
}  // namespace sublet
