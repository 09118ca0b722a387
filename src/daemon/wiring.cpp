// SPDX-License-Identifier: Apache-2.0
#include "daemon/wiring.h"

#include "config/schema.h"

#include <fmt/format.h>

#include <sys/resource.h>
#include <unistd.h>
#include <cstdlib>
#include <filesystem>
#include <vector>

namespace sublet::daemon {
namespace {

// Returns the arguments about sublet-gpu and sublet-keep for an actor that is our child. An actor that is a service has
// its own unit.
std::vector<std::string> parking_words(const Places& places, const std::string& driver) {
  std::vector<std::string> words{"--gpu", places.helper};
  if (!driver.empty()) words.insert(words.end(), {"--driver", driver});
  // The place of the simulated cards, if there are any.
  if (const char* cards = std::getenv("SIMGPU_DIR"))
    words.insert(words.end(), {"--env", fmt::format("SIMGPU_DIR={}", cards)});
  // The actor starts helpers and keepers only for the system's daemon. Every other daemon starts them itself.
  if (places.mode == "system") {
    words.insert(words.end(), {"--records", std::filesystem::path(places.socket).parent_path() / "helpers"});
    if (!places.keeper.empty()) words.insert(words.end(), {"--keep", places.keeper});
    words.insert(words.end(), {"--logs", places.log_dir});
  }
  return words;
}

std::optional<Bytes> host_memory() {
  const long pages = ::sysconf(_SC_PHYS_PAGES), size = ::sysconf(_SC_PAGESIZE);
  return pages > 0 && size > 0 ? std::optional(Bytes{std::int64_t{pages} * size}) : std::nullopt;
}

}  // namespace

engine::Options engine_options(const Config& config, const Places& places, const std::string& dir) {
  engine::Options options;
  options.rules = {.claim_window = config.queue.claim_window,
                   .aging_per_minute = config.queue.aging_per_minute,
                   .reserve_after = config.queue.reserve_after,
                   .linger = config.lease.linger,
                   .reconnect = config.lease.reconnect,
                   .grace = config.lease.grace,
                   .headroom = config.device.headroom,
                   .max_age = config.gpu.max_age,
                   .ledger_limit = config.ledger.limit,
                   .ledger_reserve = config.ledger.reserve,
                   .host_memory = host_memory(),
                   .ledger_user_share = config.ledger.user_share,
                   .ledger_max_pressure = config.ledger.max_pressure,
                   .allow_swap = config.ledger.allow_swap,
                   .verify_timeout = config.pause.verify_timeout,
                   .automatic = config.pause.automatic,
                   .slice_overhead = config.pause.slice_overhead,
                   .min_residency = config.pause.min_residency > Duration{} ? std::optional(config.pause.min_residency)
                                                                            : std::nullopt,
                   .cooldown = config.pause.cooldown,
                   .spot_unused_after = config.pause.spot_unused_after,
                   .yield_timeout = config.pause.yield_timeout,
                   .orphan_after = config.pause.orphan_after,
                   .forget_after = config.gpu.forget_after,
                   .safe_mode = {}};
  options.exit_dir = places.exit_dir;
  options.mode = places.mode;
  options.dir = dir;
  options.config_file = places.config_file;
  options.tcp = config::address_text(config.api.tcp);
  options.program_env = places.program_env;
  options.leases_per_user = static_cast<int>(config.limits.leases);
  return options;
}

guard::Options guard_options(const Config& config, const Places& places) {
  return {.host = "unix://" + places.socket,
          .log_dir = places.log_dir,
          .log_max_size = config.guard.log_max_size,
          .log_keep = static_cast<int>(config.guard.log_keep),
          .soft_cpu = static_cast<int>(config.guard.soft_cpu),
          .ceiling_for_all = config.guard.ceiling.word == "lease"};
}

enforcer::Options enforcer_options(const Config& config) {
  return {.policy = enforcer::parse_policy(config.enforcer.policy.word).value_or(enforcer::Policy::observe),
          .interval = config.enforcer.interval,
          .grace = config.enforcer.grace,
          .accounting = config.enforcer.accounting};
}

engine::MachineOptions machine_options(const Config& config, const Places& places) {
  engine::MachineOptions options;
  options.probe = {.helper = places.helper,
                   .nvml = places.nvml.empty() ? config.gpu.nvml : places.nvml,
                   .timeout = config.gpu.timeout,
                   .interval_busy = config.gpu.interval_busy,
                   .interval_idle = config.gpu.interval_idle};
  const std::string socket = config.actor.socket.empty() ? places.actor_socket : config.actor.socket;
  const std::string driver = places.driver.empty() ? config.gpu.driver : places.driver;
  options.actor = {.helper = places.actor,
                   .socket = socket,
                   .group_name = places.group_name,
                   .system = places.mode == "system",
                   .parking = parking_words(places, driver)};
  options.parker = {.start = {}, .helper = places.helper, .driver = driver};
  // A daemon that serves only its own user parks programs with its own rights, which equal the programs' rights.
  options.actor_parks = places.mode == "system" || !socket.empty();
  options.reconnect = config.lease.reconnect;
  options.answers_dir = places.exit_dir;
  options.keeper = places.keeper;
  return options;
}

void raise_file_limit() {
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
}

}  // namespace sublet::daemon
