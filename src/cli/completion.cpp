// SPDX-License-Identifier: Apache-2.0
// `completion SHELL`, and the hidden verb that its scripts call.
#include "base/text.h"
#include "cli/app.h"
#include "cli/complete.h"
#include "cli/fetch.h"
#include "cli/shims.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>

namespace sublet::cli {

namespace {

// Where the things are listed, and which of their fields name them and say what they are.
struct Listed {
  const char* target;
  const char* rows;
  std::array<const char*, 2> names;
  std::array<const char*, 2> about;
};

constexpr Listed live_leases{"/v1/leases", "leases", {"id", "tag"}, {"consumer", "state"}};
// The newest of those that have ended come first behind those that live.
constexpr Listed all_leases{"/v1/leases?all=true&limit=200", "leases", {"id", "tag"}, {"consumer", "state"}};
constexpr Listed programs{"/v1/programs", "programs", {"tag", ""}, {"state", "command"}};
constexpr Listed devices{"/v1/devices", "devices", {"id", "uuid"}, {"name", "state"}};
constexpr Listed consumers{"/v1/consumers", "consumers", {"consumer", ""}, {"", ""}};
constexpr Listed tokens{"/v1/tokens", "tokens", {"id", ""}, {"name", "scope"}};
constexpr Listed tenants{"/v1/tenants", "tenants", {"name", ""}, {"parent", ""}};
constexpr Listed stacks{"/v1/stacks", "stacks", {"name", ""}, {"state", "user"}};
constexpr Listed sessions{"/v1/sessions?all=true", "sessions", {"id", ""}, {"state", "command"}};

std::vector<const Listed*> listed(Offer::Of of) {
  switch (of) {
    case Offer::Of::leases: return {&live_leases};
    case Offer::Of::all_leases: return {&all_leases};
    case Offer::Of::programs: return {&programs};
    case Offer::Of::leases_and_programs: return {&programs, &live_leases};
    case Offer::Of::devices: return {&devices};
    case Offer::Of::consumers: return {&consumers};
    case Offer::Of::tokens: return {&tokens};
    case Offer::Of::tenants: return {&tenants};
    case Offer::Of::stacks: return {&stacks};
    case Offer::Of::sessions: return {&sessions};
    default: return {};
  }
}

void add_rows(const nlohmann::json& body, const Listed& where, std::vector<Candidate>& found) {
  for (const auto& row : list_at(body, where.rows)) {
    if (member(row, "own").is_boolean() && !flag_at(row, "own")) continue;
    const std::string about = fmt::format("{} {}", text_at(row, where.about[0]), text_at(row, where.about[1]));
    for (const char* field : where.names) {
      const std::string name = text_at(row, field);
      const auto same = [&](const Candidate& candidate) { return candidate.word == name; };
      if (!name.empty() && std::none_of(found.begin(), found.end(), same)) found.push_back({name, about});
    }
  }
}

// The daemon gets only a moment to answer, because a person is typing.
std::vector<Candidate> look_up(const Common& common, Offer::Of of) {
  std::vector<Candidate> found;
  if (of == Offer::Of::shims)
    for (const KnownShim& shim : known_shims()) found.push_back({shim.name(), shim.directory()});
  const auto wanted = listed(of);
  auto client = connect(common);
  if (wanted.empty() || !client) return found;
  for (const Listed* where : wanted) {
    const auto reply = client->call({"GET", where->target, {}, {}, {}}, std::chrono::seconds(2));
    if (!reply) continue;
    if (const auto body = client::parse(*reply)) add_rows(*body, *where, found);
  }
  return found;
}

void print(const Completion& completion) {
  switch (completion.shell) {
    case Completion::Shell::files: return fmt::print(":files\n");
    case Completion::Shell::directories: return fmt::print(":directories\n");
    case Completion::Shell::commands: return fmt::print(":commands\n");
    case Completion::Shell::nothing: break;
  }
  for (const Candidate& candidate : completion.candidates) {
    fmt::print("{}\t{}\n", visible(candidate.word), visible(candidate.text));
  }
}

}  // namespace

Action add_completion(Command command, Common&) {
  auto shell = std::make_shared<std::string>();
  command.option("SHELL", *shell, "bash, zsh or fish")
      .required()
      .type("SHELL")
      .offers({Offer::Of::words, {"bash", "zsh", "fish"}});
  return [shell] {
    const std::string script = completion_script(*shell);
    if (!script.empty()) return fmt::print("{}", script), kOk;
    static constexpr std::array<std::string_view, 3> known{"bash", "zsh", "fish"};
    return usage_error(
        fmt::format("there is no completion for the shell '{}'{}", printable(*shell), did_you_mean(*shell, known)),
        "supported shells: bash, zsh, fish");
  };
}

int run_complete(const std::vector<std::string>& words) {
  const auto program = make_program();
  print(complete(program->app, words, [&](Offer::Of of) { return look_up(program->common, of); }));
  return kOk;
}

}  // namespace sublet::cli
