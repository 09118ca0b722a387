// SPDX-License-Identifier: Apache-2.0
#include "simulate/scenario.h"

#include "base/text.h"
#include "config/schema.h"
#include "settings/tenants_of.h"
#include "tenant_tree/tree.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace sublet::simulate {
namespace {

constexpr double most_jobs = 2'000'000;

// The same draw on every machine, from -1 to 1.
double swing(std::mt19937_64& random) { return std::ldexp(static_cast<double>(random() >> 11), -52) - 1; }

Duration times(Duration duration, double factor) {
  return Duration(std::llround(static_cast<double>(duration.count()) * factor));
}

Error in_file(const config::Loaded& loaded, const std::string& entry, std::string detail, std::string hint) {
  return bad_request(fmt::format("{}: {}", config::place_of(loaded, entry), detail), std::move(hint));
}

Result<std::vector<core::Tenant>> valid_tenants(const config::Loaded& loaded) {
  auto all = settings::tenants_of(loaded);
  const auto tree = tenants::Tree::from(all);
  if (tree) return all;
  const auto entry = tree.error().numbers.find(tenants::entry_number);
  const std::int64_t index = entry == tree.error().numbers.end() ? 0 : entry->second;
  return in_file(loaded, fmt::format("tenant[{}]", index), tree.error().detail, tree.error().hint);
}

// Its names are those that a lease may have, and its tenant has an entry if there are any.
Status check_names(const Config::Stream& stream, const std::vector<core::Tenant>& tenants) {
  const std::pair<const char*, const std::string*> names[] = {
      {"name", &stream.name.text}, {"user", &stream.user.text}, {"tenant", &stream.tenant.text}};
  for (const auto& [key, name] : names)
    if (!name->empty() && !is_label(*name))
      return bad_request(fmt::format("{} = '{}' is no name", key, printable(*name)),
                         "1 to 64 printable characters without '/'");
  const std::string& asked = stream.tenant.text;
  std::vector<std::string_view> known;
  for (const core::Tenant& tenant : tenants) known.push_back(tenant.name);
  if (asked.empty() || known.empty() || std::ranges::find(known, asked) != known.end()) return {};
  return bad_request(fmt::format("tenant = '{}' has no entry{}", asked, did_you_mean(asked, known)),
                     "add a [[tenant]] table with this name, or leave `tenant` out");
}

Status add_jobs(std::vector<Job>& jobs, const Config::Stream& stream, const Config::Scenario& scenario,
                std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const Duration until = stream.until > Duration{} ? std::min(stream.until, scenario.length) : scenario.length;
  const double arrivals = stream.every > Duration{} && until > stream.first
                              ? static_cast<double>((until - stream.first).count()) /
                                    static_cast<double>(stream.every.count()) / (1 + stream.spread)
                              : 1;
  if (static_cast<double>(jobs.size()) + arrivals * static_cast<double>(stream.at_once) > most_jobs)
    return bad_request(fmt::format("the streams have more than {:.0f} jobs", most_jobs), "let fewer jobs arrive");
  for (Duration at = stream.first; at < until;) {
    for (std::int64_t i = 0; i < stream.at_once; ++i) {
      Job& job = jobs.emplace_back();
      job.name = stream.name.text;
      job.user = stream.user.text.empty() ? stream.name.text : stream.user.text;
      job.tenant = stream.tenant.text.empty() ? job.user : stream.tenant.text;
      job.arrives = at;
      job.runs = std::max<Duration>(times(stream.runs, 1 + stream.spread * swing(random)), std::chrono::seconds(1));
      job.vram = stream.vram;
      job.devices = static_cast<int>(stream.devices);
      job.tier = core::parse_tier(stream.tier.word).value_or(core::Tier::standard);
      job.priority = static_cast<int>(stream.priority);
      job.pausable = stream.pausable;
    }
    if (stream.every <= Duration{}) break;
    at += std::max<Duration>(times(stream.every, 1 + stream.spread * swing(random)), std::chrono::milliseconds(1));
  }
  return {};
}

}  // namespace

Result<std::vector<core::Tenant>> read_tenants(const std::string& file) {
  const config::Loaded loaded = config::load_named(file, config::tenant_schema());
  if (!loaded.problems.empty()) return config::to_error(loaded.problems, "docs/tenants.md lists the keys");
  return valid_tenants(loaded);
}

Result<Scenario> read_scenario(const std::string& name, std::optional<std::uint64_t> seed) {
  const bool shipped = name == "burst";
  if (!shipped && name.find_first_of("./") == std::string::npos)
    return bad_request(fmt::format("there is no scenario '{}'", printable(name)),
                       "burst ships; or name a file: my.toml");
  const config::Schema& schema = config::scenario_schema();
  const config::Loaded loaded =
      shipped ? config::parse(burst_scenario, "burst", schema) : config::load_named(name, schema);
  if (!loaded.problems.empty())
    return config::to_error(loaded.problems, "docs/placement.md lists the keys of a scenario");
  for (const char* key : {"scenario.devices", "scenario.length"})
    if (!loaded.lines.contains(key))
      return in_file(loaded, "", fmt::format("{} is missing", key), "a scenario states its devices and its length");
  Scenario scenario;
  scenario.config = loaded.config;
  const Config::Scenario& stated = loaded.config.scenario;
  scenario.keys = static_cast<std::size_t>(std::ranges::count_if(
      loaded.lines, [](const auto& line) { return config::find(line.first) != nullptr; }));
  scenario.length = stated.length, scenario.compared = {stated.checkpoint, stated.grace};
  auto devices = parse_devices(stated.devices.text);
  if (!devices)
    return bad_request(fmt::format("{}:{}: scenario.devices: {}", printable(loaded.file),
                                   loaded.lines.at("scenario.devices"), devices.error().detail),
                       devices.error().hint);
  scenario.devices = std::move(*devices);
  auto tenants = valid_tenants(loaded);
  if (!tenants) return tenants.error();
  scenario.tenants = std::move(*tenants);
  if (stated.streams.empty())
    return in_file(loaded, "", "there is no stream of jobs", "write one [[stream]] table for each kind of job");
  const std::uint64_t first_seed = seed.value_or(static_cast<std::uint64_t>(stated.seed)) * 1'000'003;
  for (std::size_t i = 0; i < stated.streams.size(); ++i) {
    Status added = check_names(stated.streams[i], scenario.tenants);
    if (added) added = add_jobs(scenario.jobs, stated.streams[i], stated, first_seed + i);
    if (!added) return in_file(loaded, fmt::format("stream[{}]", i), added.error().detail, added.error().hint);
  }
  if (scenario.jobs.empty())
    return in_file(loaded, "", "no job arrives before the end of the scenario", "let a stream begin earlier");
  std::ranges::stable_sort(scenario.jobs, {}, &Job::arrives);
  return scenario;
}

}  // namespace sublet::simulate
