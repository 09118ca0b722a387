// SPDX-License-Identifier: Apache-2.0
// subletd: connects the parts and runs the loop.
#include "base/clock.h"
#include "base/descriptors.h"
#include "base/log.h"
#include "config/config.h"
#include "daemon/capabilities.h"
#include "daemon/crashes.h"
#include "daemon/options.h"
#include "daemon/service_manager.h"
#include "daemon/stacks_env.h"
#include "daemon/wiring.h"
#include "engine/engine.h"
#include "http/server.h"
#include "lease/transitions.h"
#include "proc/pidfd.h"
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

http::ServerOptions server_options(const Config& config, const daemon::Places& places, int listener,
                                   const http::Capabilities& capabilities) {
  return {.capabilities = capabilities,
          .socket_path = places.socket,
          .socket_mode = 0666,
          .listener = listener,
          .own_uid = ::geteuid(),
          .own_daemon = places.mode != "system",
          .tcp_host = config.api.tcp.host,
          .tcp_port = config.api.tcp.port,
          .limits = {.connections = static_cast<int>(config.limits.connections),
                     .waiters = static_cast<int>(config.limits.waiters),
                     .body = static_cast<std::uint64_t>(config.limits.body.count),
                     .depth = static_cast<int>(config.limits.depth),
                     .header_time = config.limits.header_time,
                     .body_time = config.limits.body_time,
                     .write_time = config.limits.write_time}};
}

Result<Config> read_config(const daemon::Options& options, const daemon::Places& places) {
  const config::Loaded loaded =
      options.config.empty() ? config::load(places.config_file) : config::load_named(places.config_file);
  if (!loaded.problems.empty()) return config::to_error(loaded.problems);
  Config config = loaded.config;
  if (!options.stacks_from_env) return config;
  const auto variable = [](const char* name) -> const char* { return std::getenv(name); };
  if (auto taken = daemon::stacks_from_env(config, variable); !taken) return taken.error();
  return config;
}

store::Limits store_limits(const Config& config) {
  return {.keep_ended = config.store.keep_ended,
          .ended_per_user = static_cast<std::size_t>(config.store.ended_per_user),
          .events = static_cast<std::size_t>(config.limits.events)};
}

void stop_at(boost::asio::signal_set& signals, boost::asio::io_context& io) {
  if (!is_ignored(SIGHUP)) signals.add(SIGHUP);  // the terminal of its start was closed
  signals.async_wait([&io](const boost::system::error_code&, int) { io.stop(); });
}

int run(const daemon::Options& options) {
  const auto listener = daemon::passed_socket();
  if (!listener) return refuse(listener.error(), 1);
  daemon::StartFiles files;
  auto places = daemon::prepare(options, files);
  if (!places) return refuse(places.error(), 1);
  const auto config = read_config(options, *places);
  if (!config) return refuse(config.error(), 78);

  boost::asio::io_context io(1);
  const std::string store_path = config->store.path.empty() ? places->state_dir + "/store.db" : config->store.path;
  note_store(store_path, files);
  Failpoints failpoints;
  if (!options.failpoint.empty()) {
    if (auto armed = failpoints.arm(options.failpoint, core::interruptible); !armed) return refuse(armed.error(), 2);
  }
  store::SqliteStore store(store_path, store_limits(*config), &failpoints);
  engine::Options wiring = daemon::engine_options(*config, *places, options.dir);
  auto root = proc::ProcRoot::open();
  if (!root) return refuse(root.error(), 1);
  if (auto boot_id = root->boot_id()) wiring.boot_id = *boot_id;
  wiring.failpoints = &failpoints;
  const std::string crashes = store_path + ".crashes";
  wiring.rules.safe_mode = daemon::safe_mode_after(daemon::record_crashes(crashes), wall_time());
  engine::Machine machine = engine::real_machine(io, daemon::machine_options(*config, *places));
  machine::Keepers& keepers = *machine.keepers;
  machine::Unleased* unleased = machine.unleased.get();
  engine::Engine engine(io, store, std::move(machine), std::move(wiring));
  daemon::CapabilitySet capabilities;
  if (auto made = capabilities.make({io, engine, keepers, unleased, *config, *places, store_path}); !made)
    return refuse(made.error(), 78);
  http::Server server(io, engine, server_options(*config, *places, *listener, capabilities.shown()));

  if (auto started = engine.start(); !started) return refuse(started.error(), 1);
  if (auto started = server.start(); !started) return refuse(started.error(), 1);
  if (auto started = capabilities.start(); !started) return refuse(started.error(), 1);
  boost::asio::signal_set signals(io, SIGINT, SIGTERM);
  stop_at(signals, io);
  if (auto announced = daemon::announce_ready(options, *places); !announced) return refuse(announced.error(), 1);
  files.keep();
  const daemon::Watchdog watchdog(io);
  log::info("serving on {}", places->socket);
  io.run();
  capabilities.stop();
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
