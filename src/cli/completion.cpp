// SPDX-License-Identifier: Apache-2.0
// `completion SHELL`, and the hidden verb that its scripts call.
#include "base/text.h"
#include "cli/app.h"
#include "cli/complete.h"
#include "cli/fetch.h"

#include <fmt/format.h>

#include <array>
#include <memory>

namespace sublet::cli {

namespace {

// Ids and tags of the leases that are there. Short, because somebody's fingers wait.
std::vector<Candidate> lease_names(const Common& common) {
  std::vector<Candidate> found;
  auto client = connect(common);
  if (!client) return found;
  const auto reply = client->call({"GET", "/v1/leases", {}, {}, {}}, std::chrono::seconds(2));
  if (!reply) return found;
  const auto body = client::parse(*reply);
  if (!body) return found;
  for (const auto& lease : list_at(*body, "leases")) {
    const std::string about = fmt::format("{} {}", text_at(lease, "consumer"), text_at(lease, "state"));
    found.push_back({text_at(lease, "id"), about});
    if (const std::string tag = text_at(lease, "tag"); !tag.empty()) found.push_back({tag, about});
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
  command.option("SHELL", *shell, "bash, zsh or fish").required().type("SHELL");
  return [shell] {
    const std::string script = completion_script(*shell);
    if (!script.empty()) return fmt::print("{}", script), kOk;
    static constexpr std::array<std::string_view, 3> known{"bash", "zsh", "fish"};
    return usage_error(
        fmt::format("no completion for the shell '{}'{}", printable(*shell), did_you_mean(*shell, known)),
        "there is one for bash, zsh and fish");
  };
}

int run_complete(const std::vector<std::string>& words) {
  const auto program = make_program();
  print(complete(program->app, words, [&] { return lease_names(program->common); }));
  return kOk;
}

}  // namespace sublet::cli
