// SPDX-License-Identifier: Apache-2.0
#include "cli/fetch.h"
#include "cli/program_verb.h"

#include <fmt/format.h>
#include <memory>

namespace sublet::cli {
namespace {

using nlohmann::json;

struct RemoveFlags {
  ProgramChoice choice;
  bool keep = false, no_wait = false;
};

std::string removed_words(const std::string& tag, const RemoveFlags& flags, bool ends) {
  if (flags.keep)
    return fmt::format("{} is removed; a program that runs goes on under its lease, without ceiling and restarts", tag);
  return fmt::format("{} is removed{}", tag, ends && flags.no_wait ? " once its program has ended" : "");
}

int finish(const Common& common, const RemoveFlags& flags, client::Client& client, const std::string& tag,
           const Supervised& asked) {
  const bool ends = !flags.keep && flag_at(asked.body, "stopping");
  if (ends && !flags.no_wait) {
    tell_resumed_first(common, tag, asked.body);
    // Somebody may add a program with this tag at once.
    const std::string created = text_at(asked.body, "created_at");
    const auto starts = number_at(asked.body, "starts");
    const auto is_another = [&](const json& now) { return text_at(now, "created_at") != created; };
    const auto is_over = [&](const json& now) { return is_another(now) || number_at(now, "starts") > starts; };
    const auto gone = wait_for_program(common, client, tag, is_over);
    if (!gone && !is_no_program(gone.error())) return fail(common, gone.error());
    if (gone && !is_another(gone->body)) {
      print_error(visible(tag + " is not removed: it was started again meanwhile"),
                  visible(fmt::format("see: sublet status {0}; or remove it again: sublet remove {0}", tag)));
      return kFailed;
    }
  }
  if (common.json) fmt::print("{}\n", asked.reply.text);
  else say(common, visible(removed_words(tag, flags, ends)));
  return kOk;
}

}  // namespace

Action add_remove(Command command, Common& common) {
  auto flags = std::make_shared<RemoveFlags>();
  add_program_tags(command, common, flags->choice);
  command.flag("--keep-running", flags->keep, "Do not end the program; it runs on under its lease, without ceiling");
  command.flag("--no-wait", flags->no_wait, "Do not wait until the program has ended");
  command.footer(
      "Sublet forgets the program and does not start it again. A program that runs is\n"
      "ended first: SIGTERM, then SIGKILL after a grace period. Then its tag is free.");
  return [&common, flags] {
    if (const auto wrong = check_choice(flags->choice, "remove")) return *wrong;
    const json body = flags->keep ? json{{"keep_running", true}} : json::object();
    return act_on_programs(common, flags->choice, "/remove", body,
                           [&](client::Client& client, const std::string& tag, const Supervised& asked) {
                             return finish(common, *flags, client, tag, asked);
                           });
  };
}

}  // namespace sublet::cli
