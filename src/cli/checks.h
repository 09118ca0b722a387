// SPDX-License-Identifier: Apache-2.0
// The checks of `doctor`. Each function checks one thing and returns the finding and a hint. The judge functions are
// pure; the check functions read this machine and change nothing.
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

// Judges a reply of /v1/status: version, store, devices, warnings.
Checks judge_status(const nlohmann::json& status, std::string_view our_version);

// Judges the output of `sublet-gpu snapshot`.
Checks judge_snapshot(std::string_view output, int exit_status);

// Judges the output of `sublet-gpu support`, and Yama's ptrace_scope.
Check judge_support(std::string_view output, int exit_status);
Check judge_ptrace_scope(std::string_view text);

// Judges the ledger of /v1/status. `kept`: a program in our control group can be kept out of swap. `where`: that group,
// "" if no group here has a limit on swap space.
Check judge_swap(const nlohmann::json& ledger, bool kept, const std::string& where);

// Judges a reply of /v1/enforcer: the policy, the links by which a process is known to belong to a lease, and their
// sources. Null: the enforcer is switched off.
Checks judge_enforcer(const nlohmann::json& enforcer, const nlohmann::json& status);

// Runs sublet-gpu with the daemon's library and environment, or with the configured library if no daemon answers.
Checks check_nvml(const nlohmann::json& status, const std::string& configured_library);
Check check_cgroups();
Check check_identity();
// Checks whether programs started from here can be kept out of swap while they are parked.
Check check_swap(const nlohmann::json& status);
Check check_user(const std::string& socket);  // the rights of this user at the socket
Check check_config(const config::Loaded& loaded);
Check check_ptrace();
// Starts the CUDA driver in sublet-gpu: the library beside the daemon's NVML library, or the configured library.
Check check_driver(const nlohmann::json& status, const std::string& configured_library);

std::string render_checks(const Checks& checks, const Look& look);
nlohmann::json checks_json(const Checks& checks);  // {"checks": […], "failures": N, "warnings": N}
int failures(const Checks& checks);

}  // namespace sublet::cli
