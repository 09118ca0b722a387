// SPDX-License-Identifier: Apache-2.0
#include "simulate/trace.h"

#include "simulate/csv.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <ctime>
#include <optional>

namespace sublet::simulate {
namespace {

constexpr std::int64_t most_devices = 1024, most_milli = 1'000'000'000;
constexpr Bytes largest_device = 16 * 1024 * GiB;
constexpr Duration longest_trace = std::chrono::hours(24 * 3650);

// Jobs of one moment stay in the order of the file. The first arrives at 0.
Result<std::vector<Job>> by_arrival(const std::string& path, std::vector<Job> jobs) {
  std::ranges::stable_sort(jobs, {}, &Job::arrives);
  const Duration first = jobs.empty() ? Duration() : jobs.front().arrives;
  for (Job& job : jobs) job.arrives -= first;
  if (jobs.empty() || jobs.back().arrives <= longest_trace) return jobs;
  return bad_request(fmt::format("{}: the last job arrives {} after the first, and ten years are the most", path,
                                 format_duration(jobs.back().arrives)),
                     "give all rows the same kind of time");
}

// "2017-10-09 07:01:55" as seconds; nothing for other texts.
std::optional<std::int64_t> parse_moment(std::string_view text) {
  std::tm tm{};
  const std::string copy(text);
  const char* end = ::strptime(copy.c_str(), "%Y-%m-%d %H:%M:%S", &tm);
  if (end == nullptr || *end != '\0') return std::nullopt;
  return ::timegm(&tm);
}

template <typename Value, typename Parse>
Value word(CsvRow& row, std::string_view column, Value otherwise, const Parse& parse, std::string hint) {
  if (row.text(column).empty()) return otherwise;
  const auto value = parse(row.text(column));
  if (!value) row.wrong(column, "is not known", std::move(hint));
  return value.value_or(otherwise);
}

std::optional<bool> parse_truth(std::string_view text) {
  if (text == "true" || text == "yes" || text == "1") return true;
  if (text == "false" || text == "no" || text == "0") return false;
  return std::nullopt;
}

}  // namespace

Result<std::vector<Job>> read_jobs(const std::string& path) {
  std::vector<Job> jobs;
  const auto add = [&jobs](CsvRow& row) {
    Job& job = jobs.emplace_back();
    job.arrives = row.duration("arrives");
    job.runs = row.duration("runs");
    job.vram = row.size("vram");
    if (!row.text("devices").empty()) job.devices = static_cast<int>(row.number("devices", 1, most_devices));
    if (!row.text("priority").empty())
      job.priority = static_cast<int>(row.number("priority", -core::admin_priority_limit, core::admin_priority_limit));
    if (!row.text("user").empty()) job.user = row.text("user");
    job.tenant = row.text("tenant");
    job.name = row.text("name");
    job.tier = word(row, "tier", job.tier, core::parse_tier, "spot, batch, standard, interactive or critical");
    job.pausable = word(row, "pausable", true, parse_truth, "yes or no");
  };
  const Status read = each_row(path, {"arrives", "runs", "vram"}, add,
                               {"devices", "user", "tenant", "tier", "priority", "name", "pausable"});
  if (!read) return read.error();
  return by_arrival(path, std::move(jobs));
}

Result<std::vector<Job>> read_openb(const std::string& path) {
  std::vector<Job> jobs;
  const Status read = each_row(path, {"name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli"}, [&jobs](CsvRow& row) {
    Job& job = jobs.emplace_back();
    job.name = row.required("name");
    job.devices = static_cast<int>(row.number("num_gpu", 0, most_devices));
    const std::int64_t milli = row.number("gpu_milli", 0, 1000);
    job.vram = (job.devices > 0 ? milli : 0) * thousandth;
    job.cpu = row.number("cpu_milli", 0, most_milli);
    job.memory = row.number("memory_mib", 0, most_milli);
  });
  if (!read) return read.error();
  return jobs;
}

Result<std::vector<Job>> read_philly(const std::string& path, Bytes device) {
  std::vector<Job> jobs;
  const Status read = each_row(path, {"timestamp", "duration", "num_gpus", "cluster"}, [&](CsvRow& row) {
    Job& job = jobs.emplace_back();
    const auto moment = parse_moment(row.text("timestamp"));
    if (!moment) row.wrong("timestamp", "is no time", "for example 2017-10-09 07:01:55");
    job.arrives = std::chrono::seconds(moment.value_or(0));
    job.runs = row.duration("duration");
    job.devices = static_cast<int>(row.number("num_gpus", 1, most_devices));
    job.user = job.tenant = row.required("cluster");
    job.vram = device;
  });
  if (!read) return read.error();
  return by_arrival(path, std::move(jobs));
}

Result<std::vector<Node>> read_nodes(const std::string& path) {
  std::vector<Node> nodes;
  const Status read = each_row(path, {"sn", "cpu_milli", "memory_mib", "gpu"}, [&nodes](CsvRow& row) {
    Node& node = nodes.emplace_back();
    node.name = row.required("sn");
    node.devices = static_cast<int>(row.number("gpu", 0, most_devices));
    node.each = 1000 * thousandth;
    node.cpu = row.number("cpu_milli", 0, most_milli);
    node.memory = row.number("memory_mib", 0, most_milli);
  });
  if (!read) return read.error();
  std::ranges::stable_sort(nodes, {}, &Node::name);
  return nodes;
}

Result<std::vector<Bytes>> parse_devices(std::string_view text) {
  const Error wrong =
      bad_request(fmt::format("'{}' names no devices", text), "for example 4x24GiB, or 2x80GiB,1x24GiB");
  std::vector<Bytes> devices;
  while (!text.empty()) {
    const std::string_view part = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), part.size() + 1));
    int count = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), count);
    const auto left = part.substr(static_cast<std::size_t>(end - part.data()));
    if (error != std::errc() || !left.starts_with('x') || count < 1 || count > 100'000) return wrong;
    const auto size = parse_size(left.substr(1));
    if (!size) return wrong;
    if (*size < least_without_unit && is_plain_number(left.substr(1)))
      return bad_request(fmt::format("'{}' has no unit", part), fmt::format("{0}GiB or {0}MiB", part));
    if (*size > largest_device)
      return bad_request(fmt::format("'{}': a device has {} at most", part, format_size(largest_device)),
                         "give the size of one device");
    devices.insert(devices.end(), static_cast<std::size_t>(count), *size);
  }
  return devices.empty() ? Result<std::vector<Bytes>>(wrong) : devices;
}

}  // namespace sublet::simulate
