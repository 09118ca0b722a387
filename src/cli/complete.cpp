// SPDX-License-Identifier: Apache-2.0
#include "cli/complete.h"

#include "cli/output.h"
#include "cli/render.h"

#include <CLI/CLI.hpp>

#include <algorithm>

namespace sublet::cli {

namespace {

bool starts_with(std::string_view text, std::string_view start) { return text.substr(0, start.size()) == start; }

bool takes_value(const CLI::Option& option) {
  return option.get_type_size() > 0 && option.get_items_expected_min() > 0;
}

const CLI::Option* find_flag(const CLI::App& app, const std::string& word) {
  for (const CLI::Option* option : app.get_options()) {
    if (!option->get_positional() && option->check_name(word)) return option;
  }
  return nullptr;
}

const CLI::App* find_verb(const CLI::App& app, const std::string& word) {
  for (const CLI::App* sub : app.get_subcommands({})) {
    if (sub->check_name(word)) return sub;
  }
  return nullptr;
}

// The values of an option or positional.
Completion values_of(const Tree& tree, const CLI::App& app, const CLI::Option& option, const LookUp& look_up) {
  const auto found = tree.offers.find(&option);
  const Offer offer = found == tree.offers.end() ? Offer{} : found->second;
  Completion result;
  for (const std::string& word : offer.words) result.candidates.push_back({word, {}});
  switch (offer.of) {
    case Offer::Of::nothing:
    case Offer::Of::words: break;
    case Offer::Of::files: return {Completion::Shell::files, {}};
    case Offer::Of::directories: return {Completion::Shell::directories, {}};
    case Offer::Of::columns:
      for (const Column& column : columns_of(app.get_name()))
        result.candidates.push_back({std::string(column.name), {}});
      break;
    case Offer::Of::verbs:
      for (const Verb& verb : verbs()) result.candidates.push_back({std::string(verb.name), std::string(verb.summary)});
      break;
    default:
      for (Candidate& candidate : look_up(offer.of)) result.candidates.push_back(std::move(candidate));
  }
  return result;
}

// Where the words before the cursor lead: the verb, how many positionals are given, a flag that waits for its value.
struct Place {
  const CLI::App* app;
  std::size_t positionals = 0;
  const CLI::Option* wants_value = nullptr;
  bool only_positionals = false;  // after "--"
};

Place walk(const CLI::App& root, const std::vector<std::string>& before) {
  Place place{&root, 0, nullptr, false};
  for (const std::string& word : before) {
    if (place.wants_value != nullptr) {
      place.wants_value = nullptr;
    } else if (word == "--") {
      place.only_positionals = true;
    } else if (!place.only_positionals && word.size() > 1 && word[0] == '-') {
      const CLI::Option* option = find_flag(*place.app, word);  // "--flag=value" is no flag's name
      if (option != nullptr && takes_value(*option)) place.wants_value = option;
    } else if (const CLI::App* sub = find_verb(*place.app, word); sub != nullptr && place.positionals == 0) {
      place.app = sub;
    } else {
      ++place.positionals;
    }
  }
  return place;
}

std::vector<Candidate> flags_of(const CLI::App& app) {
  std::vector<Candidate> found;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;
    for (const auto& name : option->get_lnames()) found.push_back({"--" + name, option->get_description()});
  }
  return found;
}

Completion next_word(const Tree& tree, const Place& place, const LookUp& look_up) {
  // Behind "--" stands a program, and what follows is that program's business.
  if (place.only_positionals) {
    return {place.positionals == 0 ? Completion::Shell::commands : Completion::Shell::files, {}};
  }
  Completion result;
  for (const CLI::App* sub : place.app->get_subcommands({})) {
    if (!sub->get_group().empty()) result.candidates.push_back({sub->get_name(), sub->get_description()});
  }
  if (!result.candidates.empty()) return result;
  std::size_t index = 0;
  for (const CLI::Option* option : place.app->get_options()) {
    if (!option->get_positional()) continue;
    const bool many = option->get_items_expected_max() > 1;
    if (index == place.positionals || many) return values_of(tree, *place.app, *option, look_up);
    ++index;
  }
  return result;
}

}  // namespace

Completion complete(const Tree& root, std::vector<std::string> words, const LookUp& look_up) {
  // bash takes "--flag=value" apart into three words.
  std::string current = words.empty() ? "" : words.back();
  if (!words.empty()) words.pop_back();
  if (current == "=") current.clear();
  std::erase(words, "=");

  const Place place = walk(root, words);
  Completion result;
  std::string prefix;  // what stands before the value in the same word
  const CLI::Option* list_of = place.wants_value;
  if (place.wants_value != nullptr) {
    result = values_of(root, *place.app, *place.wants_value, look_up);
  } else if (!place.only_positionals && starts_with(current, "-")) {
    const auto equals = current.find('=');
    const CLI::Option* option =
        equals == std::string::npos ? nullptr : find_flag(*place.app, current.substr(0, equals));
    if (option != nullptr && takes_value(*option)) {
      prefix = current.substr(0, equals + 1);
      result = values_of(root, *place.app, *option, look_up);
      list_of = option;
    } else {
      result.candidates = flags_of(*place.app);
    }
  } else {
    result = next_word(root, place, look_up);
  }
  // "id,na": the word after the last comma is the one that is being written.
  const auto offer = root.offers.find(list_of);
  if (const auto comma = current.rfind(',');
      offer != root.offers.end() && offer->second.list && comma != std::string::npos)
    prefix = current.substr(0, comma + 1);
  for (Candidate& candidate : result.candidates) candidate.word = prefix + candidate.word;
  std::erase_if(result.candidates, [&](const Candidate& candidate) { return !starts_with(candidate.word, current); });
  return result;
}

// The scripts only carry words to `sublet __complete` and its answer back: one line a candidate, "WORD\tTEXT", or one
// line ":files", ":directories", ":commands" for what the shell does better.
std::string completion_script(std::string_view shell) {
  if (shell == "bash") {
    return R"SH(# bash completion of sublet. Load it: eval "$(sublet completion bash)"
_sublet() {
  local current=${COMP_WORDS[COMP_CWORD]} line
  COMPREPLY=()
  [[ $current == '=' ]] && current=
  while IFS= read -r line; do
    case $line in
      :files) compopt -o default; return ;;
      :directories) compopt -o dirnames; COMPREPLY=(); return ;;
      :commands) mapfile -t COMPREPLY < <(compgen -c -- "$current"); return ;;
      *) COMPREPLY+=("${line%%$'\t'*}") ;;
    esac
  done < <(sublet __complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -F _sublet sublet
)SH";
  }
  if (shell == "zsh") {
    return R"SH(#compdef sublet
# zsh completion of sublet. Load it: source <(sublet completion zsh)
_sublet() {
  local line word text
  local -a found
  while IFS= read -r line; do
    case $line in
      :files) _files; return ;;
      :directories) _files -/; return ;;
      :commands) _command_names -e; return ;;
    esac
    word=${line%%$'\t'*}
    text=${line#*$'\t'}
    found+=("${word//:/\\:}:$text")
  done < <(sublet __complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)
  _describe -V sublet found
}
if [[ $funcstack[1] == _sublet ]]; then _sublet "$@"; else compdef _sublet sublet; fi
)SH";
  }
  if (shell == "fish") {
    return R"SH(# fish completion of sublet. Load it: sublet completion fish | source
function __sublet_complete
  set -l words (commandline -opc) (commandline -ct)
  set -l found (sublet __complete -- $words[2..-1] 2>/dev/null)
  switch "$found[1]"
    case ':files'
      __fish_complete_path (commandline -ct)
    case ':directories'
      __fish_complete_directories (commandline -ct)
    case ':commands'
      __fish_complete_command
    case '*'
      printf '%s\n' $found
  end
end
complete -c sublet -f -a '(__sublet_complete)'
)SH";
  }
  return {};
}

}  // namespace sublet::cli
