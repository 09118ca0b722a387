// SPDX-License-Identifier: Apache-2.0
#include "cli/simulate_history.h"

#include "cli/config_file.h"
#include "cli/fetch.h"
#include "cli/output.h"

#include <fmt/format.h>

#include <unistd.h>

#include <filesystem>

namespace sublet::cli {
namespace {

using nlohmann::json;

client::Answer<json> ask(client::Client& client, const std::string& target) {
  const auto reply = client.get(target);
  if (!reply) return reply.error();
  auto body = client::parse(*reply);
  if (!body) return body.error();
  return client::Answer<json>(boost::system::in_place_value, std::move(*body));
}

// Living leases come first, then ended ones, the newest end first: pages are asked for until one has an older end.
client::Answer<json> ask_leases(client::Client& client, Time from, bool& whole) {
  json leases = json::array();
  std::string after;
  do {
    auto page = ask(client, "/v1/leases?all=true" + (after.empty() ? "" : "&after=" + client::encode(after)));
    if (!page) return page.error();
    for (const json& lease : list_at(*page, "leases")) {
      const auto ended = time_at(lease, "ended_at");
      if (ended && *ended < from) return client::Answer<json>(boost::system::in_place_value, std::move(leases));
      leases.push_back(lease);
    }
    after = text_at(*page, "next");
  } while (!after.empty());
  whole = true;
  return client::Answer<json>(boost::system::in_place_value, std::move(leases));
}

void find_config(Past& past, const std::filesystem::path& file) {
  if (file.empty()) past.problem = "the daemon does not tell its configuration file";
  else if (::access(file.c_str(), R_OK) == 0) past.config = file.string();
  else if (::access(file.c_str(), F_OK) == 0) past.problem = fmt::format("{} cannot be read", file.string());
}

}  // namespace

client::Answer<Past> ask_past(client::Client& client, Duration period, bool named) {
  Past past;
  const auto status = ask(client, "/v1/status");
  if (!status) return status.error();
  const auto now = parse_rfc3339(text_at(*status, "now"));
  if (!now)
    return client::Failure{client::FailureKind::answered, unavailable("the daemon does not tell its time", ""), 0, {}};
  const Time to = *now;
  find_config(past, config_file(client.endpoint(), *status, named));
  bool whole = false;
  auto leases = ask_leases(client, to - period, whole);
  if (!leases) return leases.error();
  const auto devices = ask(client, "/v1/devices"), tenants = ask(client, "/v1/tenants");
  if (!devices) return devices.error();
  const json report = ask_also(client, fmt::format("/v1/report?since={}s", period / std::chrono::seconds(1)));
  past.document = {{"from", format_rfc3339(to - period)},
                   {"to", format_rfc3339(to)},
                   {"whole", whole},
                   {"all_tenants", flag_at(member(*status, "caller"), "admin")},
                   {"leases", std::move(*leases)},
                   {"devices", list_at(*devices, "devices")},
                   {"tenants", tenants ? list_at(*tenants, "tenants") : json::array()},
                   {"gaps", member(report, "gaps")}};
  return past;
}

}  // namespace sublet::cli
