// SPDX-License-Identifier: Apache-2.0
// sublet-simulate: carries out one order of `sublet simulate`, which checks the flags and passes them as JSON.
#include "config/config.h"
#include "config/schema.h"
#include "settings/rules_of.h"
#include "simulate/output.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <string>
#include <vector>

namespace sublet::simulate {
namespace {

using Json = nlohmann::json;

constexpr int failed = 1, usage = 2, bad_config = 78, interrupted = 130;

volatile std::sig_atomic_t stop = 0;

struct Variant {
  std::string name;
  Config config;
};

int fail(const Error& error, int status) {
  fmt::print(stderr, "sublet: {}\n", error.detail);
  if (!error.hint.empty()) fmt::print(stderr, "  hint: {}\n", error.hint);
  return status;
}

Result<Config> load(const std::string& file, const std::vector<std::string>& sets) {
  config::Loaded loaded = file.empty() ? config::parse("", "") : config::load_named(file);
  if (!loaded.problems.empty()) return config::to_error(loaded.problems);
  for (const std::string& set : sets) {
    const auto equal = set.find('=');
    const config::Key* key = config::find(set.substr(0, equal));
    if (key == nullptr || equal == std::string::npos)
      return bad_request(fmt::format("--set {}: there is no such key", set),
                         "KEY=VALUE; `sublet config show` lists the keys");
    if (const Status status = config::set_value(*key, set.substr(equal + 1), loaded.config); !status)
      return bad_request(fmt::format("--set {}: {} {}", set, key->name, status.error().detail), status.error().hint);
  }
  return loaded.config;
}

// A policy, or a configuration file.
Result<std::vector<Variant>> variants_of(const Json& order) {
  const auto sets = order.value("set", std::vector<std::string>());
  const std::string file = order.value("config", "");
  std::vector<Variant> variants;
  for (const std::string& name : order.value("compare", std::vector<std::string>())) {
    const auto policy = placement::parse_policy(name);
    if (!policy && !name.ends_with(".toml"))
      return bad_request(fmt::format("--compare {}: neither a policy nor a file", name),
                         "fragmentation, best-fit, pack, spread, random, or FILE.toml");
    auto config = load(policy ? file : name, sets);
    if (!config) return config.error();
    if (policy) config->placement.policy.word = name;
    variants.push_back({name, std::move(*config)});
  }
  if (!variants.empty()) return variants;
  auto config = load(file, sets);
  if (!config) return config.error();
  return std::vector<Variant>{{config->placement.policy.word, std::move(*config)}};
}

// A line on the terminal that shows how far the run is.
class Progress {
 public:
  Progress(bool shown, std::string name) : shown_(shown), name_(std::move(name)) {}
  ~Progress() {
    if (shown_) fmt::print(stderr, "\r\033[K");
  }
  bool at(double part) {
    constexpr int width = 40;
    const int full = static_cast<int>(std::clamp(part, 0.0, 1.0) * width);
    if (shown_ && full != last_)
      fmt::print(stderr, "\r{} [{:#<{}}{:.<{}}] {:3.0f} %", name_, "", full, "", width - full, 100 * part);
    last_ = full;
    return stop == 0;
  }

 private:
  bool shown_;
  std::string name_;
  int last_ = -1;
};

template <typename Each>
int print(const Json& order, const std::vector<Each>& all, bool partial) {
  const std::span<const Each> span(all);
  const std::string format = order.value("format", "table");
  if (format == "json") fmt::print("{}\n", json_of(span).dump(2));
  else if (format == "csv") fmt::print("{}", csv_of(span));
  else fmt::print("{}", table_of(span));
  if (partial) fmt::print(stderr, "sublet: interrupted: the result is partial\n");
  const std::string html = order.value("html", "");
  if (!html.empty()) {
    std::ofstream out(html, std::ios::trunc);
    out << page_of(span);
    out.close();
    if (!out) return fail({Code::Unavailable, fmt::format("cannot write {}", html), "choose another file"}, failed);
  }
  return partial ? interrupted : 0;
}

Result<std::vector<Job>> jobs_of(const Json& order, Bytes device) {
  const std::string kind = order.at("trace").at("kind"), file = order.at("trace").at("file");
  if (kind == "openb") return read_openb(file);
  if (kind == "philly") return read_philly(file, device);
  return read_jobs(file);
}

int run_fill(const Json& order, const std::vector<Variant>& variants) {
  const auto jobs = jobs_of(order, 1000 * thousandth);
  if (!jobs) return fail(jobs.error(), failed);
  const auto nodes = read_nodes(order.at("nodes"));
  if (!nodes) return fail(nodes.error(), failed);
  std::vector<NamedFill> all;
  bool partial = false;
  for (const Variant& variant : variants) {
    Progress progress(order.value("progress", false), variant.name);
    const Filling how{.policy = *placement::parse_policy(variant.config.placement.policy.word),
                      .fill = order.value("fill", 1.3),
                      .seed = order.value("seed", std::uint64_t{42}),
                      .goes_on = [&progress](double part) { return progress.at(part); }};
    all.emplace_back(variant.name, fill(*jobs, *nodes, how));
    if (partial |= all.back().second.partial; partial) break;
  }
  return print(order, all, partial);
}

int run_trace(const Json& order, const std::vector<Variant>& variants) {
  const auto devices = parse_devices(order.value("devices", ""));
  if (!devices) return fail(devices.error(), usage);
  const Bytes largest = *std::ranges::max_element(*devices);
  const auto jobs = jobs_of(order, largest);
  if (!jobs) return fail(jobs.error(), failed);
  std::vector<Figures> all;
  bool partial = false;
  for (const Variant& variant : variants) {
    Progress progress(order.value("progress", false), variant.name);
    Setting setting{.devices = *devices, .rules = settings::rules_of(variant.config, std::nullopt)};
    setting.link = order.value("link_bytes", setting.link);
    setting.goes_on = [&](std::size_t arrived) {
      return progress.at(static_cast<double>(arrived) / static_cast<double>(jobs->size()));
    };
    // A job that asks for all of a device gets what the headroom leaves of it.
    std::vector<Job> fitted = *jobs;
    for (Job& job : fitted)
      if (job.vram == largest) job.vram -= setting.rules.headroom;
    all.push_back(figures_of(variant.name, fitted, run(fitted, setting), largest));
    if (partial |= all.back().outcome.partial; partial) break;
  }
  return print(order, all, partial);
}

int carry_out(const Json& order) {
  const auto variants = variants_of(order);
  if (!variants) return fail(variants.error(), bad_config);
  std::signal(SIGINT, [](int) { stop = 1; });
  return order.contains("nodes") ? run_fill(order, *variants) : run_trace(order, *variants);
}

}  // namespace
}  // namespace sublet::simulate

int main(int argc, char** argv) {
  if (argc == 2 && std::string_view(argv[1]) == "--version") {
    fmt::print("sublet-simulate " SUBLET_VERSION "\n");
    return 0;
  }
  const auto order = argc == 2 ? nlohmann::json::parse(argv[1], nullptr, false) : nlohmann::json();
  if (!order.is_object()) {
    fmt::print(stderr, "sublet-simulate is started by `sublet simulate`, with one order as JSON\n");
    return 2;
  }
  return sublet::simulate::carry_out(order);
}
