// SPDX-License-Identifier: Apache-2.0
#include "cli/program_verb.h"

#include <fmt/format.h>
#include <memory>

namespace sublet::cli {

Action add_restart(Command command, Common& common) {
  auto tag = std::make_shared<std::string>();
  add_program_tag(command, common, *tag);
  command.footer(
      "A program that runs is ended first: SIGTERM, then SIGKILL after a grace period.\n"
      "Its memory stays reserved for the new start.");
  return [&common, tag] {
    return act_on_program(common, *tag, "/restart", nlohmann::json::object(), [&](const nlohmann::json& program) {
      if (flag_at(program, "stopping")) return fmt::format("{} is being ended, and starts again", *tag);
      return fmt::format("{}: {}", *tag, text_at(program, "state"));
    });
  };
}

}  // namespace sublet::cli
