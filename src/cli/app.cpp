// SPDX-License-Identifier: Apache-2.0
#include "cli/app.h"

#include "base/text.h"
#include "base/units.h"
#include "cli/foreign_words.h"
#include "cli/output.h"
#include "cli/screen.h"
#include "cli/shim_run.h"

#include <fmt/format.h>

#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace sublet::cli {

namespace {

// "sublet ps": what a person types to reach this verb.
std::string full_name(const CLI::App& app) {
  return app.get_parent() == nullptr ? "sublet" : full_name(*app.get_parent()) + " " + app.get_name();
}

// "ps" in a message that begins with "sublet:" already; of the program itself "sublet".
std::string short_name(const CLI::App& app) {
  const std::string name = full_name(app);
  return app.get_parent() == nullptr ? name : name.substr(name.find(' ') + 1);
}

std::string names_no_verb(const CLI::App& app) {
  return app.get_parent() == nullptr ? "there is no verb" : short_name(app) + " has no verb";
}

// Width of --help: the terminal's width, or a fixed width for a pipe.
std::size_t help_width() {
  const bool terminal = ::isatty(STDOUT_FILENO) == 1;
  return terminal ? std::max<std::size_t>(window_of(STDOUT_FILENO).columns, 20) : 80;
}

// Puts `what` into the left column and `text` into the right one, broken between words if needed.
std::string explained(const std::string& what, const std::string& text, std::size_t column) {
  const std::size_t width = help_width();
  column = std::min(column, width / 2);
  std::string out;
  for (const std::string& line : wrapped(what, width - 2)) out += fmt::format("{}  {}", out.empty() ? "" : "\n", line);
  std::size_t at = display_width(std::string_view(out).substr(out.rfind('\n') + 1));
  for (const std::string& line : wrapped(text, width - column)) {
    if (at >= column) {
      out += '\n';
      at = 0;
    }
    out += std::string(column - at, ' ') + line;
    at = width;
  }
  return out + "\n";
}

// "Usage: sublet why [flags] LEASE": CLI11's own line leaves out how the verb is reached.
class Formatter final : public CLI::Formatter {
 public:
  Formatter() {
    label("REQUIRED", "(required)");
    column_width(34);
  }
  // CLI11 puts two empty lines between some groups.
  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override {
    std::string help = CLI::Formatter::make_help(app, std::move(name), mode);
    for (std::size_t at; (at = help.find("\n\n\n")) != std::string::npos;) help.erase(at, 1);
    return help;
  }
  std::string make_usage(const CLI::App* app, std::string) const override { return usage_line(*app) + "\n"; }

  std::string make_description(const CLI::App* app) const override {
    return fmt::format("{}\n", fmt::join(wrapped(app->get_description(), help_width()), "\n"));
  }
  std::string make_option(const CLI::Option* option, bool is_positional) const override {
    return explained(make_option_name(option, is_positional) + make_option_opts(option), make_option_desc(option),
                     get_column_width());
  }
  std::string make_subcommand(const CLI::App* verb) const override {
    return explained(verb->get_display_name(true), verb->get_description(), get_column_width());
  }

  // CLI11 lists what a flag excludes in the order of addresses, which is another one with every parser.
  std::string make_option_opts(const CLI::Option* option) const override {
    const std::string text = CLI::Formatter::make_option_opts(option);
    const std::string label = " " + get_label("Excludes") + ":";
    if (option->get_excludes().empty()) return text;
    std::vector<std::string> names;
    for (const CLI::Option* other : option->get_excludes()) names.push_back(other->get_name());
    std::sort(names.begin(), names.end());
    return fmt::format("{} (not with {})", text.substr(0, text.rfind(label)), fmt::join(names, ", "));
  }
};

// The deepest verb that was recognised; the root if none.
const CLI::App& innermost(const CLI::App& app) {
  const auto parsed = app.get_subcommands();
  return parsed.empty() ? app : innermost(*parsed.back());
}

std::vector<std::string> verb_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* sub : app.get_subcommands({})) {
    if (!sub->get_group().empty()) names.push_back(sub->get_name());
  }
  return names;
}

std::vector<std::string> flag_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;
    for (const auto& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

std::string suggest(const std::string& word, const std::vector<std::string>& known) {
  const std::vector<std::string_view> views(known.begin(), known.end());
  return did_you_mean(word, views);
}

// The hint for a surplus word.
std::string extra_hint(const CLI::App& verb, const std::string& extra) {
  static const std::string digits = "0123456789";
  const auto& options = verb.get_options();
  const bool sized = std::any_of(options.begin(), options.end(),
                                 [](const CLI::Option* option) { return option->get_type_name() == "SIZE"; });
  if (sized && !extra.empty() && digits.find(extra.front()) == std::string::npos && parse_size("1" + extra))
    return fmt::format("write the number and its unit as one word: 4{}", printable(extra));
  if (verb.get_name() == "run")
    return fmt::format("put the program after '--': sublet run [flags] -- {}", printable(extra));
  return fmt::format("see: {} --help", full_name(verb));
}

// Refuses the first word that the parser did not recognise.
int refuse_extra(const CLI::App& verb, const std::string& extra) {
  const std::string name = full_name(verb);
  const std::string help = name + " --help";
  const std::string before = verb.get_parent() == nullptr ? "" : short_name(verb);
  const std::string hint(foreign_word_hint(before, extra.substr(0, extra.find('='))));
  if (extra.size() > 1 && extra[0] == '-') {
    const std::string flag = extra.substr(0, extra.find('='));
    if (const CLI::Option* known = verb.get_option_no_throw(flag); known != nullptr && !known->get_group().empty())
      return usage_error(fmt::format("{} must come after the verb", flag), fmt::format("{} {}", name, flag));
    const std::string guess = hint.empty() ? suggest(flag, flag_names(verb)) : "";
    return usage_error(fmt::format("{} has no flag '{}'{}", short_name(verb), printable(flag), guess),
                       hint.empty() ? "see: " + help : hint);
  }
  const auto names = verb_names(verb);
  if (names.empty()) {
    return usage_error(fmt::format("{} takes no further argument: '{}'", short_name(verb), printable(extra)),
                       extra_hint(verb, extra));
  }
  const auto later = verbs_not_yet();
  if (verb.get_parent() == nullptr && std::find(later.begin(), later.end(), extra) != later.end()) {
    return usage_error(fmt::format("'{}' is not in this version", extra),
                       "sublet --help lists the verbs of this version");
  }
  const std::string guess = hint.empty() ? suggest(extra, names) : "";
  return usage_error(fmt::format("{} '{}'{}", names_no_verb(verb), printable(extra), guess),
                     hint.empty() ? "see: " + help : hint);
}

// "session stop": the parser takes the second word for another verb of the program.
std::optional<int> refuse_second_verb(const CLI::App& app) {
  const auto parsed = app.get_subcommands();
  if (parsed.size() < 2 || parsed.front()->get_name() == "help") return std::nullopt;
  return refuse_extra(*parsed.front(), parsed[1]->get_name());
}

int refuse_parse(const CLI::App& app, const CLI::ParseError& error) {
  if (const auto refused = refuse_second_verb(app)) return *refused;
  const auto extras = app.remaining(true);
  const CLI::App& verb = innermost(app);
  if (!extras.empty()) return refuse_extra(verb, extras.front());
  // A message of ours may carry its own hint in a second line.
  const std::string message = error.what();
  const auto newline = message.find('\n');
  if (newline != std::string::npos) return usage_error(message.substr(0, newline), message.substr(newline + 1));
  const std::string hint = "see: " + full_name(verb) + " --help";
  // "--vram: At Most 1 required but received 2".
  if (const auto twice = message.find(": At Most 1 required"); twice != std::string::npos)
    return usage_error(message.substr(0, twice) + " is given twice", "leave one of the two out");
  if (const auto missing = message.find(" is required"); missing != std::string::npos) {
    return usage_error(fmt::format("{} needs {}", short_name(verb), message.substr(0, missing)), hint);
  }
  if (const auto between = message.find(" excludes "); between != std::string::npos) {
    return usage_error(
        fmt::format("{} and {} cannot both be given", message.substr(0, between), message.substr(between + 10)),
        "leave one of the two out");
  }
  // "--json=3", of a flag that is there or is not.
  if (message.find("flag override") != std::string::npos)
    return usage_error(fmt::format("--{} takes no value", message.substr(0, message.find(' '))), hint);
  // "--vram: 1 required SIZE missing", of a flag without its value.
  if (const auto missing = message.find(": 1 required "); missing != std::string::npos) {
    const std::string rest = message.substr(missing + 13);
    return usage_error(fmt::format("{} needs a value: {}", message.substr(0, missing), rest.substr(0, rest.find(' '))),
                       hint);
  }
  return usage_error(message, hint);
}

void add_verb(Program& program, const Verb& verb) {
  CLI::App* sub = program.app.add_subcommand(std::string(verb.name), std::string(verb.summary));
  sub->group(std::string(verb.group));
  sub->set_help_flag("-h,--help", "Print this help and exit")->group("Common");
  sub->set_version_flag("--version", "sublet " SUBLET_VERSION)->group("");
  program.actions[std::string(verb.name)] = verb.add(Command(*sub), program.common);
  add_common(Command(*sub), program.common);
}

void add_help(Program& program) {
  CLI::App* sub = program.app.add_subcommand("help", "Print the help of a verb");
  sub->group("Set up");
  CLI::Option* verb = sub->add_option("VERB")->description("The verb, and its own verb after it");
  Option(verb, sub).offers(Offer::Of::verbs);
  program.actions["help"] = [] {
    return usage_error("the word 'help' must come before the verb", "sublet help VERB, or: sublet VERB --help");
  };
}

// "help token create" is "token create --help": the parser would take the second word for a second verb, whatever
// stands before it. Words that begin as flags do are left to it.
std::optional<int> rewrite_help(const CLI::App& app, std::vector<const char*>& words) {
  if (words.size() < 2 || std::string_view(words[1]) != "help") return std::nullopt;
  const auto is_flag = [](std::string_view word) { return word.starts_with('-'); };
  if (std::any_of(words.begin() + 2, words.end(), is_flag)) return std::nullopt;
  const CLI::App* verb = &app;
  for (auto word = words.begin() + 2; word != words.end(); ++word) {
    const auto named = verb->get_subcommands([&](const CLI::App* sub) { return sub->get_name() == *word; });
    if (named.empty()) return refuse_extra(*verb, *word);
    verb = named.front();
  }
  words.erase(words.begin() + 1);
  words.push_back("--help");
  return std::nullopt;
}

// Data that could not be written is a failure, also when it is found only at the end.
int flush(int code) {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
  print_error("standard output cannot be written", "check that the disk has space and that the reader still runs");
  return code == kOk ? kFailed : code;
}

}  // namespace

std::string usage_line(const CLI::App& app) {
  std::string usage = "Usage: " + full_name(app) + " [flags]";
  const auto shown = [](const CLI::App* sub) { return !sub->get_group().empty(); };
  if (!app.get_subcommands(shown).empty()) usage += " VERB";
  for (const CLI::Option* option : app.get_options()) {
    if (!option->get_positional() || option->get_group().empty()) continue;
    const std::string name = option->get_name(true) + (option->get_expected_max() > 1 ? "..." : "");
    usage += option->get_required() ? " " + name : " [" + name + "]";
  }
  if (app.get_name() == "run") usage += " -- PROGRAM [ARGUMENT...]";
  return usage;
}

std::unique_ptr<Program> make_program(std::string_view only) {
  auto program = std::make_unique<Program>();
  CLI::App& app = program->app;
  app.formatter(std::make_shared<Formatter>());
  app.set_help_flag("-h,--help", "Print this help and exit")->group("Common");
  app.set_version_flag("--version", "sublet " SUBLET_VERSION, "Print the version and exit")->group("Common");
  add_json(Command(app), program->common);
  add_common(Command(app), program->common);
  for (const Verb& verb : verbs())
    if (only.empty() || verb.name == only) add_verb(*program, verb);
  add_help(*program);
  app.footer(
      "Help for one verb: sublet VERB --help. Exit codes: 0 ok, 1 failed, 2 usage, 4\n"
      "not found, 69 no daemon, 75 would have to wait, 77 not allowed, 78\n"
      "bad configuration.");
  return program;
}

int run_program(int argc, const char* const* argv) {
  if (argc > 1 && std::string_view(argv[1]).substr(0, 2) == "__") {
    std::vector<std::string> words(argv + 2, argv + argc);
    if (std::string_view(argv[1]) == "__shim") return run_shim(words);
    if (!words.empty() && words.front() == "--") words.erase(words.begin());
    if (std::string_view(argv[1]) == "__complete") return flush(run_complete(words));
    if (std::string_view(argv[1]) == "__reference") return flush(run_reference(words));
  }
  // Each task of Slurm waits for this verb, and the tree of all verbs takes longer than the program's start.
  const bool in_task = argc > 2 && std::string_view(argv[1]) == "slurm" && std::string_view(argv[2]) == "lease";
  const auto program = make_program(in_task ? "slurm" : "");
  CLI::App& app = program->app;
  // The words after "--" belong to another program; the parser would split some of them ("[1,2]" becomes two words).
  const auto mark = std::find(argv + 1, argv + argc, std::string_view("--"));
  if (mark != argv + argc) program->common.command.emplace(mark + 1, argv + argc);
  std::vector<const char*> words(argv, mark);
  if (const auto refused = rewrite_help(app, words)) return *refused;
  try {
    app.parse(static_cast<int>(words.size()), words.data());
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", app.help());
    return flush(kOk);
  } catch (const CLI::CallForVersion& version) {
    fmt::print("{}\n", version.what());
    return flush(kOk);
  } catch (const CLI::ParseError& error) {
    return refuse_parse(app, error);
  }
  const auto parsed = app.get_subcommands();
  if (parsed.empty()) return usage_error("no verb was given", "see: sublet --help");
  if (const auto refused = refuse_second_verb(app)) return *refused;
  const CLI::App& verb = innermost(app);
  if (program->common.command && full_name(verb) != "sublet run" && full_name(verb) != "sublet session open") {
    return usage_error(fmt::format("{} takes no program after '--'", full_name(verb)),
                       "only run and session open take a program: sublet run [flags] -- PROGRAM");
  }
  try {
    program->common.verb = short_name(innermost(app));
    return flush(program->actions.at(parsed.front()->get_name())());
  } catch (const std::exception& error) {  // out of memory, or a bug of ours
    print_error(error.what(), "this is a bug of Sublet: report it with the command that you typed");
    return kFailed;
  }
}

}  // namespace sublet::cli
