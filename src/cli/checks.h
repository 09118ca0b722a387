// SPDX-License-Identifier: Apache-2.0
// What `doctor` finds out. Each function looks at one thing and says what works and what would help. The ones that take
// values are pure; the others read this machine, and change nothing.
#pragma once

#include "cli/output.h"
#include "config/config.h"

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

namespace sublet::cli {

struct Check {
  enum class Level { ok, note, warn, fail };
  std::string name;  // "daemon", "nvml", …: a stable word for scripts
  Level level = Level::ok;
  std::string text;
  std::string hint;  // may be ""
};
using Checks = std::vector<Check>;

std::string_view to_string(Check::Level level);  // "ok", "note", "warn", "fail"

// From the reply of /v1/status: version, store, devices, what the daemon itself warns of.
Checks judge_status(const nlohmann::json& status, std::string_view our_version);

// From what `sublet-gpu snapshot` printed.
Checks judge_snapshot(std::string_view output, int exit_status);

// From what `sublet-gpu support` printed, and from Yama's ptrace_scope.
Check judge_support(std::string_view output, int exit_status);
Check judge_ptrace_scope(std::string_view text);

// From the ledger in the reply of /v1/status. `kept`: of a program in our own control group; `where`: that group, ""
// when none has a limit on swap space.
Check judge_swap(const nlohmann::json& ledger, bool kept, const std::string& where);

// Runs sublet-gpu as the daemon would: with its library and environment, or, without a daemon, with the configured one.
Checks check_nvml(const nlohmann::json& status, const std::string& configured_library);
Check check_cgroups();
Check check_identity();
// Whether what is parked of a program that is started from here would be kept from swap, and who does that.
Check check_swap(const nlohmann::json& status);
Check check_user(const std::string& socket);  // the rights of this user there
Check check_config(const config::Loaded& loaded);
Check check_ptrace();
// Has sublet-gpu start the CUDA driver: the one beside the NVML library that answers the daemon, or the configured one.
Check check_driver(const nlohmann::json& status, const std::string& configured_library);

std::string render_checks(const Checks& checks, const Look& look);
nlohmann::json checks_json(const Checks& checks);  // {"checks": […], "failures": N, "warnings": N}
int failures(const Checks& checks);

}  // namespace sublet::cli
