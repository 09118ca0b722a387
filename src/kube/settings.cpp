// SPDX-License-Identifier: Apache-2.0
#include "kube/settings.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdlib>

namespace sublet::kube {
namespace {

constexpr double least_overcommit = 0.1, most_overcommit = 16;
constexpr Duration longest_start_wait = std::chrono::seconds(25);
constexpr int wrong_usage = 2;

int refuse(const std::string& problem, const std::string& hint) {
  fmt::print(stderr, "sublet-kube: {}\n  hint: {}\n", problem, hint);
  return wrong_usage;
}

std::string env_name(std::string flag) {
  std::ranges::transform(flag, flag.begin(), [](unsigned char c) { return c == '-' ? '_' : std::toupper(c); });
  return "SUBLET_KUBE_" + flag;
}

// The words that need a look, as they were given.
struct Given {
  std::string unit = "512Mi", doors = "plugin,dra", log_level = "info", start_wait = "20s";
};

std::optional<int> take(const Given& given, Settings& settings) {
  if (settings.node.empty())
    if (const char* name = std::getenv("NODE_NAME")) settings.node = name;
  if (settings.node.empty())
    return refuse("the name of this node is not known", "give --node-name, or set NODE_NAME from spec.nodeName");
  std::string size = given.unit;
  if (size.ends_with("Mi") || size.ends_with("Gi")) size += "B";
  const auto unit = parse_size(size);
  if (!unit || unit->count < MiB.count || unit->count % MiB.count != 0)
    return refuse(fmt::format("--unit: '{}' is no size in whole MiB", given.unit), "for example --unit 512Mi");
  settings.rules.unit = *unit;
  if (!(settings.rules.overcommit >= least_overcommit && settings.rules.overcommit <= most_overcommit))
    return refuse(fmt::format("--overcommit: {} is not a number from {} to {}", settings.rules.overcommit,
                              least_overcommit, most_overcommit),
                  "for example --overcommit 2: twice the memory of each card is declared");
  const auto wait = parse_duration(given.start_wait);
  if (!wait || *wait > longest_start_wait)
    return refuse(
        fmt::format("--start-wait: '{}' is no time up to {}", given.start_wait, format_duration(longest_start_wait)),
        "the kubelet gives up after 30 s, and asks again");
  settings.start_wait = *wait;
  if (given.doors != "plugin" && given.doors != "dra" && given.doors != "plugin,dra" && given.doors != "dra,plugin")
    return refuse(fmt::format("--doors: '{}' is no list of doors", given.doors), "plugin, dra, or plugin,dra");
  settings.plugin_door = given.doors != "dra";
  settings.dra_door = given.doors != "plugin";
  if (given.log_level != "info" && given.log_level != "debug")
    return refuse(fmt::format("--log-level: '{}' is unknown", given.log_level), "info or debug");
  settings.verbose = given.log_level == "debug";
  if (!settings.cgroup_root.starts_with('/')) settings.cgroup_root.insert(0, "/");
  return std::nullopt;
}

}  // namespace

std::variant<Settings, int> read_settings(int argc, char** argv) {
  Settings settings;
  Given given;
  CLI::App app{"The agent of a Kubernetes node: gives pods leases of GPU memory", "sublet-kube"};
  app.set_version_flag("--version", "sublet-kube " SUBLET_VERSION);
  const auto option = [&app](const std::string& flag, auto& into, const std::string& text) {
    return app.add_option("--" + flag, into, text)->envname(env_name(flag))->take_last();
  };
  option("node-name", settings.node, "Name of this node (also NODE_NAME)");
  option("socket", settings.socket, "Socket of subletd (default: as sublet finds it)");
  option("kubelet-dir", settings.kubelet_dir, "Directory of the kubelet")->capture_default_str();
  option("cdi-dir", settings.cdi_dir, "Directory of CDI files")->capture_default_str();
  option("state-dir", settings.state_dir, "Directory of this agent")->capture_default_str();
  option("cgroup-root", settings.cgroup_root, "Control group of the kubelet's pods")->capture_default_str();
  option("api-server", settings.api_server, "URL of the API server (default: that of the cluster of this pod)");
  option("token-file", settings.token_file, "Token for the API server")->capture_default_str();
  option("ca-file", settings.ca_file, "Certificates that the API server is checked by")->capture_default_str();
  option("interposer", settings.interposer, "Library libsublet-cuda.so on the node, which containers preload");
  option("probe", settings.probe, "Program sublet-probe on the node, which containers get");
  option("overcommit", settings.rules.overcommit, "Declared memory by the memory of the cards")->capture_default_str();
  option("unit", given.unit, "Memory of one unit of the device plugin")->capture_default_str();
  option("doors", given.doors, "plugin, dra, or both")->capture_default_str();
  option("start-wait", given.start_wait, "Time that a start waits for memory before the kubelet has to ask again")
      ->capture_default_str();
  option("log-level", given.log_level, "info or debug")->capture_default_str();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : wrong_usage;
  }
  if (const auto status = take(given, settings)) return *status;
  return settings;
}

}  // namespace sublet::kube
