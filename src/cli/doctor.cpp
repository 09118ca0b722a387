// SPDX-License-Identifier: Apache-2.0
// `doctor`: what works here and what would help. Useful without a daemon too.
#include "cli/checks.h"
#include "cli/config_file.h"
#include "cli/fetch.h"
#include "config/config.h"

#include <fmt/format.h>

namespace sublet::cli {

namespace {

using Level = Check::Level;

// Reachable and healthy; fills `status` when it could be read.
Check check_daemon(client::Client& client, nlohmann::json& status) {
  const std::string url = client.endpoint().url();
  const auto reply = client.call({"GET", "/v1/status", {}, {}, {}}, std::chrono::seconds(5));
  if (!reply) {
    const auto& failure = reply.error();
    std::string hint = failure.error.hint;
    if (failure.kind == client::FailureKind::no_daemon) {
      hint = "start the daemon: " + client::start_command() +
             "; or try Sublet with a simulated GPU: subletd --dir DIR --sim 1x24GiB, then . DIR/env";
    }
    return {"daemon", Level::fail, failure.error.detail, hint};
  }
  const auto body = client::parse(*reply);
  if (!body)
    return {"daemon", Level::fail, body.error().error.detail,
            "check that subletd listens there, and not another program"};
  status = *body;
  const auto health = client.call({"GET", "/healthz", {}, {}, {}}, std::chrono::seconds(5));
  const auto& daemon = member(status, "daemon");
  const std::string what =
      fmt::format("daemon {} ({}) answers at {}", text_at(daemon, "version"), text_at(daemon, "mode"), url);
  if (!health) return {"daemon", Level::warn, what + ", but reports a fault: " + health.error().error.detail, {}};
  return {"daemon", Level::ok, what, {}};
}

Checks all_checks(const Common& common) {
  Checks checks;
  nlohmann::json status;
  std::filesystem::path file = config::system_file();
  auto client = connect(common);
  if (!client) {
    checks.push_back({"daemon", Level::fail, client.error().detail, client.error().hint});
  } else {
    checks.push_back(check_daemon(*client, status));
    if (client->endpoint().tcp()) {
      checks.push_back({"user", Level::note, "over TCP, the rights are those of the access token",
                        "sublet token ls lists the tokens and their scopes"});
    } else {
      checks.push_back(check_user(client->endpoint().path));
    }
    const auto theirs = config_file(client->endpoint(), status, client::names_daemon(common.host));
    if (!theirs.empty()) file = theirs;
  }
  const auto append = [&](Checks more) { checks.insert(checks.end(), more.begin(), more.end()); };
  if (status.is_object()) append(judge_status(status, SUBLET_VERSION));
  if (status.is_object()) append(judge_enforcer(ask_also(*client, "/v1/enforcer"), status));
  const auto loaded = config::load(file);
  append(check_nvml(status, loaded.problems.empty() ? loaded.config.gpu.nvml : ""));
  checks.push_back(check_config(loaded));
  checks.push_back(check_identity());
  checks.push_back(check_cgroups());
  if (status.is_object()) checks.push_back(check_swap(status));
  checks.push_back(check_driver(status, loaded.problems.empty() ? loaded.config.gpu.driver : ""));
  checks.push_back(check_ptrace());
  return checks;
}

}  // namespace

Action add_doctor(Command command, Common& common) {
  add_json(command, common, "Print the findings as JSON");
  return [&common] {
    const Checks checks = all_checks(common);
    if (common.json) fmt::print("{}\n", checks_json(checks).dump());
    else fmt::print("{}", render_checks(checks, look_for(common)));
    return failures(checks) == 0 ? kOk : kFailed;
  };
}

}  // namespace sublet::cli
