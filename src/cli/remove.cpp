// SPDX-License-Identifier: Apache-2.0
#include "cli/program_verb.h"

#include <fmt/format.h>
#include <memory>

namespace sublet::cli {

Action add_remove(Command command, Common& common) {
  auto tag = std::make_shared<std::string>();
  auto keep = std::make_shared<bool>(false);
  add_program_tag(command, common, *tag);
  command.flag("--keep-running", *keep, "Do not end the program; it runs on under its lease, without ceiling");
  command.footer(
      "Sublet forgets the program and does not start it again. A program that runs is\n"
      "ended first: SIGTERM, then SIGKILL after a grace period.");
  return [&common, tag, keep] {
    nlohmann::json body = nlohmann::json::object();
    if (*keep) body["keep_running"] = true;
    return act_on_program(common, *tag, "/remove", body, [&](const nlohmann::json& program) {
      if (*keep)
        return fmt::format("{} is removed; a program that runs goes on under its lease, without ceiling and restarts",
                           *tag);
      if (flag_at(program, "stopping")) return fmt::format("{} is removed once its program has ended", *tag);
      return fmt::format("{} is removed", *tag);
    });
  };
}

}  // namespace sublet::cli
