// SPDX-License-Identifier: Apache-2.0
// subletd: connects the parts and runs the loop.
#include "base/clock.h"
#include "base/descriptors.h"
#include "base/log.h"
#include "config/config.h"
#include "core/transitions.h"
#include "daemon/crashes.h"
#include "daemon/options.h"
#include "daemon/service_manager.h"
#include "daemon/stacks_env.h"
#include "daemon/wiring.h"
#include "enforcer/enforcer.h"
#include "engine/engine.h"
#include "events/outlets.h"
#include "guard/guard.h"
#include "http/compatible_service.h"
#include "http/server.h"
#include "idle/idle.h"
#include "meter/meter.h"
#include "proc/pidfd.h"
#include "sessions/sessions.h"
#include "stacks/stacks.h"
#include "store/sqlite_store.h"

#include <fmt/format.h>
#include <boost/asio/signal_set.hpp>

#include <fcntl.h>
#include <unistd.h>
#include <csignal>
#include <filesystem>

namespace {

using namespace sublet;

int refuse(const Error& error, int status) {
  fmt::print(stderr, "subletd: {}\n", error.detail);
  if (!error.hint.empty()) fmt::print(stderr, "  hint: {}\n", error.hint);
  return status;
}

// nohup ignores SIGHUP, for example.
bool is_ignored(int signal) {
  struct sigaction now {};
  return ::sigaction(signal, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}

// The store may be outside the state directory.
void note_store(const std::string& path, daemon::StartFiles& files) {
  files.note_lock(std::filesystem::path(path).replace_extension(".lock"));
  for (const char* suffix : {"", "-wal", "-shm", ".crashes"}) files.note_own(path + suffix);
  const std::string meter = std::filesystem::path(path).replace_filename("meter.db");
  for (const char* suffix : {"", "-wal"}) files.note_own(meter + suffix);
}

int run(const daemon::Options& options) {
  const auto listener = daemon::passed_socket();
  if (!listener) return refuse(listener.error(), 1);
  daemon::StartFiles files;
  auto places = daemon::prepare(options, files);
  if (!places) return refuse(places.error(), 1);
  const config::Loaded loaded =
      options.config.empty() ? config::load(places->config_file) : config::load_named(places->config_file);
  if (!loaded.problems.empty()) return refuse(config::to_error(loaded.problems), 78);
  Config config = loaded.config;
  if (options.stacks_from_env) {
    const auto variable = [](const char* name) -> const char* { return std::getenv(name); };
    if (auto taken = daemon::stacks_from_env(config, variable); !taken) return refuse(taken.error(), 78);
  }

  boost::asio::io_context io(1);
  const std::string store_path = config.store.path.empty() ? places->state_dir + "/store.db" : config.store.path;
  note_store(store_path, files);
  Failpoints failpoints;
  if (!options.failpoint.empty()) {
    if (auto armed = failpoints.arm(options.failpoint, core::interruptible); !armed) return refuse(armed.error(), 2);
  }
  const store::Limits limits{.keep_ended = config.store.keep_ended,
                             .ended_per_user = static_cast<std::size_t>(config.store.ended_per_user),
                             .events = static_cast<std::size_t>(config.limits.events)};
  store::SqliteStore store(store_path, limits, &failpoints);
  engine::Options wiring = daemon::engine_options(config, *places, options.dir);
  auto root = proc::ProcRoot::open();
  if (!root) return refuse(root.error(), 1);
  if (auto boot_id = root->boot_id()) wiring.boot_id = *boot_id;
  wiring.failpoints = &failpoints;
  const std::string crashes = store_path + ".crashes";
  wiring.rules.safe_mode = daemon::safe_mode_after(daemon::record_crashes(crashes), wall_time());
  engine::Machine machine = engine::real_machine(io, daemon::machine_options(config, *places));
  engine::Keepers& keepers = *machine.keepers;
  engine::Unleased* unleased = machine.unleased.get();
  engine::Engine engine(io, store, std::move(machine), std::move(wiring));
  guard::Guard guard(engine, keepers, daemon::guard_options(config, *places));
  if (config.guard.enabled) engine.add(guard);
  sessions::Sessions sessions(engine, keepers, daemon::sessions_options(config, *places));
  if (config.sessions.enabled) engine.add(sessions);
  std::optional<enforcer::Enforcer> enforcer;
  if (config.enforcer.enabled && unleased != nullptr) {
    enforcer.emplace(engine, *unleased, daemon::enforcer_options(config));
    engine.add(*enforcer);
  }
  std::unique_ptr<compose::Worker> worker;
  std::optional<stacks::Stacks> stacks;
  if (config.stacks.enabled) {
    worker = compose::remote_worker(io, daemon::stacks_worker(config, *places));
    stacks.emplace(engine, *worker, daemon::stacks_options(config));
    engine.add(*stacks);
  }
  std::optional<stacks::OneSlot> one_slot;
  std::optional<http::CompatibleService> compatible;
  std::optional<http::CompatibleServer> compatible_server;
  if (stacks && !config.stacks.http.text.empty()) {
    auto slot = daemon::one_slot_options(config);
    auto address = daemon::compatible_options(config);
    if (!slot || !address) return refuse(slot ? address.error() : slot.error(), 78);
    one_slot.emplace(engine, *stacks, std::move(*slot));
    engine.add(*one_slot);
    compatible.emplace(io, engine, *stacks, *one_slot, config.stacks.http_role.word == "admin");
    compatible_server.emplace(io, engine, std::move(*address), compatible->handler());
  }
  auto idle_rules = daemon::idle_options(config);
  if (!idle_rules) return refuse(idle_rules.error(), 78);
  idle::Idle idle(engine, std::move(*idle_rules));
  if (config.idle.enabled) engine.add(idle);
  if (config.sessions.enabled)
    idle.set_end_session([&sessions](LeaseId lease, const std::string& why) { return sessions.end_idle(lease, why); });
  auto to_tools = daemon::events_options(config);
  if (!to_tools) return refuse(to_tools.error(), 78);
  events::Outlets outlets(io, engine, std::move(*to_tools));
  engine.add(outlets);
  std::optional<meter::Meter> meter;
  if (config.meter.enabled) {
    meter.emplace(io, engine, daemon::meter_options(config, store_path));
    engine.add(*meter);
  }
  http::Server server(io, engine,
                      {.capabilities = {.guard = config.guard.enabled ? &guard : nullptr,
                                        .enforcer = enforcer ? &*enforcer : nullptr,
                                        .stacks = stacks ? &*stacks : nullptr,
                                        .sessions = config.sessions.enabled ? &sessions : nullptr,
                                        .events = &outlets,
                                        .meter = meter ? &*meter : nullptr,
                                        .idle = config.idle.enabled ? &idle : nullptr},
                       .socket_path = places->socket,
                       .socket_mode = 0666,
                       .listener = *listener,
                       .own_uid = ::geteuid(),
                       .own_daemon = places->mode != "system",
                       .tcp_host = config.api.tcp.host,
                       .tcp_port = config.api.tcp.port,
                       .limits = {.connections = static_cast<int>(config.limits.connections),
                                  .waiters = static_cast<int>(config.limits.waiters),
                                  .body = static_cast<std::uint64_t>(config.limits.body.count),
                                  .depth = static_cast<int>(config.limits.depth),
                                  .header_time = config.limits.header_time,
                                  .body_time = config.limits.body_time,
                                  .write_time = config.limits.write_time}});

  if (auto started = engine.start(); !started) return refuse(started.error(), 1);
  if (auto started = server.start(); !started) return refuse(started.error(), 1);
  if (compatible_server) {
    if (auto started = compatible_server->start(); !started) return refuse(started.error(), 1);
  }
  boost::asio::signal_set signals(io, SIGINT, SIGTERM);
  if (!is_ignored(SIGHUP)) signals.add(SIGHUP);  // the terminal of its start was closed
  signals.async_wait([&](const boost::system::error_code&, int) { io.stop(); });
  if (auto announced = daemon::announce_ready(options, *places); !announced) return refuse(announced.error(), 1);
  files.keep();
  const daemon::Watchdog watchdog(io);
  log::info("serving on {}", places->socket);
  io.run();
  if (meter) meter->stop();
  engine.stop();
  daemon::forget_crashes(crashes);
  log::info("stopped; programs keep running");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  occupy_standard_descriptors();
  daemon::Options options;
  if (const int status = daemon::read_options(argc, argv, options); status != 0) return status < 0 ? 0 : status;
  if (options.ready_fd >= 0) ::fcntl(options.ready_fd, F_SETFD, FD_CLOEXEC);
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // a full quota is an error of write(), not the end of the daemon
  daemon::raise_file_limit();
  log::init("subletd", options.verbose);
  try {
    return run(options);
  } catch (const std::exception& error) {
    fmt::print(stderr, "subletd: bug: {}\n", error.what());
    daemon::note_crash(SIGABRT);  // as if nobody had caught the exception
    return 1;
  }
}
