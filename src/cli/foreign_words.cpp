// SPDX-License-Identifier: Apache-2.0
#include "cli/foreign_words.h"

namespace sublet::cli {
namespace {

struct Foreign {
  std::string_view verb, word, hint;
};

constexpr std::string_view remove_hint =
    "sublet remove TAG ends a supervised program and forgets it; sublet release LEASE ends a lease";
constexpr std::string_view stop_hint = "sublet stop TAG ends the program of a lease or tag";
constexpr std::string_view list_hint =
    "sublet ps lists leases, sublet programs lists programs, sublet session ls and sublet stack ls the others";
constexpr std::string_view run_hint = "sublet run -- PROGRAM runs a program under a lease, sublet hold only holds one";
constexpr std::string_view up_hint = "sublet stack acquire STACK starts it";
constexpr std::string_view down_hint = "sublet stack release --down STACK brings it down";
constexpr std::string_view close_hint = "sublet session close SESSION ends it";
constexpr std::string_view open_hint = "sublet session open --vram SIZE opens one";

constexpr std::string_view replace_hint =
    "sublet run --detach --replace --tag TAG [flags] -- PROGRAM starts a program of this tag with other flags";

constexpr Foreign all[] = {
    {"", "rm", remove_hint},
    {"", "delete", remove_hint},
    {"", "del", remove_hint},
    {"", "kill", stop_hint},
    {"", "cancel", "sublet stop TAG ends a program, also one that waits; sublet release LEASE ends a lease"},
    {"", "scancel", "sublet stop TAG ends a program, also one that waits; sublet release LEASE ends a lease"},
    {"", "terminate", stop_hint},
    {"", "list", list_hint},
    {"", "ls", list_hint},
    {"", "squeue", "sublet queue lists waiting leases"},
    {"", "srun", run_hint},
    {"", "exec", run_hint},
    {"", "submit", "sublet run --detach --tag TAG -- PROGRAM hands a program to the daemon"},
    {"", "sbatch", "sublet run --detach --tag TAG -- PROGRAM hands a program to the daemon"},
    {"", "acquire", run_hint},
    {"", "reserve", run_hint},
    {"", "show", "sublet status TAG shows a program or a lease"},
    {"", "inspect", "sublet status TAG shows a program or a lease"},
    {"", "info", "sublet status shows the daemon and the devices"},
    {"stack", "up", up_hint},
    {"stack", "start", up_hint},
    {"stack", "down", down_hint},
    {"stack", "stop", down_hint},
    {"stack", "ps", "sublet stack status STACK shows it"},
    {"stack", "show", "sublet stack status STACK shows it"},
    {"stack", "list", "sublet stack ls lists them"},
    {"session", "stop", close_hint},
    {"session", "end", close_hint},
    {"session", "kill", close_hint},
    {"session", "rm", close_hint},
    {"session", "start", open_hint},
    {"session", "new", open_hint},
    {"session", "status", "sublet session show SESSION shows it"},
    {"session", "list", "sublet session ls lists them"},
    {"session", "ps", "sublet session ls lists them"},
    {"session open", "--time", "--ttl is the time to live: sublet session open --ttl 30m"},
    {"session open", "--timeout", "--ttl is the time to live, --wait the time in the queue"},
    {"logs", "--tail", "-n prints the last lines: sublet logs -n 20 TAG"},
    {"session logs", "--tail", "-n prints the last lines: sublet session logs -n 20 SESSION"},
    {"stack logs", "--tail", "-n prints the last lines: sublet stack logs -n 20 STACK"},
    {"update", "--gpu", replace_hint},
    {"update", "--gpus", replace_hint},
    {"update", "--env", replace_hint},
    {"update", "--pausable", replace_hint},
    {"run", "-d", "--detach hands the program to the daemon: sublet run --detach --tag TAG -- PROGRAM"},
};

}  // namespace

std::string_view foreign_word_hint(std::string_view verb, std::string_view word) {
  for (const Foreign& each : all)
    if (each.verb == verb && each.word == word) return each.hint;
  return {};
}

}  // namespace sublet::cli
