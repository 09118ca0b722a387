// SPDX-License-Identifier: Apache-2.0
#include "simgpu/tools/load_options.h"

#include "base/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <string>

namespace simgpu::tools {

const std::string_view load_help =
    R"(simgpu-load: a CUDA program that fills VRAM, computes, and checks every byte of what it wrote

  simgpu-load --alloc SIZE [options]

  --alloc SIZE    VRAM to allocate and fill, for example 6GiB (a multiple of 4 KiB)
  --step SIZE     allocate this much at a time (256MiB)
  --rate SIZE/s   fill no faster than this (as fast as it goes)
  --seconds DUR   compute for so long once everything is filled (30)
  --busy PERCENT  share of that time in which a kernel runs (50)
  --verify        check the contents while computing too; at the end they are always checked
  --dense         random contents everywhere; otherwise one random 4 KiB page in each 2 MiB
                  and a 16-byte pattern around it, which a simulated card stores in little RAM
  --on-pause MODE yield by itself when the daemon of SUBLET_HOST asks for it: honest; or, to see what becomes
                  of it: liar (says so, and keeps everything), half (frees half of it), late (after its time
                  is over), again (holds half as much again a second later), again-at-usr1 (the same at
                  SIGUSR1), unresponsive (never gets to it)
  --seed N        seed of the contents (the process id), printed in the result
  --json          print the result as JSON
  --help, --version

It uses the first device that it sees (CUDA_VISIBLE_DEVICES), simulated or real.
SIGTERM and SIGINT end it early: it checks, frees, and exits with 143 or 130.
Exit status: 0 all was right, 1 something was not, 2 usage.
)";

namespace {

using sublet::bad_request;
using sublet::Bytes;
using sublet::Result;
using sublet::Status;

constexpr std::array<std::string_view, 12> known = {"--alloc", "--step",     "--rate", "--seconds",
                                                    "--busy",  "--on-pause", "--seed", "--verify",
                                                    "--dense", "--json",     "--help", "--version"};

constexpr std::array<std::pair<std::string_view, OnPause>, 7> modes{{{"honest", OnPause::honest},
                                                                     {"liar", OnPause::liar},
                                                                     {"half", OnPause::half},
                                                                     {"late", OnPause::late},
                                                                     {"again", OnPause::again},
                                                                     {"again-at-usr1", OnPause::again_at_usr1},
                                                                     {"unresponsive", OnPause::unresponsive}}};

template <typename Number>
Result<Number> parse_number(std::string_view flag, std::string_view text, Number low, Number high) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < low || value > high)
    return bad_request(
        fmt::format("{} '{}' is not a whole number from {} to {}", flag, sublet::printable(text), low, high));
  return value;
}

template <typename Value, typename Parsed>
Status store(Value& into, const Result<Parsed>& parsed) {
  if (!parsed) return parsed.error();
  into = *parsed;
  return {};
}

Status set_value(LoadOptions& options, std::string_view flag, std::string_view value) {
  if (flag == "--alloc") return store(options.alloc, sublet::parse_size(value));
  if (flag == "--step") return store(options.step, sublet::parse_size(value));
  if (flag == "--seconds") return store(options.seconds, sublet::parse_duration(value));
  if (flag == "--busy") return store(options.busy, parse_number<int>(flag, value, 0, 100));
  if (flag == "--seed") return store(options.seed, parse_number<std::uint64_t>(flag, value, 1, UINT64_MAX));
  if (flag == "--rate") {
    if (value.ends_with("/s")) value.remove_suffix(2);
    return store(options.rate, sublet::parse_size(value));
  }
  for (const auto& [name, mode] : modes) {
    if (name == value) return options.on_pause = mode, Status{};
  }
  return bad_request(
      fmt::format("--on-pause '{}' is not one of honest, liar, half, late, again, again-at-usr1, unresponsive",
                  sublet::printable(value)));
}

Status check_sizes(const LoadOptions& options) {
  constexpr std::int64_t page = 4096;
  if (options.alloc.count == 0) return bad_request("--alloc SIZE is missing: how much VRAM to fill");
  for (const auto& [flag, size] : {std::pair("--alloc", options.alloc), std::pair("--step", options.step)})
    if (size.count % page != 0)
      return bad_request(fmt::format("{} {} bytes is not a multiple of 4 KiB", flag, size.count));
  return {};
}

}  // namespace

Result<LoadOptions> parse_load_options(const std::vector<std::string_view>& arguments) {
  LoadOptions options;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    std::string_view flag = arguments[i];
    const auto equals = flag.find('=');
    const bool inline_value = flag.starts_with("--") && equals != std::string_view::npos;
    const std::string_view value = inline_value ? flag.substr(equals + 1) : std::string_view();
    if (inline_value) flag = flag.substr(0, equals);
    bool* const toggle = flag == "--verify"                 ? &options.verify
                         : flag == "--dense"                ? &options.dense
                         : flag == "--json"                 ? &options.json
                         : flag == "--help" || flag == "-h" ? &options.help
                         : flag == "--version"              ? &options.version
                                                            : nullptr;
    if (toggle != nullptr && !inline_value) {
      *toggle = true;
      continue;
    }
    if (toggle != nullptr) return bad_request(fmt::format("{} takes no value", flag));
    if (std::find(known.begin(), known.end(), flag) == known.end())
      return bad_request(
          fmt::format("unknown option '{}'{}", sublet::printable(flag), sublet::did_you_mean(flag, known)));
    if (!inline_value && i + 1 == arguments.size()) return bad_request(fmt::format("{} needs a value", flag));
    if (auto set = set_value(options, flag, inline_value ? value : arguments[++i]); !set) return set.error();
  }
  if (!options.help && !options.version)
    if (auto sizes = check_sizes(options); !sizes) return sizes.error();
  return options;
}

}  // namespace simgpu::tools
