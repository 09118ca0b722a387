// SPDX-License-Identifier: Apache-2.0
// A whole connection: any bytes go to a real session, on a real engine with one card, on a store in memory. The session
// answers in HTTP and never reports an internal error.
#include "base/clock.h"
#include "base/log.h"
#include "enforcer/enforcer.h"
#include "engine/engine.h"
#include "events/outlets.h"
#include "fuzz.h"
#include "guard/guard.h"
#include "http/routes.h"
#include "http/session.h"
#include "maintenance/maintenance.h"
#include "meter/meter.h"
#include "sessions/sessions.h"
#include "stacks/stacks.h"
#include "store/memory_store.h"
#include "tenants/tenants.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/post.hpp>

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

namespace {

using namespace sublet;
namespace asio = boost::asio;

// An admin, but not root: the input names no process of this user, so that no process can be signalled.
constexpr std::uint32_t nobodys_uid = 4242;
constexpr int most_turns = 1000;

// An unused card of 8 GiB, read on request and then at most once in a loop iteration.
class Card final : public machine::Probe {
 public:
  void start(Events events) override { events_ = std::move(events); }
  void stop() override { wanted_ = false; }
  void take_now() override { wanted_ = true; }
  void set_busy(bool) override {}
  const std::string& library() const override { return text_; }
  const std::string& driver_version() const override { return text_; }
  const std::string& problem() const override { return none_; }

  void read() {
    if (!std::exchange(wanted_, false)) return;
    gpu::GpuDevice card;
    card.uuid = "GPU-1";
    card.name = "Simulated GPU";
    card.simulated = true;
    card.total = 8 * GiB;
    gpu::GpuSnapshot snapshot;
    snapshot.began_ns = snapshot.ended_ns = monotonic_ns();
    snapshot.devices.push_back(std::move(card));
    const std::int64_t asked_ns = snapshot.began_ns;
    events_.snapshot(std::move(snapshot), asked_ns);
  }

 private:
  Events events_;
  bool wanted_ = true;
  const std::string text_ = "fuzz";
  const std::string none_;
};

// Programs that yield and resume at once. Nothing that the input names is called or signalled.
class Willing final : public pause::Cooperation {
 public:
  explicit Willing(asio::io_context& io) : io_(io) {}
  void open(Events) override {}
  void number_from(std::uint64_t) override {}
  void yield(const core::Lease&, const std::string&, Duration, Done done) override { say_done(std::move(done)); }
  void resume(const core::Lease&, Duration, Done done) override { say_done(std::move(done)); }
  pause::YieldOrder order(LeaseId) const override { return {}; }
  Status answer(LeaseId, std::uint64_t, pause::YieldAnswer, const std::string&) override { return {}; }
  std::string answer_file(const core::Lease&) const override { return {}; }
  void adopt(const core::Lease&) override {}
  void forget(const core::Lease&) override {}
  void let_go(LeaseId) override {}

 private:
  void say_done(Done done) {
    asio::post(io_, [done = std::move(done)] {
      pause::ParkOutcome outcome;
      outcome.kind = pause::ParkOutcome::Kind::done;
      done(outcome);
    });
  }
  asio::io_context& io_;
};

// All processes have ended.
class NoProcesses final : public machine::Unleased {
 public:
  Result<std::uint64_t> hold(ProcessRef, std::uint64_t) override { return not_found("it has ended"); }
  void let_go(ProcessRef) override {}
  bool lives(ProcessRef) const override { return false; }
  Result<proc::ProcessRecord> describe(ProcessRef) const override { return not_found("it has ended"); }
  void trace(ProcessRef, std::function<void(const machine::Parents&)>) override {}
  LeaseId lease_above(const std::vector<proc::Ancestor>&) const override { return {}; }
  void open_sources(const std::string&) override {}
  const std::vector<machine::LinkSource>& sources() const override { return sources_; }
  void look(ProcessRef, Done) override {}
  void end(std::uint64_t, ProcessRef, int, const std::vector<ProcessRef>&, Done) override {}
  void close(std::uint64_t) override {}

 private:
  std::vector<machine::LinkSource> sources_;
};

// Knows the stack "chat", once it is adopted.
class OneStack final : public compose::Worker {
 public:
  explicit OneStack(asio::io_context& io) : io_(io) {}
  void describe(const compose::Sources& sources, Described done) override {
    std::vector<compose::Description> all;
    for (const compose::Adopted& one : sources.adopted) {
      if (one.name != "chat") continue;
      compose::Description& chat = all.emplace_back();
      chat.name = chat.project = one.name;
      chat.origin = compose::Origin::adopted;
      chat.file = chat.directory = one.path;
    }
    asio::post(io_, [done = std::move(done), all = std::move(all)] { done(all); });
  }
  void up(const compose::Start&, Done done) override {
    asio::post(io_, [done = std::move(done)] { done({}); });
  }
  void pull(const compose::Start&, Done done) override {
    asio::post(io_, [done = std::move(done)] { done({}); });
  }
  void down(const compose::Stop&, Done done) override {
    asio::post(io_, [done = std::move(done)] { done({}); });
  }
  void watch(const std::vector<std::string>&) override {}
  void on_observation(std::function<void(const compose::Observation&)>) override {}
  void on_engine(std::function<void(const compose::Engine&)>) override {}
  std::uint64_t logs(const compose::LogQuery&, Chunk, Done done) override {
    asio::post(io_, [done = std::move(done)] { done({}); });
    return 1;
  }
  void stop_logs(std::uint64_t) override {}

 private:
  asio::io_context& io_;
};

engine::Machine machine(asio::io_context& io, Card*& card) {
  engine::MachineOptions options;
  options.probe.helper = "/nonexistent/sublet-gpu";
  options.actor.socket = "/nonexistent/sublet-actor.sock";
  engine::Machine machine = engine::real_machine(io, options);
  auto probe = std::make_unique<Card>();
  card = probe.get();
  machine.probe = std::move(probe);
  machine.cooperation = std::make_unique<Willing>(io);
  return machine;
}

enforcer::Verdict verdict() {
  enforcer::Verdict verdict;
  verdict.id = 1;
  verdict.record.process = {4321, 987654};
  verdict.record.uid = nobodys_uid;
  verdict.record.name = "train";
  return verdict;
}

engine::Options options() {
  engine::Options options;
  options.exit_dir = "/nonexistent/exits";
  options.boot_id = "boot";
  return options;
}

std::string answer_to(std::string_view input) {
  asio::io_context io(1);
  store::MemoryStore store;
  Card* card = nullptr;
  engine::Machine parts = machine(io, card);
  machine::Keepers& keepers = *parts.keepers;
  engine::Engine engine(io, store, std::move(parts), options());
  guard::Guard guard(engine, keepers, {.runs = {.host = "unix:///nonexistent", .log_dir = "/nonexistent/logs"}});
  engine.capabilities().add(guard);
  NoProcesses processes;
  enforcer::Enforcer enforcer(engine, processes, {});
  engine.capabilities().add(enforcer);
  sessions::Sessions sessions(engine, keepers,
                              {.runs = {.host = "unix:///nonexistent", .log_dir = "/nonexistent/logs"}});
  engine.capabilities().add(sessions);
  OneStack worker(io);
  stacks::Stacks stacks(engine, worker, {});
  engine.capabilities().add(stacks);
  events::Outlets outlets(io, engine, {});
  meter::Meter meter(io, engine, {.path = ":memory:", .has_thread = false});
  engine.capabilities().add(meter);
  maintenance::Maintenance maintenance(engine);
  engine.capabilities().add(maintenance);
  tenants::Tenants tenants(engine);
  engine.capabilities().add(tenants);
  FUZZ_CHECK(engine.start());
  store::Loaded loaded;
  loaded.rows = {enforcer::to_row(verdict())};
  enforcer.loaded(loaded, engine.now());
  card->read();
  int ends[2];
  FUZZ_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
  asio::generic::stream_protocol::socket socket(io, asio::generic::stream_protocol(AF_UNIX, 0), ends[0]);
  const http::Limits limits;
  http::Usages usages;
  http::Readings readings;
  const engine::Peer peer{.uid = nobodys_uid, .pid = ::getpid(), .user = "fuzz", .role = engine::Role::admin};
  const http::Capabilities capabilities{.guard = &guard,
                                        .enforcer = &enforcer,
                                        .stacks = &stacks,
                                        .sessions = &sessions,
                                        .events = &outlets,
                                        .meter = &meter,
                                        .maintenance = &maintenance,
                                        .tenants = &tenants};
  const std::function<engine::Role(std::uint32_t)> role_of = [](std::uint32_t) { return engine::Role::admin; };
  const std::function<engine::Peer(int)> peer_of = [&peer](int) { return peer; };
  bool ended = false;
  asio::co_spawn(io,
                 http::run_session(std::move(socket), {.engine = engine,
                                                       .readings = readings,
                                                       .peer = peer,
                                                       .id = 1,
                                                       .usage = usages.of(peer.uid),
                                                       .limits = limits,
                                                       .usages = usages,
                                                       .role_of = role_of,
                                                       .peer_of = peer_of,
                                                       .capabilities = capabilities}),
                 [&ended](const std::exception_ptr& failure) {
                   ended = true;
                   if (failure) std::rethrow_exception(failure);
                 });
  (void)!::write(ends[1], input.data(), input.size());
  ::shutdown(ends[1], SHUT_WR);
  std::string output;
  for (int turn = 0; turn < most_turns && !ended; ++turn) {
    io.restart();
    const bool idle = io.poll() == 0;
    store.pump();
    card->read();
    char bytes[65536];
    const ssize_t got = ::read(ends[1], bytes, sizeof bytes);
    if (got > 0) output.append(bytes, static_cast<std::size_t>(got));
    if (idle && got <= 0 && turn > 3) break;  // it waits for time to pass
  }
  ::close(ends[1]);
  engine.stop();
  return output;
}

bool is_path(std::string_view pattern, std::string_view path) {
  const auto take = [](std::string_view& rest) {
    const auto end = std::min(rest.find('/'), rest.size());
    const std::string_view part = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    return part;
  };
  path = path.substr(0, path.find('?'));
  while (!pattern.empty() && !path.empty()) {
    const std::string_view wanted = take(pattern);
    const std::string_view given = take(path);
    if (wanted.starts_with('{') ? given.empty() : wanted != given) return false;
  }
  return pattern.empty() && path.empty();
}

// Seeds for the search: each route has a request that is answered well, or refused for a reason of its own.
void check_seeds() {
  std::vector<std::pair<std::string, std::string>> calls;
  for (const auto& entry : std::filesystem::directory_iterator(FUZZ_CORPUS)) {
    if (!entry.path().filename().string().starts_with("route_")) continue;
    std::ifstream file(entry.path(), std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    // A request may follow the body of the request before it without a line end.
    for (std::size_t at = 0; (at = text.find(" HTTP/1.1\r\n", at)) != std::string::npos; ++at) {
      const auto path = text.rfind(' ', at - 1);
      const auto method = text.find_last_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ", path - 1);
      calls.emplace_back(text.substr(method + 1, path - method - 1), text.substr(path + 1, at - path - 1));
    }
    const std::string output = answer_to(text);
    const bool refused = entry.path().filename().string().starts_with("route_refused");
    std::size_t answers = 0;
    for (std::size_t at = 0; (at = output.find("HTTP/1.1 ", at)) != std::string::npos; at += 9) {
      const char kind = output[at + 9];
      if (kind < '0' || kind > '9') continue;  // inside the text of an answer
      ++answers;
      if (kind == '2' || (refused && kind == '4')) continue;
      std::fprintf(stderr, "%s: %s\n", entry.path().c_str(), output.c_str() + at);
      std::abort();
    }
    FUZZ_CHECK(answers > 0);
  }
  for (const http::Route& route : http::routes()) {
    const bool there = std::any_of(calls.begin(), calls.end(), [&](const auto& call) {
      return call.first == http::to_string(route.method) && is_path(route.path, call.second);
    });
    if (there) continue;
    const std::string_view method = http::to_string(route.method);
    std::fprintf(stderr, "no seed corpus/http/route_* calls %.*s %.*s\n", static_cast<int>(method.size()),
                 method.data(), static_cast<int>(route.path.size()), route.path.data());
    std::abort();
  }
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const int quiet = [] {
    log::init("fuzz", false);
    check_seeds();
    return 0;
  }();
  (void)quiet;
  const std::string output = answer_to(text_of(data, size));
  if (output.empty()) return 0;
  FUZZ_CHECK(output.starts_with("HTTP/1."));
  const std::string status = output.substr(9, 3);
  FUZZ_CHECK(status[0] >= '2' && status[0] <= '4');
  return 0;
}
