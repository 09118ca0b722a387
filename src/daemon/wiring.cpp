// SPDX-License-Identifier: Apache-2.0
#include "daemon/wiring.h"

#include "base/accounts.h"
#include "base/in_container.h"
#include "base/number.h"
#include "compose/protocol.h"
#include "config/schema.h"
#include "settings/rules_of.h"

#include <fmt/format.h>
#include <boost/asio/ip/address.hpp>

#include <pwd.h>
#include <sys/resource.h>
#include <unistd.h>
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <tuple>
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
  options.rules = settings::rules_of(config, host_memory());
  options.exit_dir = places.exit_dir;
  options.mode = places.mode;
  options.dir = dir;
  options.config_file = places.config_file;
  options.tcp = config::address_text(config.api.tcp);
  options.program_env = places.program_env;
  options.credit_socket = places.credit_socket;
  options.gpu_names = config.gpu.names.word;
  options.unified_headroom = config.device.unified_headroom;
  options.agents = config.api.agents.names;
  options.leases_per_user = static_cast<int>(config.limits.leases);
  for (const Config::Tenant& each : config.tenants.users) options.tenants.users[each.name.text] = each.tenant.text;
  for (const Config::Tenant& each : config.tenants.groups)
    options.tenants.groups.emplace_back(each.name.text, each.tenant.text);
  return options;
}

static engine::RunOptions run_options(const Config& config, const Places& places) {
  return {.host = "unix://" + places.socket,
          .log_dir = places.log_dir,
          .log_max_size = config.guard.log_max_size,
          .log_keep = static_cast<int>(config.guard.log_keep),
          .log_user_max = config.guard.log_user_max};
}

limit::Options limit_options(const Config& config) { return {.required = config.interposer.required}; }

guard::Options guard_options(const Config& config, const Places& places) {
  return {.runs = run_options(config, places),
          .soft_cpu = static_cast<int>(config.guard.soft_cpu),
          .ceiling_for_all = config.guard.ceiling.word == "lease"};
}

sessions::Options sessions_options(const Config& config, const Places& places) {
  return {.runs = run_options(config, places),
          .most_sessions = static_cast<std::size_t>(config.limits.sessions),
          .ttl = config.sessions.ttl,
          .max_continuous = config.sessions.max_continuous,
          .keep_parked = config.sessions.keep_parked,
          .checkpoint_timeout = config.sessions.checkpoint_timeout};
}

enforcer::Options enforcer_options(const Config& config) {
  return {.policy = enforcer::parse_policy(config.enforcer.policy.word).value_or(enforcer::Policy::observe),
          .interval = config.enforcer.interval,
          .grace = config.enforcer.grace,
          .start_grace = config.enforcer.start_grace,
          .accounting = config.enforcer.accounting};
}

// The enforcer's rules for processes without a lease hold for processes on devices that their lease does not have.
follow::Options follow_options(const Config& config, const enforcer::Enforcer* enforcer) {
  follow::Options options{.interval = config.enforcer.interval, .start_grace = config.enforcer.start_grace};
  if (enforcer == nullptr) return options;
  options.treatment = [enforcer](ProcessRef process) {
    using follow::Treatment;
    const auto policy = enforcer->policy_towards(process);
    if (!policy) return Treatment::ignore;
    switch (*policy) {
      case enforcer::Policy::observe: return Treatment::observe;
      case enforcer::Policy::warn:
      case enforcer::Policy::adopt: return Treatment::tell;
      case enforcer::Policy::enforce: return Treatment::end;
    }
    return Treatment::observe;
  };
  return options;
}

stacks::Options stacks_options(const Config& config, const Places& places) {
  const char* listed = std::getenv("GPU_SERVICE_CONFIG_YAML");
  return {.sources = {.dir = config.stacks.dir,
                      .config = listed != nullptr ? listed : "",
                      .env_file = config.stacks.env_file,
                      .env_file_may_lack = config.stacks.env_file_may_lack,
                      .adopted = {}},
          .label = {config.stacks.label.text, config.stacks.label_value.text},
          .command_timeout = config.stacks.command_timeout,
          .ready_timeout = config.stacks.ready_timeout,
          .ttl = config.stacks.ttl,
          .credit = std::filesystem::path(places.credit_socket).replace_filename(in_container::folder_name)};
}

Result<stacks::OneSlotOptions> one_slot_options(const Config& config) {
  stacks::OneSlotOptions options{.uid = ::geteuid(),
                                 .user = config.stacks.http_user.text,
                                 .claim_window = config.stacks.claim_window,
                                 .mirror = config.stacks.mirror,
                                 .mirror_tokens = config.stacks.http_role.word == "admin"};
  if (options.user.empty()) {
    const auto own = account_named(options.uid);
    options.user = own && *own ? **own : fmt::format("{}", options.uid);
    return options;
  }
  const auto found = look_up<passwd>([&](passwd* entry, char* memory, std::size_t size, passwd** result) {
    return ::getpwnam_r(options.user.c_str(), entry, memory, size, result);
  });
  if (!found) return found.error();
  if (!*found)
    return bad_request(fmt::format("stacks.http_user: there is no user '{}'", options.user),
                       "name a user of this machine, or leave it empty");
  options.uid = (*found)->entry.pw_uid;
  return options;
}

Result<http::CompatibleOptions> compatible_options(const Config& config) {
  const std::string& text = config.stacks.http.text;
  const auto colon = text.rfind(':');
  const auto port = parse_number<std::uint16_t>(colon == std::string::npos ? "" : text.substr(colon + 1));
  std::string host = text.substr(0, colon);
  if (host == "localhost") host = "127.0.0.1";
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  boost::system::error_code wrong;
  const auto address = boost::asio::ip::make_address(host, wrong);
  if (!port || *port == 0 || wrong)
    return bad_request(fmt::format("stacks.http: '{}' is not an address with a port", text), "write 127.0.0.1:8080");
  if (address.is_unspecified())
    return bad_request("stacks.http: with every address, callers would be refused by their Host header",
                       "name one address, for example that of Docker's bridge");
  return http::CompatibleOptions{.host = host,
                                 .port = *port,
                                 .needs_token = !address.is_loopback(),
                                 .body = static_cast<std::uint64_t>(config.limits.body.count)};
}

// The system's daemon has no right to the engine's socket: its worker is a service. Every other daemon starts the
// worker itself.
compose::RemoteOptions stacks_worker(const Config& config, const Places& places) {
  const bool service = places.mode == "system" && ::geteuid() != 0;
  return {.socket = service ? compose::default_socket : "",
          .program = places.stacks,
          .engine = config.stacks.engine.text,
          .compose = config.stacks.compose,
          .runtime = std::filesystem::path(places.socket).parent_path() / "compose"};
}

Result<events::Options> events_options(const Config& config) {
  events::Options options;
  if (!config.events.redis.text.empty()) {
    auto address = events::parse_redis_url(config.events.redis.text);
    if (!address) return bad_request("events.redis: " + address.error().detail, address.error().hint);
    options.redis = std::move(*address);
  }
  for (const Config::Webhook& each : config.events.webhooks) {
    auto webhook = events::parse_webhook({each.name.text, each.url.text, each.types.text, each.user.text,
                                          each.tier.word, each.format.word, each.secret.text});
    if (!webhook) return webhook.error();
    options.webhooks.push_back(std::move(*webhook));
  }
  return options;
}

namespace {

Result<idle::Rule> idle_rule(const std::string& table, const Text& warn, const Text& pause, const Text& end) {
  idle::Rule rule;
  const std::tuple<const char*, const Text&, std::optional<Duration>&> parts[] = {
      {"warn", warn, rule.warn}, {"pause", pause, rule.pause}, {"end", end, rule.end}};
  for (const auto& [name, text, into] : parts) {
    const auto parsed = idle::parse_part(text.text);
    if (!parsed)
      return bad_request(fmt::format("{}{}: {}", table, name, parsed.error().detail),
                         "write a duration such as 10m, or off");
    into = *parsed;
  }
  return rule;
}

Result<idle::NamedRule> named_idle_rule(const Config::IdleRule& given) {
  const std::string table = fmt::format("idle.rule '{}'", given.name.text);
  auto rule = idle_rule(table + ": ", given.warn, given.pause, given.end);
  if (!rule) return rule.error();
  using Of = idle::NamedRule::Of;
  std::vector<idle::NamedRule> named;
  if (given.tier.word != "any") named.push_back({Of::tier, given.tier.word, *rule});
  if (!given.tenant.text.empty()) named.push_back({Of::tenant, given.tenant.text, *rule});
  if (!given.consumer.text.empty()) named.push_back({Of::consumer, given.consumer.text, *rule});
  if (named.size() != 1)
    return bad_request(fmt::format("{} names {} of tier, tenant and consumer", table, named.size()),
                       "name exactly one of them");
  return named.front();
}

}  // namespace

Result<idle::Options> idle_options(const Config& config) {
  idle::Options options;
  options.always = config.idle.when.word == "always";
  auto standard = idle_rule("idle.", config.idle.warn, config.idle.pause, config.idle.end);
  auto sessions = idle_rule("sessions.idle_", {}, config.sessions.idle_pause, config.sessions.idle_end);
  if (!standard || !sessions) return standard ? sessions.error() : standard.error();
  options.rules = {*standard, *sessions, {}};
  for (const Config::IdleRule& given : config.idle.rules) {
    auto named = named_idle_rule(given);
    if (!named) return named.error();
    options.rules.named.push_back(std::move(*named));
  }
  return options;
}

maintenance::Causes cordon_causes(const Config& config) {
  maintenance::Causes causes;
  for (const std::string& word : config.gpu.cordon_on.words)
    if (const auto cause = maintenance::parse_cause(word)) causes.insert(*cause);
  return causes;
}

// A device that does not change is read at the idle interval.
meter::Options meter_options(const Config& config, const std::string& store_path) {
  return {.path = std::filesystem::path(store_path).replace_filename("meter.db"),
          .keep_minutes = config.meter.keep_minutes,
          .keep_hours = config.meter.keep_hours,
          .patience = std::max(config.gpu.max_age, 2 * config.gpu.interval_idle)};
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
