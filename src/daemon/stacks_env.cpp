// SPDX-License-Identifier: Apache-2.0
#include "daemon/stacks_env.h"

#include "base/text.h"

#include <fmt/format.h>

#include <charconv>
#include <string_view>

namespace sublet::daemon {
namespace {

constexpr const char* default_address = "127.0.0.1:8080";

Status take_seconds(const GetVariable& variable, const char* name, Duration& into) {
  const char* text = variable(name);
  if (text == nullptr || *text == '\0') return {};
  double seconds = 0;
  const std::string_view all = text;
  const auto [end, error] = std::from_chars(all.data(), all.data() + all.size(), seconds);
  if (error != std::errc{} || end != all.data() + all.size() || !(seconds > 0) || seconds > 1e9)
    return bad_request(fmt::format("{}={} is no number of seconds above 0", name, printable(all)),
                       "set it to seconds, for example 900");
  into = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
  return {};
}

// An absolute path; relative paths would depend on where the daemon was started.
Status take_path(const GetVariable& variable, const char* name, std::string& into) {
  const char* text = variable(name);
  if (text == nullptr || *text == '\0') return {};
  if (*text != '/')
    return bad_request(fmt::format("{}={} is no absolute path", name, printable(text)), "begin it with '/'");
  into = text;
  return {};
}

}  // namespace

Status stacks_from_env(Config& config, const GetVariable& variable) {
  Config::Stacks& stacks = config.stacks;
  stacks.enabled = true;
  if (stacks.http.text.empty()) stacks.http.text = default_address;
  const char* listed = variable("GPU_SERVICE_CONFIG_YAML");
  std::string services = "/services", runtime = "/runtime", socket;
  if (const Status taken = take_path(variable, "GPU_SERVICES_DIR", services); !taken) return taken;
  if (const Status taken = take_path(variable, "GPU_RUNTIME_DIR", runtime); !taken) return taken;
  if (const Status taken = take_path(variable, "DOCKER_SOCK", socket); !taken) return taken;
  if (listed == nullptr || *listed == '\0') {
    stacks.dir = services;
    stacks.env_file = services + "/.env";
    stacks.env_file_may_lack = true;
  }
  if (const char* named = variable("GPU_ENV_FILE"); named != nullptr && *named != '\0') stacks.env_file_may_lack = true;
  if (const Status taken = take_path(variable, "GPU_ENV_FILE", stacks.env_file); !taken) return taken;
  stacks.mirror = runtime + "/state.json";
  if (!socket.empty()) stacks.engine.text = "unix://" + socket;
  if (const Status taken = take_seconds(variable, "DEFAULT_WAIT_S", stacks.ready_timeout); !taken) return taken;
  if (const Status taken = take_seconds(variable, "DEFAULT_LEASE_TTL_S", stacks.ttl); !taken) return taken;
  if (const Status taken = take_seconds(variable, "QUEUE_CLAIM_WINDOW_S", stacks.claim_window); !taken) return taken;
  if (const char* key = variable("HEALTHCHECK_MASTER_LABEL"); key != nullptr && *key != '\0') stacks.label.text = key;
  if (const char* value = variable("HEALTHCHECK_MASTER_VALUE"); value != nullptr && *value != '\0')
    stacks.label_value.text = value;
  return {};
}

}  // namespace sublet::daemon
