// SPDX-License-Identifier: Apache-2.0
#include "keep/elsewhere.h"

#include "base/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

namespace sublet::keep {
namespace {

using Words = std::vector<std::string>;

template <std::size_t N>
bool is_one_of(std::string_view word, const std::array<std::string_view, N>& all) {
  return std::ranges::find(all, word) != all.end();
}

std::string_view base_name(std::string_view path) { return path.substr(path.rfind('/') + 1); }

bool is_engine(std::string_view word) {
  return is_one_of(word, std::array<std::string_view, 3>{"docker", "podman", "nerdctl"});
}

// A program that starts the rest of its command line as it is.
struct Wrapper {
  std::string_view name;
  std::string_view letters = {};                // short options with a value
  std::array<std::string_view, 8> options = {};  // long options with a value in the next word
  int words = 0;                                // words of its own before the command
};

constexpr Wrapper wrappers[] = {
    {"sudo",
     "CDghpRrTtUu",
     {"--user", "--group", "--host", "--prompt", "--chdir", "--chroot", "--close-from", "--command-timeout"}},
    {"doas", "Cu"},
    {"env", "CSu", {"--unset", "--chdir", "--split-string"}},
    {"nice", "n", {"--adjustment"}},
    {"ionice", "cnPpu", {"--class", "--classdata"}},
    {"nohup"},
    {"setsid"},
    {"time", "fo", {"--format", "--output"}},
    {"timeout", "ks", {"--signal", "--kill-after"}, 1},
    {"stdbuf", "eio", {"--input", "--output", "--error"}},
    {"taskset", "", {}, 1},
    {"numactl", "CimNp", {"--interleave", "--membind", "--cpunodebind", "--physcpubind", "--preferred"}},
};

// The first word behind the wrapper at `at`, its options and the variables that it sets.
std::size_t behind_wrapper(const Words& command, std::size_t at, const Wrapper& wrapper) {
  ++at;
  while (at < command.size()) {
    const std::string_view word = command[at];
    if (word == "--") {
      ++at;
      break;
    }
    if (word.starts_with("--")) {
      at += is_one_of(word, wrapper.options) ? 2 : 1;
    } else if (word.starts_with('-')) {  // the first letter with a value takes the rest of the word, or the next word
      const auto valued = word.find_first_of(wrapper.letters, 1);
      at += valued != std::string_view::npos && valued + 1 == word.size() ? 2 : 1;
    } else if (word.find('=') != std::string_view::npos) {
      ++at;
    } else {
      break;
    }
  }
  return at + static_cast<std::size_t>(wrapper.words);
}

// The word that names the program behind wrappers.
std::size_t program_of(const Words& command) {
  std::size_t at = 0;
  while (at < command.size()) {
    const auto wrapper = std::ranges::find(wrappers, base_name(command[at]), &Wrapper::name);
    if (wrapper == std::end(wrappers)) break;
    at = behind_wrapper(command, at, *wrapper);
  }
  return at;
}

// Behind an option at `at`: the next word that is no value of it. `flags`: long options without a value; `letters`: the
// short ones.
template <std::size_t N>
std::size_t behind_option(const Words& command, std::size_t at, const std::array<std::string_view, N>& flags,
                          std::string_view letters) {
  const std::string_view word = command[at];
  if (word.starts_with("--")) return at + (word.find('=') != std::string_view::npos || is_one_of(word, flags) ? 1 : 2);
  const bool all_flags = word.find_first_not_of(letters, 1) == std::string_view::npos;
  const bool value_behind = word.size() > 1 && letters.find(word.back()) == std::string_view::npos &&
                            word.find_first_not_of(letters, 1) == word.size() - 1;
  return at + (all_flags || !value_behind ? 1 : 2);
}

constexpr std::array<std::string_view, 5> engine_flags{"--debug", "--tls", "--tlsverify", "--remote", "--noout"};
constexpr std::array<std::string_view, 19> run_flags{
    "--detach", "--disable-content-trust", "--env-host", "--help", "--http-proxy", "--init", "--interactive",
    "--no-healthcheck", "--no-hostname", "--no-hosts", "--oom-kill-disable", "--privileged", "--publish-all", "--quiet",
    "--read-only", "--replace", "--rm", "--sig-proxy", "--tty"};
constexpr std::string_view run_letters = "ditPq";

struct Engine {
  std::size_t at = 0;    // the engine
  std::size_t verb = 0;  // behind its options and the word "container"
};

std::optional<Engine> engine_of(const Words& command) {
  Engine found{program_of(command), 0};
  if (found.at >= command.size() || !is_engine(base_name(command[found.at]))) return std::nullopt;
  found.verb = found.at + 1;
  while (found.verb < command.size() && command[found.verb].starts_with('-'))
    found.verb = behind_option(command, found.verb, engine_flags, "D");
  if (found.verb < command.size() && command[found.verb] == "container") ++found.verb;
  return found.verb < command.size() ? std::optional(found) : std::nullopt;
}

std::size_t image_of(const Words& command, std::size_t options) {
  std::size_t at = options;
  while (at < command.size() && command[at].starts_with('-') && command[at] != "--")
    at = behind_option(command, at, run_flags, run_letters);
  return std::min(at, command.size());
}

// The value of the option at `at`, which ends before `next`; "" without one.
std::string_view value_of_option(const Words& command, std::size_t at, std::size_t next) {
  if (next == at + 2 && next <= command.size()) return command[at + 1];
  const std::string_view word = command[at];
  const auto equals = word.find('=');
  if (equals != std::string_view::npos) return word.substr(equals + 1);
  return word.starts_with("--") || word.size() < 2 ? std::string_view() : word.substr(2);
}

// The warning of an engine that may run on another machine; "": it runs here. Its options count before DOCKER_HOST.
std::string other_machine(const Words& command, const Engine& engine, std::string_view docker_host) {
  constexpr std::string_view consequence = "the lease follows containers of this machine only; use sublet run there";
  const bool docker = base_name(command[engine.at]) == "docker";
  std::string_view host = docker ? docker_host : std::string_view(), from = "DOCKER_HOST";
  for (std::size_t at = engine.at + 1; at < engine.verb && command[at].starts_with('-');) {
    const std::size_t next = behind_option(command, at, engine_flags, "D");
    const std::string_view word = std::string_view(command[at]).substr(0, command[at].find('='));
    const std::string_view value = value_of_option(command, at, next);
    if (word == "--remote" || word == "-r") return fmt::format("the engine is a remote one: {}", consequence);
    if (word == "--host" || word == "--url" || word.starts_with("-H")) host = value, from = "the host of the engine";
    const bool context = word == "--context" || word == "--connection" || word.starts_with("-c");
    if (context && value != "default" && value != "rootless")
      return fmt::format("the engine of the context {} may be on another machine: {}", printable(value), consequence);
    at = next;
  }
  if (host.empty() || host.starts_with("unix://") || host.starts_with("fd://") || host.starts_with('/')) return {};
  return fmt::format("{} is {}: {}", from, printable(host), consequence);
}

// The option with the devices in place of its value, if it sets a variable that names devices.
Words with_list(Words option, const std::string& list) {
  std::string& word = option.back();
  for (const std::string_view name : {"NVIDIA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"}) {
    const auto at = option.size() == 2 ? 0 : word.find(name);
    if (at == std::string::npos || word.substr(at, word.find('=', at) - at) != name) continue;
    std::string_view flag = option.front();
    if (option.size() == 1) flag = flag.substr(0, at);
    if (flag.ends_with('=')) flag.remove_suffix(1);
    const bool letters = flag.starts_with('-') && flag.ends_with('e') && !flag.starts_with("--") &&
                         flag.substr(1).find_first_not_of(run_letters) == flag.size() - 2;
    if (letters || flag == "--env") word = fmt::format("{}{}={}", word.substr(0, at), name, list);
  }
  return option;
}

bool is_detached(std::string_view option) {
  if (option == "--detach" || option == "--detach=true") return true;
  return option.size() > 1 && !option.starts_with("--") &&
         option.substr(1, option.find_first_not_of(run_letters, 1) - 1).find('d') != std::string_view::npos;
}

std::optional<Elsewhere> elsewhere_by_engine(const Words& command, const Engine& engine) {
  const std::string name(base_name(command[engine.at])), verb = command[engine.verb];
  if (verb == "run") {
    const std::size_t image = image_of(command, engine.verb + 1);
    bool detached = false;  // the value of another option may look like "-d"
    for (std::size_t at = engine.verb + 1; at < image; at = behind_option(command, at, run_flags, run_letters))
      detached |= is_detached(command[at]);
    if (!detached) return std::nullopt;
    return Elsewhere{fmt::format("{} run -d returns at once, and the lease ends then", name),
                     fmt::format("leave -d out, and for a service: sublet run --detach -- {} run …", name)};
  }
  if (verb == "compose")
    return Elsewhere{fmt::format("{} compose has the engine start the containers", name), "sublet stack"};
  if (verb != "exec" && verb != "start" && verb != "restart" && verb != "kube" && verb != "play") return std::nullopt;
  return Elsewhere{fmt::format("{} {} has the engine start the program", name, verb),
                   fmt::format("sublet run -- {} run …, or sublet attach LEASE --pid PID once the program runs", name)};
}

}  // namespace

std::optional<ContainerRun> container_run(const Words& command) {
  const auto engine = engine_of(command);
  if (!engine || command[engine->verb] != "run" || elsewhere_by_engine(command, *engine)) return std::nullopt;
  ContainerRun run{engine->at, engine->verb + 1, image_of(command, engine->verb + 1), false};
  for (std::size_t i = run.options; i < run.image; ++i) run.has_parent |= command[i].starts_with("--cgroup-parent");
  return run;
}

std::optional<Elsewhere> started_elsewhere(const Words& command) {
  if (const auto engine = engine_of(command)) return elsewhere_by_engine(command, *engine);
  const std::size_t at = program_of(command);
  if (at >= command.size()) return std::nullopt;
  const std::string_view name = base_name(command[at]);
  const auto has = [&](std::string_view word) { return std::ranges::find(command, word) != command.end(); };
  struct Known {
    std::string_view name;
    std::string_view starter;
    std::string_view verb;
  };
  constexpr std::string_view supervised = "sublet run --detach -- PROGRAM";
  constexpr Known known[] = {
      {"systemd-run", "the service manager", supervised},
      {"at", "the daemon atd", "at, with the line: sublet run … -- PROGRAM"},
      {"batch", "the daemon atd", "batch, with the line: sublet run … -- PROGRAM"},
      {"tmux", "a server of tmux that may run already", "sublet run … -- PROGRAM inside of tmux"},
      {"screen", "a process of screen that may run already", "sublet run … -- PROGRAM inside of screen"},
      {"zellij", "a server of zellij that may run already", "sublet run … -- PROGRAM inside of zellij"},
      {"ssh", "another session, perhaps on another machine", "sublet run … -- PROGRAM there"},
      {"srun", "the daemon of Slurm", "srun sublet run … -- PROGRAM"},
      {"sbatch", "the daemon of Slurm", "sublet run … -- PROGRAM in the batch script"},
      {"kubectl", "Kubernetes", "sublet hold on the node, and sublet attach LEASE --pid PID"},
      {"machinectl", "the manager of the machine", "sublet attach LEASE --pid PID"},
      {"flatpak", "the portal of Flatpak", "sublet attach LEASE --pid PID"},
      {"docker-compose", "the container engine", "sublet stack"},
      {"podman-compose", "the container engine", "sublet stack"},
  };
  const auto found = std::ranges::find(known, name, &Known::name);
  if (found == std::end(known) || (name == "systemd-run" && has("--scope"))) return std::nullopt;
  return Elsewhere{fmt::format("{} has the program started by {}", name, found->starter), std::string(found->verb)};
}

std::vector<std::string> warnings_of_others(const Words& command, std::string_view docker_host) {
  std::vector<std::string> all;
  if (const auto elsewhere = started_elsewhere(command))
    all.push_back(fmt::format("{}: the lease does not follow it; use {}", elsewhere->why, elsewhere->verb));
  const auto container = container_run(command);
  if (!container) return all;
  if (container->has_parent)
    all.emplace_back("the container has a control group of its own choice (--cgroup-parent): the lease does not follow "
                     "it; leave that option out, or use sublet attach LEASE --pid PID");
  if (std::string other = other_machine(command, *engine_of(command), docker_host); !other.empty())
    all.push_back(std::move(other));
  return all;
}

Words with_devices(const Words& command, const ContainerRun& run, const Words& uuids, const std::string& parent) {
  const auto part = [&](std::size_t from, std::size_t to) {
    return Words(command.begin() + static_cast<std::ptrdiff_t>(from),
                 command.begin() + static_cast<std::ptrdiff_t>(to));
  };
  Words out = part(0, run.options);
  const std::string list = fmt::format("{}", fmt::join(uuids, ","));
  if (!run.has_parent) out.push_back("--cgroup-parent=" + parent);
  out.push_back("--env=NVIDIA_VISIBLE_DEVICES=" + list);
  out.push_back("--env=CUDA_VISIBLE_DEVICES=" + list);
  const bool podman = base_name(command[run.engine]) == "podman";
  bool named = false;  // the devices of the engine's device interface stand there once
  for (std::size_t at = run.options; at < run.image;) {
    const std::size_t next = std::min(behind_option(command, at, run_flags, run_letters), run.image);
    const std::string& word = command[at];
    const bool gpus = word == "--gpus" || word.starts_with("--gpus=");
    const bool device = word == "--device" || word.starts_with("--device=");
    const bool interface = device && value_of_option(command, at, next).starts_with("nvidia.com/gpu=");
    if (interface || (gpus && podman)) {  // podman takes --gpus as one name of its device interface
      if (!std::exchange(named, true))
        for (const std::string& uuid : uuids) out.push_back("--device=nvidia.com/gpu=" + uuid);
    } else if (gpus) {
      out.push_back(fmt::format("--gpus=\"device={}\"", list));
    } else {
      const Words kept = with_list(part(at, next), list);
      out.insert(out.end(), kept.begin(), kept.end());
    }
    at = next;
  }
  const Words rest = part(run.image, command.size());
  out.insert(out.end(), rest.begin(), rest.end());
  return out;
}

}  // namespace sublet::keep
