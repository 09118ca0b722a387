// SPDX-License-Identifier: Apache-2.0
// `start` and `restart` of supervised programs.
#include "cli/fetch.h"
#include "cli/program_verb.h"

#include <fmt/format.h>
#include <memory>
#include <utility>

namespace sublet::cli {
namespace {

struct StartFlags {
  ProgramChoice choice;
  bool no_wait = false;
};

int finish(const Common& common, const StartFlags& flags, client::Client& client, const std::string& tag,
           Supervised asked) {
  if (flags.no_wait) {
    if (common.json) fmt::print("{}\n", asked.reply.text);
    else if (flag_at(asked.body, "stopping"))
      say(common, visible(fmt::format("{} is being ended, and starts again", tag)));
    else say(common, visible(fmt::format("{}: {}", tag, text_at(asked.body, "state"))));
    return kOk;
  }
  const auto started = wait_for_start(common, client, tag, std::move(asked));
  return started ? tell_started(common, tag, *started) : fail(common, started.error());
}

Action add_call(const Command& command, Common& common, const char* verb) {
  auto flags = std::make_shared<StartFlags>();
  add_program_tags(command, common, flags->choice);
  command.flag("--no-wait", flags->no_wait, "Do not wait until the program has started");
  return [&common, flags, verb] {
    if (const auto wrong = check_choice(flags->choice, verb)) return *wrong;
    return act_on_programs(common, flags->choice, fmt::format("/{}", verb), nlohmann::json::object(),
                           [&](client::Client& client, const std::string& tag, Supervised asked) {
                             return finish(common, *flags, client, tag, std::move(asked));
                           });
  };
}

}  // namespace

Action add_restart(Command command, Common& common) {
  command.footer(
      "A program that runs is ended first: SIGTERM, then SIGKILL after a grace period.\n"
      "Its memory stays reserved for the new start. A program that does not run\n"
      "is started.");
  return add_call(command, common, "restart");
}

Action add_start(Command command, Common& common) {
  command.footer(
      "A program that was stopped, has ended or has failed is started. A program that\n"
      "runs is left alone.");
  return add_call(command, common, "start");
}

}  // namespace sublet::cli
