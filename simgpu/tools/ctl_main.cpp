// SPDX-License-Identifier: Apache-2.0
#include "base/text.h"
#include "simgpu/tools/ctl_cards.h"
#include "simgpu/tools/ctl_fault.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

namespace {

using namespace simgpu;
using namespace simgpu::tools;
using sublet::bad_request;
using sublet::Code;
using sublet::Status;

using Words = std::vector<std::string_view>;
constexpr std::array<std::string_view, 7> verbs = {"create", "show", "set", "card", "fault", "clear", "mig"};

constexpr std::string_view help_text = R"(simgpu-ctl: make, show and steer simulated cards

  simgpu-ctl --dir DIR create SPEC       make cards: 2x24GiB, 1x4GiB,NAME, 1x4GiB,reserve=0,context_bytes=0;
                                         several kinds joined by +; nothing happens if they are there already
                                         2x80GiB,nvlink=0,switch=0,numa=0: linked with all cards of that number
                                         1x16GiB,unified: its memory is the machine's
                                         1x80GiB,mig=1g.10gb*4+3g.40gb: divided into MIG slices
  simgpu-ctl --dir DIR show [--json]     devices, processes, violations, calls, settings, faults
  simgpu-ctl --dir DIR set KEY VALUE     change a setting, also while programs run
  simgpu-ctl --dir DIR card N KEY=VALUE...  change figures of a card; VALUE `unsupported`: the driver lacks it
  simgpu-ctl --dir DIR fault NAME [...]  make something go wrong
  simgpu-ctl --dir DIR mig CARD on|off   change the MIG mode of a card, which destroys its slices
  simgpu-ctl --dir DIR mig CARD create PROFILE | destroy SLICE
                                         make a slice such as 1g.10gb; destroy the slice of that index,
                                         also under its programs
  simgpu-ctl --dir DIR clear [NAME]      end one fault; without NAME all, and count calls and violations anew

DIR is the directory of a private daemon (subletd --dir DIR): its cards lie in DIR/simgpu. Without --dir the
environment variable SIMGPU_DIR names that place itself; programs find their cards by it.
Exit status: 0 ok, 1 failed, 2 usage.

Options of a fault:
  --device N             only on this card and its slices (else on any); slices have the numbers that show
                         tells, from 16 on
  --pid P                only calls of this process (nvml-missing-pid: the process that is missing, else
                         the first; faults of checkpoints: the process that is to be parked)
  --nth N                only the N-th such call from now on (else every one)
  --duration DUR         how long it stays, of a hang how long it takes (else until cleared)
  --bandwidth SIZE/s     of the fault bandwidth
  --code N               of nvml-error: which nvmlReturn_t (999, unknown error); of checkpoint-fail and
                         restore-fail: which CUresult (999, unknown error; 2, out of memory)
  --after PERCENT        of checkpoint-fail and restore-fail: how much has been copied by then; a checkpoint
                         that fails under way leaves the process failed, one without this leaves it locked
  --first-pid P          of nvml-wrong-namespace: the processes appear as P, P+1, ... (2)

Faults:
)";

sublet::Result<std::string> cards_dir_of(const std::string& dir) {
  if (!dir.empty()) return cards_directory(dir);
  const char* from_environment = std::getenv(directory_variable);  // NOLINT(concurrency-mt-unsafe)
  if (from_environment != nullptr && *from_environment != '\0') return std::string(from_environment);
  return bad_request(fmt::format("which cards? give --dir DIR, or set {}", directory_variable));
}

Status too_many(const Words& words, std::size_t allowed) {
  if (words.size() <= allowed) return {};
  return bad_request(fmt::format("'{}' is one word too many", sublet::printable(words[allowed])));
}

Status show(Table& table, const Words& words) {
  if (auto fits = too_many(words, 1); !fits) return fits;
  if (!words.empty() && words[0] != "--json")
    return bad_request(fmt::format("unknown option '{}': show takes --json", sublet::printable(words[0])));
  fmt::print("{}", words.empty() ? cards_text(table) : cards_json(table).dump() + "\n");
  return {};
}

Status set(Table& table, const Words& words) {
  if (auto fits = too_many(words, 2); !fits) return fits;
  if (words.size() < 2) return bad_request("set needs KEY and VALUE");
  const auto info = parse_setting_key(words[0]);
  if (!info) return info.error();
  const auto value = parse_setting(info->setting, words[1]);
  if (!value)
    return bad_request(
        fmt::format("'{}' is not a value for {}: {}", sublet::printable(words[1]), info->key, info->help));
  table.set(info->setting, *value);
  return {};
}

Status card(Table& table, const Words& words) {
  if (words.size() < 2) return bad_request("card needs a number and KEY=VALUE", "simgpu-ctl card 0 temperature=81");
  unsigned index = 0;
  const auto [end, error] = std::from_chars(words[0].data(), words[0].data() + words[0].size(), index);
  if (error != std::errc() || end != words[0].data() + words[0].size() || index >= table.device_count())
    return bad_request(fmt::format("there is no card '{}'", sublet::printable(words[0])));
  std::vector<std::pair<Figure, std::uint64_t>> wanted;
  for (std::size_t i = 1; i < words.size(); ++i) {
    const auto given = parse_card_figure(words[i]);
    if (!given) return given.error();
    wanted.push_back(*given);
  }
  for (const auto& [figure, value] : wanted) set_figure(table.device(index), figure, value);
  return {};
}

Status fault(Table& table, const Words& words) {
  const auto parsed = parse_fault(words);
  if (!parsed) return parsed.error();
  std::string error;
  if (!table.set_fault(*parsed, &error)) return sublet::unavailable(error);
  return {};
}

Status clear(Table& table, const Words& words) {
  if (auto fits = too_many(words, 1); !fits) return fits;
  if (words.empty()) return table.clear(), Status();
  const auto kind = parse_fault_name(words[0]);
  if (!kind) return kind.error();
  clear_fault(table, *kind);
  return {};
}

template <typename Number>
std::optional<Number> number_below(std::string_view text, Number limit) {
  Number number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number >= limit) return std::nullopt;
  return number;
}

Status mig(Table& table, const Words& words) {
  const std::string_view change = words.size() > 1 ? words[1] : "";
  const bool mode = change == "on" || change == "off";
  if (auto fits = too_many(words, mode ? 2 : 3); !fits) return fits;
  const auto card = words.empty() ? std::nullopt : number_below(words[0], table.device_count());
  if (!card) return bad_request("mig needs the number of a card");
  if (table.is_unified(*card)) return bad_request("a card with unified memory has no MIG mode");
  if (mode) return table.set_mig_mode(*card, change == "on"), Status();
  const auto profile = words.size() == 3 && change == "create" ? parse_profile(words[2]) : std::nullopt;
  if (profile) {
    std::string error;
    const auto place = table.create_slice(*card, *profile, &error);
    if (!place) return sublet::unavailable(error);
    fmt::print("{}\n", table.uuid_text(*place));
    return {};
  }
  const auto index = words.size() == 3 && change == "destroy" ? number_below(words[2], max_slices) : std::nullopt;
  if (!index) return bad_request("mig CARD takes on, off, create PROFILE or destroy SLICE");
  for (const unsigned place : table.slices_of(*card))
    if (table.device(place).slice.load() == *index) return table.destroy_slice(place), Status();
  return sublet::not_found(fmt::format("card {} has no slice {}", *card, *index));
}

Status create(const std::string& cards_dir, const Words& words) {
  if (auto fits = too_many(words, 1); !fits) return fits;
  if (words.empty()) return bad_request("create needs a specification such as 2x24GiB");
  std::error_code ignored;  // later steps tell whether the cards can be made in it
  std::filesystem::create_directories(cards_dir, ignored);
  const auto table = create_cards(cards_dir, words[0]);
  if (!table) return table.error();
  return {};
}

Status run(std::string_view verb, const std::string& dir, const Words& words) {
  if (std::find(verbs.begin(), verbs.end(), verb) == verbs.end())
    return bad_request(fmt::format("unknown verb '{}'{}", sublet::printable(verb), sublet::did_you_mean(verb, verbs)));
  const auto cards_dir = cards_dir_of(dir);
  if (!cards_dir) return cards_dir.error();
  if (verb == "create") return create(*cards_dir, words);
  const auto table = open_cards(*cards_dir);
  if (!table) return table.error();
  if (verb == "show") return show(**table, words);
  if (verb == "set") return set(**table, words);
  if (verb == "card") return card(**table, words);
  if (verb == "mig") return mig(**table, words);
  return verb == "fault" ? fault(**table, words) : clear(**table, words);
}

}  // namespace

int main(int argc, char** argv) {
  Words words(argv + 1, argv + argc);
  std::string dir;
  while (!words.empty() && words[0].starts_with("-")) {
    const std::string_view flag = words[0];
    if (flag == "--help" || flag == "-h")
      return fmt::print("{}{}\nSettings:\n{}\nFigures of a card:\n{}", help_text, fault_list(), setting_list(),
                        figure_list()),
             0;
    if (flag == "--version") return fmt::print("simgpu-ctl {}\n", SUBLET_VERSION), 0;
    if (flag.starts_with("--dir=")) {
      dir = flag.substr(6);
    } else if (flag == "--dir" && words.size() > 1) {
      dir = words[1];
      words.erase(words.begin());
    } else {
      fmt::print(stderr, "simgpu-ctl: {} '{}'\n", flag == "--dir" ? "no directory after" : "unknown option",
                 sublet::printable(flag));
      return 2;
    }
    words.erase(words.begin());
  }
  const std::string_view verb = words.empty() ? "" : words[0];
  const auto done = verb.empty() ? Status(bad_request("which verb? create, show, set, card, fault, clear or mig"))
                                 : run(verb, dir, {words.begin() + 1, words.end()});
  if (done) return 0;
  fmt::print(stderr, "simgpu-ctl: {}\n", done.error().detail);
  if (!done.error().hint.empty()) fmt::print(stderr, "  {}\n", done.error().hint);
  return done.error().code == Code::BadRequest ? 2 : 1;
}
