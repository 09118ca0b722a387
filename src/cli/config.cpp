// SPDX-License-Identifier: Apache-2.0
// `config check` and `config show`: read a file as a daemon would.
#include "base/text.h"
#include "cli/config_file.h"
#include "cli/fetch.h"
#include "config/schema.h"

#include <fmt/format.h>

#include <filesystem>
#include <memory>

namespace sublet::cli {

namespace {

struct Choice {
  std::string file;
  std::string dir;
  bool system = false;
  bool origin = false;
};

// The file of the daemon that this user would reach: it is asked, if it is there.
Result<std::filesystem::path> which_file(const Choice& choice, const Common& common) {
  if (!choice.file.empty()) return std::filesystem::path(choice.file);
  if (!choice.dir.empty()) return config::file_in(choice.dir);
  if (choice.system) return config::system_file();
  auto client = connect(common);
  if (!client) return client.error();
  nlohmann::json status;
  if (const auto reply = client->call({"GET", "/v1/status", {}, {}, {}}, std::chrono::seconds(5))) {
    if (const auto body = client::parse(*reply)) status = *body;
  }
  auto file = config_file(client->endpoint(), status, client::names_daemon(common.host));
  if (file.empty())
    return bad_request("the daemon does not report which configuration file it reads", "name the file: --file FILE");
  return file;
}

config::Loaded load(const Choice& choice, const std::filesystem::path& file) {
  return choice.file.empty() ? config::load(file) : config::load_named(file);
}

int print_problems(const config::Loaded& loaded) {
  for (const auto& problem : loaded.problems) {
    fmt::print(stderr, "{}\n", visible(config::without_hint(problem)));
    if (!problem.hint.empty()) fmt::print(stderr, "  hint: {}\n", visible(problem.hint));
  }
  const auto count = loaded.problems.size();
  fmt::print(stderr, "sublet: {} problem{} in {}\n", count, count == 1 ? "" : "s", visible(loaded.file));
  return kBadConfig;
}

nlohmann::json problems_json(const config::Loaded& loaded) {
  auto list = nlohmann::json::array();
  for (const auto& problem : loaded.problems) {
    list.push_back({{"file", printable(problem.file)},
                    {"line", problem.line},
                    {"column", problem.column},
                    {"key", problem.key},
                    {"text", problem.text},
                    {"hint", problem.hint}});
  }
  return list;
}

int check(const Choice& choice, const Common& common) {
  const auto file = which_file(choice, common);
  if (!file) return fail(file.error());
  const auto loaded = load(choice, *file);
  if (common.json) {
    const nlohmann::json reply{
        {"file", printable(loaded.file)}, {"exists", loaded.file_exists}, {"problems", problems_json(loaded)}};
    fmt::print("{}\n", reply.dump());
    return loaded.problems.empty() ? kOk : kBadConfig;
  }
  if (!loaded.problems.empty()) return print_problems(loaded);
  if (!loaded.file_exists) fmt::print("{}: no such file, every key has its default\n", visible(loaded.file));
  else fmt::print("{}: ok, {} of {} keys set\n", visible(loaded.file), loaded.lines.size(), config::keys().size());
  return kOk;
}

void show_json(const config::Loaded& loaded) {
  const nlohmann::json reply{{"file", printable(loaded.file)},
                             {"exists", loaded.file_exists},
                             {"values", nlohmann::json::parse(config::values_json(loaded))}};
  fmt::print("{}\n", reply.dump());
}

int show_values(const Choice& choice, const Common& common) {
  const auto file = which_file(choice, common);
  if (!file) return fail(file.error());
  const auto loaded = load(choice, *file);
  if (!loaded.problems.empty()) return print_problems(loaded);
  if (!loaded.file_exists)
    say(common, fmt::format("{} does not exist: every key has its default", visible(loaded.file)));
  if (common.json) show_json(loaded);
  else fmt::print("{}", config::file_text(loaded, choice.origin));
  return kOk;
}

void add_choice(Command command, Choice& choice) {
  const Option file =
      command.option("--file,FILE", choice.file, "Check or print this file").type("FILE").offers(Offer::Of::files);
  const Option dir = command.option("--dir", choice.dir, "Use the file of the private daemon in DIR")
                         .type("DIR")
                         .offers(Offer::Of::directories);
  const Option system = command.flag("--system", choice.system, "Use the system's file");
  file.excludes(dir).excludes(system);
  dir.excludes(system);
}

}  // namespace

Action add_config(Command command, Common& common) {
  auto choice = std::make_shared<Choice>();
  const Command check_command = command.verb("check", "List the problems of the file; exit 78 if there are any");
  const Command show_command = command.verb("show", "Print the value of every key");
  show_command.flag("--origin", choice->origin, "Add where each value comes from");
  for (const Command& sub : {check_command, show_command}) {
    add_choice(sub, *choice);
    add_json(sub, common);
    add_common(sub, common);
  }
  command.footer(
      "Without a flag, the running daemon says which file it reads. If no daemon\n"
      "answers, the file that belongs to its socket is taken.");
  return [&common, choice, check_command, show_command] {
    if (check_command.parsed()) return check(*choice, common);
    if (show_command.parsed()) return show_values(*choice, common);
    return usage_error("config needs a verb: check or show", "for example: sublet config check");
  };
}

}  // namespace sublet::cli
