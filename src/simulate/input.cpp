// SPDX-License-Identifier: Apache-2.0
#include "simulate/input.h"

#include "base/text.h"
#include "simulate/history.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>
#include <set>

namespace sublet::simulate {
namespace {

using Json = nlohmann::json;

Result<Input> read_past(const std::string& file) {
  std::ifstream in(file);
  const Json past = Json::parse(in, nullptr, false);
  if (!past.is_object()) return unavailable("the answer of the daemon cannot be read", "try again");
  auto history = read_history(past);
  if (!history) return history.error();
  if (history->jobs.empty()) {
    std::string why;
    for (const std::string& note : history->notes) why += "; " + note;
    return not_found("the daemon knows of no lease that ran in this time" + why,
                     "choose a longer time, or use a trace");
  }
  Input input{.jobs = std::move(history->jobs),
              .devices = std::move(history->devices),
              .tenants = std::move(history->tenants),
              .notes = std::move(history->notes)};
  input.about = {{"from", format_rfc3339(history->from)},
                 {"to", format_rfc3339(history->to)},
                 {"gap_seconds", std::chrono::duration<double>(history->gaps).count()},
                 {"notes", input.notes}};
  return input;
}

Status add_devices(const Json& order, std::vector<Bytes>& devices) {
  for (const std::string& size : order.value("add_devices", std::vector<std::string>())) {
    const auto more = parse_devices("1x" + size);
    if (!more)
      return bad_request(fmt::format("--add-gpu {}: is no size", printable(size)), "for example --add-gpu 24GiB");
    devices.insert(devices.end(), more->begin(), more->end());
  }
  return {};
}

Status leave_out(const Json& order, std::vector<Job>& jobs) {
  for (const std::string& user : order.value("without_users", std::vector<std::string>())) {
    std::set<std::string_view> users;
    for (const Job& job : jobs) users.insert(job.user);
    if (!users.contains(user)) {
      const std::vector<std::string_view> known(users.begin(), users.end());
      return not_found(
          fmt::format("--without-user {}: there is no job of this user{}", printable(user), did_you_mean(user, known)),
          fmt::format("users are {}",
                      fmt::join(users.begin(), std::next(users.begin(), std::min<std::ptrdiff_t>(std::ssize(users), 8)),
                                ", ")));
    }
    std::erase_if(jobs, [&user](const Job& job) { return job.user == user; });
    if (jobs.empty()) return not_found("no job is left", "leave out fewer users");
  }
  return {};
}

}  // namespace

Result<std::vector<Job>> read_trace(const Json& order, Bytes device) {
  const std::string kind = order.at("trace").at("kind"), file = order.at("trace").at("file");
  if (kind == "openb") return read_openb(file);
  if (kind == "philly") return read_philly(file, device);
  return read_jobs(file);
}

Result<Input> read_input(const Json& order, const std::optional<Scenario>& scenario) {
  Input input;
  if (order.contains("history")) {
    auto past = read_past(order.at("history"));
    if (!past) return past.error();
    input = std::move(*past);
  } else if (scenario) {
    input = {.jobs = scenario->jobs,
             .devices = scenario->devices,
             .tenants = scenario->tenants,
             .until = scenario->length,
             .compared = scenario->compared};
  }
  if (const std::string devices = order.value("devices", ""); !devices.empty()) {
    auto parsed = parse_devices(devices);
    if (!parsed) return parsed.error();
    input.devices = std::move(*parsed);
  }
  const Bytes before = input.devices.empty() ? Bytes{} : *std::ranges::max_element(input.devices);
  if (const Status added = add_devices(order, input.devices); !added) return added.error();
  if (input.devices.empty()) return bad_request("there is no device", "for example --gpus 4x24GiB");
  if (order.contains("trace")) {
    auto jobs = read_trace(order, before);
    if (!jobs) return jobs.error();
    input.jobs = std::move(*jobs);
  }
  for (Job& job : input.jobs)
    if (job.vram == Bytes{}) job.vram = before;
  if (const Status left = leave_out(order, input.jobs); !left) return left.error();
  if (const std::string file = order.value("tenants", ""); !file.empty()) {
    auto tenants = read_tenants(file);
    if (!tenants) return tenants.error();
    input.tenants = std::move(*tenants);
  }
  return input;
}

}  // namespace sublet::simulate
