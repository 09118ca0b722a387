// SPDX-License-Identifier: Apache-2.0
#include "cli/session_shell.h"

#include "cli/fetch.h"
#include "cli/render.h"
#include "cli/session_wait.h"
#include "cli/talk.h"
#include "keep/environment.h"
#include "keep/keeper.h"
#include "keep/limits.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>

namespace sublet::cli {

namespace {

std::string_view base_name(std::string_view path) { return path.substr(path.rfind('/') + 1); }

// An option with which a shell or an interpreter reads no commands: -c, -lc, -mhttp.server, --file=FILE, --version.
bool gives_work(std::string_view option) {
  if (option == "-V" || option == "-h" || option == "--version" || option == "--help") return true;
  return option.starts_with("--") ? option.find('=') != option.npos : option.find_first_of("cm") != option.npos;
}

}  // namespace

bool needs_terminal(const std::vector<std::string>& command) {
  constexpr std::array interactive{"bash",    "sh", "dash",  "zsh",  "fish",   "ksh", "tcsh", "python3", "python",
                                   "ipython", "R",  "julia", "tmux", "screen", "vim", "vi",   "nvim",    "nano"};
  auto word = command.begin();
  if (word != command.end() && base_name(*word) == "env") {
    const auto is_of_env = [](const std::string& text) {
      return text.starts_with('-') || text.find('=') != std::string::npos;
    };
    word = std::find_if_not(word + 1, command.end(), is_of_env);
  }
  if (word == command.end() || !std::ranges::count(interactive, base_name(*word))) return false;
  return std::all_of(word + 1, command.end(),
                     [](const std::string& text) { return text.starts_with('-') && !gives_work(text); });
}

int run_in_terminal(const Common& common, client::Client client, const nlohmann::json& session,
                    const nlohmann::json& status, const std::vector<std::string>& command) {
  const std::string id = text_at(session, "id"), token = text_at(session, "token");
  Look look = look_for(common);
  learn_devices(status, look);
  const auto limits = keep::raise_limits();
  keep::Signals signals;
  keep::Events events;
  client.set_interrupt(events.interrupt());
  Talk talk(common, -1, common.json, look);
  const auto reply = client.get("/v1/leases/" + client::encode(text_at(session, "lease")));
  auto lease = reply ? client::parse_lease(reply->text) : client::Answer<client::Lease>(reply.error());
  if (!lease) {  // the program does not begin
    client::Client another(client.endpoint());
    (void)another.post(session_target(id, "/close"), {{"park", false}});
    return fail(common, lease.error());
  }
  talk.say(fmt::format("{}: {} until the program ends", session_phrase(session, look), command.front()));
  ::setenv("SUBLET_SESSION", id.c_str(), 1);
  const keep::Launch launch{command, keep::program_environment(environ, client.endpoint(), *lease, status), limits};
  keep::Keeper keeper(client, events, signals, talk.listener(), std::move(*lease), token);
  const keep::Outcome outcome = keeper.run(launch);
  if (outcome.interrupted_by != 0) {
    std::fflush(nullptr);
    signals.die_of(outcome.interrupted_by);
  }
  return outcome.code;
}

}  // namespace sublet::cli
