// SPDX-License-Identifier: Apache-2.0
#include "kube/agent.h"

#include "base/clock.h"
#include "base/in_container.h"
#include "base/log.h"
#include "kube/dra_door.h"
#include "kube/events.h"
#include "kube/handout.h"
#include "kube/object_writer.h"
#include "kube/plugin_door.h"
#include "kube/rounds.h"
#include "kube/state_file.h"
#include "kube/state_teller.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <memory>
#include <optional>

namespace sublet::kube {
namespace {

using namespace std::chrono_literals;

constexpr Duration between_looks = 200ms, between_tries = 100ms;

// Signals as a descriptor. Threads that start later inherit the blocked signals.
Fd ending_signals() {
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGTERM);
  ::sigaddset(&set, SIGINT);
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
  return Fd(::signalfd(-1, &set, SFD_CLOEXEC));
}

// Waits until a descriptor is readable, at most `at_most`. Returns its place; -1 after the time.
int wait_for(std::initializer_list<int> descriptors, Duration at_most) {
  std::vector<pollfd> polled;
  for (const int fd : descriptors) polled.push_back({fd, POLLIN, 0});
  const auto timeout = std::chrono::duration_cast<std::chrono::milliseconds>(at_most).count();
  if (::poll(polled.data(), polled.size(), static_cast<int>(timeout)) <= 0) return -1;
  for (std::size_t i = 0; i < polled.size(); ++i)
    if (polled[i].revents != 0) return static_cast<int>(i);
  return -1;
}

// One agent runs on a node. The next one of a rolling update waits for the end of this one. Unset: a signal came.
std::optional<Fd> lock_node(const Settings& settings, int signals) {
  if (const Status made = make_directory(settings.state_dir); !made) {
    log::error("{}", made.error().detail);
    return std::nullopt;
  }
  Fd lock(::open((settings.state_dir + "/lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  for (bool told = false; !lock || ::flock(lock.get(), LOCK_EX | LOCK_NB) != 0; told = true) {
    if (!lock || errno != EWOULDBLOCK) {
      log::error("{}", from_errno(fmt::format("{}/lock", settings.state_dir), errno).detail);
      return std::nullopt;
    }
    if (!told) log::warn("another sublet-kube runs on this node ({}/lock); waiting for its end", settings.state_dir);
    if (wait_for({signals}, between_tries) == 0) return std::nullopt;
  }
  return lock;
}

class Agent {
 public:
  Agent(const Settings& settings, client::Endpoint endpoint, ApiAddress address, int signals)
      : settings_(settings),
        daemon_(std::move(endpoint)),
        api_(std::move(address), settings.token_file, settings.ca_file),
        pods_(settings, api_, daemon_),
        plugin_(settings, daemon_, pods_),
        dra_(settings, daemon_, pods_),
        states_(settings, daemon_),
        objects_(settings, daemon_, pods_, dra_),
        events_(follow_events(daemon_.endpoint())),
        signals_(signals),
        changes_(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK)) {}

  int run() {
    std::int64_t round_at = 0, state_at = 0;  // monotonic
    for (;;) {
      if (monotonic_ns() >= round_at) {
        failures_ = round() ? 0 : failures_ + 1;
        round_at = monotonic_ns() + next_round(failures_).count();
      }
      if (monotonic_ns() >= state_at) {
        states_.look();
        state_at = monotonic_ns() + state_refresh.count();
        objects_.look_at_leases();
      }
      const Duration left = Duration(std::min(round_at, state_at) - monotonic_ns());
      const int woken = wait_for({signals_, changes_.get(), events_->leases.get(), events_->cards.get()},
                                 std::max<Duration>(left, 1ms));
      if (woken == 0) return 0;
      if (woken == 1) forget_changes(), round_at = 0;
      if (woken == 2) state_at = std::min(state_at, drain(events_->leases));
      if (woken == 3) round_at = std::min(round_at, drain(events_->cards));
      if (woken == 2 && !answered_) round_at = 0;  // the daemon is there again
    }
  }

 private:
  const Settings& settings_;
  Daemon daemon_;
  ApiServer api_;
  Pods pods_;
  PluginDoor plugin_;
  DraDoor dra_;
  StateTeller states_;
  ObjectWriter objects_;
  std::shared_ptr<Events> events_;
  int signals_;
  Fd changes_;  // of the directories of the kubelet's sockets
  bool watched_ = false;
  bool ready_ = false;     // the cards have been read
  bool answered_ = false;  // the daemon, at the last round
  Status fits_;            // whether the kubelet takes a list of all units
  int failures_ = 0;       // rounds in a row
  Complaint complaint_;

  bool round() {
    auto cards = daemon_.cards();
    auto program_env = cards ? daemon_.program_environment() : cards.error();
    if (cards && !program_env) cards = program_env.error();
    answered_ = cards.has_value();
    // Without an answer the last cards stand: pods that run are not harmed.
    if (!cards && !ready_) return complaint_.tell(cards.error());
    if (cards) {
      fits_ = check_list_size(*cards, settings_.rules);
      if (!ready_)
        log::info("{} cards; units of {}, overcommit {}", cards->size(), format_size(settings_.rules.unit),
                  settings_.rules.overcommit);
      plugin_.set_cards(*cards, *program_env);
      dra_.set_cards(*cards);
      ready_ = true;
    }
    objects_.look_at_cards();
    // A door that cannot be opened does not close the other one.
    const Status plugin = keep_plugin(), dra = settings_.dra_door ? dra_.open() : Status();
    if (!plugin) return complaint_.tell(plugin.error());
    if (!dra) return complaint_.tell(dra.error());
    if (!cards) return complaint_.tell(cards.error());
    complaint_.clear();
    return true;
  }

  Status keep_plugin() {
    if (!settings_.plugin_door) return {};
    if (!fits_) return fits_;
    const std::string directory = PluginDoor::directory(settings_);
    if (!watched_) {
      if (auto made = make_directory(directory); !made) return made;
      watched_ = ::inotify_add_watch(changes_.get(), directory.c_str(), IN_CREATE | IN_MOVED_TO | IN_DELETE) >= 0;
    }
    if (plugin_.is_enrolled()) return {};
    auto enrolled = plugin_.enrol();
    if (enrolled) log::info("the kubelet knows {}", resource_name(settings_.rules.unit));
    return enrolled;
  }

  // Events of a moment are one look.
  static std::int64_t drain(const Fd& events) {
    std::uint64_t count = 0;
    (void)!::read(events.get(), &count, sizeof count);
    return monotonic_ns() + between_looks.count();
  }

  void forget_changes() const {
    char buffer[8192];
    while (::read(changes_.get(), buffer, sizeof buffer) > 0) {
    }
  }
};

}  // namespace

int run(Settings settings) {
  log::init("sublet-kube", settings.verbose);
  ::signal(SIGPIPE, SIG_IGN);  // OpenSSL writes to connections that the other side may have closed
  const Fd signals = ending_signals();
  auto endpoint = client::resolve_endpoint(settings.socket.empty() ? "" : "unix://" + settings.socket);
  auto address = parse_api_address(settings.api_server);
  if (!endpoint || !address) {
    const Error error = endpoint ? address.error() : endpoint.error();
    log::error("{}; {}", error.detail, error.hint);
    return 2;
  }
  settings.credit_dir = endpoint->path.substr(0, endpoint->path.rfind('/') + 1) + in_container::folder_name;
  const auto lock = lock_node(settings, signals.get());
  if (!lock) return 1;
  if (const Status written = settings.interposer.empty() ? Status() : write_preload_file(settings); !written) {
    log::error("{}", written.error().detail);
    return 1;
  }
  return Agent(settings, *endpoint, *address, signals.get()).run();
}

}  // namespace sublet::kube
