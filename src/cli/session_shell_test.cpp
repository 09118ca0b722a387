// SPDX-License-Identifier: Apache-2.0
#include "cli/session_shell.h"

#include <gtest/gtest.h>

namespace sublet::cli {
namespace {

TEST(NeedsTerminal, AShellWithoutWork) {
  using Command = std::vector<std::string>;
  for (const Command& command : {Command{"bash"},
                                 {"/bin/bash", "-l"},
                                 {"bash", "-i"},
                                 {"zsh", "-l"},
                                 {"python3", "-i"},
                                 {"tmux"},
                                 {"vim"},
                                 {"env", "bash"},
                                 {"/usr/bin/env", "-i", "A=1", "bash", "--norc"},
                                 {"R", "--vanilla"}})
    EXPECT_TRUE(needs_terminal(command)) << command.front() << " " << command.back();
  for (const Command& command : {Command{"./train.sh"},
                                 {"bash", "-c", "x"},
                                 {"bash", "-lc", "x"},
                                 {"bash", "train.sh"},
                                 {"env"},
                                 {"env", "A=1"},
                                 {"env", "A=1", "python3", "train.py"},
                                 {"python3", "-m", "http.server"},
                                 {"python3", "-mhttp.server"},
                                 {"python3", "--version"},
                                 {"R", "--file=a.R"},
                                 {"jupyter", "lab"}})
    EXPECT_FALSE(needs_terminal(command)) << command.front() << " " << command.back();
}

}  // namespace
}  // namespace sublet::cli
