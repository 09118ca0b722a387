// SPDX-License-Identifier: Apache-2.0
// sublet-simulate: carries out one order of `sublet simulate`, which checks the flags and passes them as JSON.
#include "base/text.h"
#include "config/config.h"
#include "config/schema.h"
#include "settings/rules_of.h"
#include "simulate/input.h"
#include "simulate/output.h"
#include "simulate/point_in_time.h"
#include "tenant_tree/tree.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace sublet::simulate {
namespace {

using Json = nlohmann::json;

constexpr int failed = 1, usage = 2, bad_config = 78, interrupted = 130;

volatile std::sig_atomic_t stop = 0;

constexpr const char* point_in_time = "point-in-time";

struct Variant {
  std::string name;
  Config config;
  bool is_baseline = false;
};

int fail(const Error& error, int status) {
  fmt::print(stderr, "sublet: {}\n", error.detail);
  if (!error.hint.empty()) fmt::print(stderr, "  hint: {}\n", error.hint);
  return status;
}

// `base`: of a scenario; it counts without a file.
Result<Config> load(const std::string& file, const std::vector<std::string>& sets, const Config* base) {
  config::Loaded loaded = file.empty() ? config::parse("", "") : config::load_named(file);
  if (file.empty() && base != nullptr) loaded.config = *base;
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

// A policy, a configuration file, or the scheduler to compare with. A scenario is compared with that.
Result<std::vector<Variant>> variants_of(const Json& order, const Config* base) {
  const auto sets = order.value("set", std::vector<std::string>());
  const std::string file = order.value("config", "");
  std::vector<Variant> variants;
  auto names = order.value("compare", std::vector<std::string>());
  if (names.empty() && base != nullptr) names = {point_in_time, "sublet"};
  for (const std::string& name : names) {
    const auto policy = placement::parse_policy(name);
    const bool is_baseline = name == point_in_time && !order.contains("nodes");
    const bool is_file = name.ends_with(".toml");
    if (!policy && !is_baseline && !is_file && name != "sublet")
      return bad_request(fmt::format("--compare {}: neither a policy nor a file", name),
                         fmt::format("fragmentation, best-fit, pack, spread, random, sublet, {}or FILE.toml",
                                     order.contains("nodes") ? "" : "point-in-time, "));
    auto config = load(is_file ? name : file, sets, base);
    if (!config) return config.error();
    if (policy) config->placement.policy.word = name;
    variants.push_back({name, std::move(*config), is_baseline});
  }
  if (!variants.empty()) return variants;
  auto config = load(file, sets, base);
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

// A file that was there stays whole if the disk is full. Devices and links are written themselves.
Status write(const std::string& file, const std::string& text) {
  if (file.empty()) return {};
  std::error_code none;
  const auto old = std::filesystem::symlink_status(file, none);
  const bool is_itself = std::filesystem::exists(old) && !std::filesystem::is_regular_file(old);
  const std::string fresh = is_itself ? file : file + ".new";
  errno = 0;
  std::ofstream out(fresh, std::ios::trunc);
  out << text;
  out.close();
  if (out && (is_itself || std::rename(fresh.c_str(), file.c_str()) == 0)) return {};
  const int cause = errno;
  if (!is_itself) (void)std::remove(fresh.c_str());
  return from_errno(fmt::format("cannot write {}", file), cause);
}

std::string tenants_text(std::span<const Figures> all) { return tenants_csv_of(all); }
std::string tenants_text(std::span<const NamedFill> all) { return csv_of(all); }

// Ctrl-C ends the run from here on, and what is there is printed.
void hear_interrupts() {
  std::signal(SIGINT, [](int) { stop = 1; });
}

template <typename Each>
std::string text_of(const Json& order, std::span<const Each> all, const Json& past) {
  const std::string format = order.value("format", "table");
  if (format == "samples") return csv_of(all);
  if (format == "tenants") return tenants_text(all);
  if (format != "json") return table_of(all);
  Json json = json_of(all);
  if (!past.is_null()) json["history"] = past;
  return json.dump(2) + "\n";
}

template <typename Each>
int print(const Json& order, const std::vector<Each>& all, bool partial, const Json& past = {}) {
  const std::span<const Each> span(all);
  const std::string text = text_of(order, span, past);
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
    return fail(from_errno("cannot write the result", errno), failed);
  if (partial) fmt::print(stderr, "sublet: interrupted: the result is partial\n");
  const std::string html = order.value("html", ""), svg = order.value("svg", "");
  for (const Status& written :
       {write(html, html.empty() ? "" : page_of(span)), write(svg, svg.empty() ? "" : picture_of(span))})
    if (!written) return fail(written.error(), failed);
  return partial ? interrupted : 0;
}

int run_fill(const Json& order, const std::vector<Variant>& variants) {
  const auto jobs = read_trace(order, 1000 * thousandth);
  if (!jobs) return fail(jobs.error(), failed);
  const auto nodes = read_nodes(order.at("nodes"));
  if (!nodes) return fail(nodes.error(), failed);
  hear_interrupts();
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

Figures run_one(const Json& order, const Input& input, const Variant& variant, std::size_t count) {
  Progress progress(order.value("progress", false), variant.name);
  Setting setting{.devices = input.devices,
                  .rules = settings::rules_of(variant.config, std::nullopt),
                  .tenants = input.tenants,
                  .until = input.until};
  setting.link = order.value("link_bytes", setting.link);
  setting.goes_on = [&](std::size_t arrived) {
    return progress.at(static_cast<double>(arrived) / static_cast<double>(count));
  };
  // A job that asks for all of a device gets what the headroom leaves of it.
  std::vector<Job> fitted = input.jobs;
  std::size_t cut = 0;
  for (Job& job : fitted)
    if (job.devices > 0 && std::ranges::find(input.devices, job.vram) != input.devices.end())
      job.vram -= setting.rules.headroom, ++cut;
  if (cut > 0 && setting.rules.headroom > Bytes{} && order.contains("trace"))
    fmt::print(stderr, "sublet: {}: {} job{} for a whole device got {} less, which device.headroom keeps free\n",
               variant.name, cut, cut == 1 ? "" : "s", format_size(setting.rules.headroom));
  const Bytes largest = *std::ranges::max_element(input.devices);
  Outcome outcome = variant.is_baseline ? run_point_in_time(fitted, setting, input.compared) : run(fitted, setting);
  return figures_of(variant.name, fitted, std::move(outcome), largest);
}

void tell_ledger(const Figures& its, const Variant& variant) {
  const std::size_t count = its.outcome.without_ledger;
  if (count == 0) return;
  fmt::print(stderr,
             "sublet: {}: {} job{} within a guarantee started late, since parked programs may take {} of host memory\n"
             "  hint: --set ledger.limit=SIZE, or a larger ledger.user_share\n",
             its.name, count, count == 1 ? "" : "s",
             format_size(settings::rules_of(variant.config, std::nullopt).ledger_limit));
}

// The daemon refuses such a tree. In a history it cuts the quotas, as it did when a device was lost.
Status check_quotas(const Json& order, const Input& input, const std::vector<Variant>& variants) {
  const auto tree = tenants::Tree::from(input.tenants);
  if (!tree || (order.contains("history") && order.value("tenants", "").empty())) return {};
  const Bytes headroom = settings::rules_of(variants.front().config, std::nullopt).headroom;
  Bytes bytes;
  for (const Bytes device : input.devices) bytes += std::max(device - headroom, Bytes{});
  return tree->check_memory(bytes, static_cast<int>(input.devices.size()) * 1000);
}

int run_jobs(const Json& order, const std::optional<Scenario>& scenario, std::vector<Variant> variants) {
  if (const auto devices = parse_devices(order.value("devices", "1x1GiB")); !devices)
    return fail(devices.error(), usage);
  const auto input = read_input(order, scenario);
  if (!input) return fail(input.error(), failed);
  if (const Status fits = check_quotas(order, *input, variants); !fits) return fail(fits.error(), bad_config);
  hear_interrupts();
  for (const std::string& note : input->notes) fmt::print(stderr, "sublet: {}\n", note);
  if (is_nested_or_limited(input->tenants) && std::ranges::any_of(variants, &Variant::is_baseline)) {
    const Error error = bad_request("point-in-time knows no parents and no limits of tenants", "--compare sublet");
    if (order.contains("compare") && !order.at("compare").empty()) return fail(error, failed);
    fmt::print(stderr, "sublet: {}, and is left out\n", error.detail);
    std::erase_if(variants, [](const Variant& variant) { return variant.is_baseline; });
  }
  std::vector<Figures> all;
  bool partial = false;
  for (const Variant& variant : variants) {
    all.push_back(run_one(order, *input, variant, input->jobs.size()));
    if (const std::string& refusal = all.back().outcome.refusal; !refusal.empty())
      fmt::print(stderr, "sublet: {}: {} of {} jobs were refused; the first is {}\n", variant.name, all.back().refused,
                 input->jobs.size(), printable(refusal));
    tell_ledger(all.back(), variant);
    if (partial |= all.back().outcome.partial; partial) break;
  }
  const bool none = std::ranges::all_of(all, [&](const Figures& its) { return its.refused == input->jobs.size(); });
  const int status = print(order, all, partial, input->about);
  return none && status == 0 ? failed : status;
}

bool names_a_file(const Json& order) {
  const auto compared = order.value("compare", std::vector<std::string>());
  return !order.value("config", "").empty() ||
         std::ranges::any_of(compared, [](const std::string& name) { return name.ends_with(".toml"); });
}

int carry_out(const Json& order) {
  std::optional<Scenario> scenario;
  if (order.contains("scenario")) {
    std::optional<std::uint64_t> seed;
    if (order.contains("seed")) seed = order.at("seed").get<std::uint64_t>();
    auto read = read_scenario(order.at("scenario"), seed);
    if (!read) return fail(read.error(), bad_config);
    if (read->keys > 0 && names_a_file(order))
      fmt::print(stderr, "sublet: a configuration file counts in place of the {} key{} of the daemon in the scenario\n",
                 read->keys, read->keys == 1 ? "" : "s");
    scenario = std::move(*read);
  }
  auto variants = variants_of(order, scenario ? &scenario->config : nullptr);
  if (!variants) return fail(variants.error(), bad_config);
  return order.contains("nodes") ? run_fill(order, *variants) : run_jobs(order, scenario, std::move(*variants));
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
