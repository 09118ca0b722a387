// SPDX-License-Identifier: Apache-2.0
// A worker that records its calls and has containers in name only, and an engine with one card of 24 GiB.
#pragma once

#include "machine/test_probe.h"
#include "stacks/stacks.h"
#include "store/memory_store.h"

#include <gtest/gtest.h>
#include <boost/asio/post.hpp>

#include <deque>

namespace sublet::stacks {

namespace asio = boost::asio;

// Answers each call on the loop. With `holds`, `up` and `down` wait for answer().
class RecordingWorker final : public compose::Worker {
 public:
  explicit RecordingWorker(asio::io_context& io) : io_(io) {}

  // --- the test ---
  std::vector<compose::Description> descriptions;
  std::vector<compose::Sources> described;
  std::vector<compose::Start> ups, pulls;
  std::vector<compose::Stop> downs;
  std::string away;                       // why the worker is away; "": it is there
  std::map<std::string, Error> up_fails;  // by project; half of the containers are created
  std::map<std::string, Error> down_fails;
  bool holds = false;
  std::string health = "healthy";                                     // of new containers
  std::map<std::string, std::vector<compose::Container>> containers;  // by project

  compose::Description& add(const std::string& name, const std::string& extension = {}) {
    compose::Description one;
    one.name = one.project = name;
    one.file = "/srv/" + name + "/compose.yaml";
    one.directory = "/srv/" + name;
    one.services = {{"api", {{"gpu.healthcheck-master", "true"}}, true, 1}};
    one.extension = extension;
    one.resolved = "{\"name\":\"" + name + "\"}";
    return descriptions.emplace_back(std::move(one));
  }
  void answer() {
    const auto first = std::move(waiting_.front());
    waiting_.pop_front();
    first();
  }
  std::size_t waiting() const { return waiting_.size(); }
  // Containers as Compose makes them in `directory`. `stack`: as the overlay says; "": none is there.
  void create(const std::string& project, const std::string& directory, const std::string& stack = {}) {
    compose::Container one;
    one.id = std::string(64, 'a');
    one.service = "api";
    one.name = project + "-api-1";
    one.labels = {{"gpu.healthcheck-master", "true"}, {"com.docker.compose.project.working_dir", directory}};
    if (!stack.empty()) one.labels["sublet.stack"] = stack;
    one.status = "running";
    one.health = health;
    containers[project] = {one};
  }
  void tell(const std::string& project) {
    post([this, project] {
      const auto found = containers.find(project);
      observe_({project, found == containers.end() ? std::vector<compose::Container>() : found->second});
    });
  }
  void tell_engine(bool reachable, const std::string& why = {}) {
    compose::Engine engine;
    engine.reachable = reachable;
    engine.why = why;
    if (reachable) engine.program = "docker compose 2.29.1";
    post([this, engine] { engine_(engine); });
  }

  // --- Worker ---
  void describe(const compose::Sources& sources, Described done) override {
    described.push_back(sources);
    if (!away.empty()) return post([done, error = unavailable(away)] { done(error); });
    std::vector<compose::Description> all = descriptions;
    for (const compose::Adopted& one : sources.adopted)
      for (compose::Description& each : all)
        if (each.name == one.name) each.origin = compose::Origin::adopted;
    post([done, all] { done(all); });
  }
  void up(const compose::Start& start, Done done) override {
    ups.push_back(start);
    call([this, start, done] {
      if (!away.empty()) return done(unavailable(away));
      create(start.project, start.directory, start.name);
      tell(start.project);
      const auto fails = up_fails.find(start.project);
      done(fails == up_fails.end() ? Status() : Status(fails->second));
    });
  }
  void pull(const compose::Start& start, Done done) override {
    pulls.push_back(start);
    post([done] { done({}); });
  }
  void down(const compose::Stop& stop, Done done) override {
    downs.push_back(stop);
    call([this, stop, done] {
      if (!away.empty()) return done(unavailable(away));
      if (const auto fails = down_fails.find(stop.project); fails != down_fails.end()) return done(fails->second);
      containers.erase(stop.project);
      tell(stop.project);
      done({});
    });
  }
  void watch(const std::vector<std::string>& projects) override {
    watched = projects;
    for (const std::string& project : projects) tell(project);
  }
  void on_observation(std::function<void(const compose::Observation&)> listener) override {
    observe_ = std::move(listener);
  }
  void on_engine(std::function<void(const compose::Engine&)> listener) override { engine_ = std::move(listener); }
  std::uint64_t logs(const compose::LogQuery& query, Chunk chunk, Done done) override {
    post([query, chunk, done] {
      chunk("api  | up\n");
      if (!query.follow) done({});
    });
    return 1;
  }
  void stop_logs(std::uint64_t) override {}

  std::vector<std::string> watched;

 private:
  void post(std::function<void()> work) { asio::post(io_, std::move(work)); }
  void call(std::function<void()> work) {
    if (holds) waiting_.push_back(std::move(work));
    else post(std::move(work));
  }

  asio::io_context& io_;
  std::deque<std::function<void()>> waiting_;
  std::function<void(const compose::Observation&)> observe_;
  std::function<void(const compose::Engine&)> engine_;
};

// An empty card; the test sends its snapshots.
class EmptyCard final : public machine::TestProbe {
 public:
  using TestProbe::TestProbe;
  void tell() {
    gpu::GpuDevice shown = card();
    shown.total += 256 * MiB;  // 24 GiB can be leased
    send(std::move(shown));
  }
};

class StacksTest : public testing::Test {
 protected:
  StacksTest() {
    options_.sources.dir = "/srv";
    worker_.add("chat", R"({"vram":"8GiB"})");
    worker_.add("image", R"({"vram":"20GiB"})");
    worker_.add("voice", R"({"vram":"8GiB"})");
    start();
  }
  ~StacksTest() override { engine_->stop(); }

  void start() {
    engine::MachineOptions real;
    real.actor.socket = "/nonexistent";
    engine::Machine machine = engine::real_machine(io_, real);
    auto clock = std::make_unique<ManualClock>(clock_ != nullptr ? now_ : Time{1'795'780'800'000'000'000});
    clock_ = clock.get();
    machine.clock = std::move(clock);
    card_ = new EmptyCard(*clock_);
    machine.probe = std::unique_ptr<machine::Probe>(card_);
    engine::Options options;
    options.exit_dir = "/nonexistent/exits";
    options.boot_id = "boot";
    engine_.emplace(io_, store_, std::move(machine), std::move(options));
    stacks_.emplace(*engine_, worker_, options_);
    engine_->capabilities().add(*stacks_);
    ASSERT_TRUE(engine_->start());
    card_->tell();
    settle();
  }
  // The daemon is killed, and another one starts.
  void restart(Duration after = {}) {
    now_ = clock_->now() + after;
    engine_->stop();
    stacks_.reset();
    engine_.reset();
    start();
  }
  // Until nothing happens any more without time.
  void settle() {
    for (int round = 0; round < 20; ++round) {
      io_.restart();
      io_.poll();
      store_.pump();
    }
  }
  void pass(Duration time) {
    clock_->advance(time);
    card_->tell();
    engine_->call_capabilities();
    settle();
  }

  Status acquire(const std::string& name, std::uint32_t uid = 1000, std::optional<Duration> ttl = {}) {
    Wish wish{.uid = uid, .user = uid == 1000 ? "ana" : "bea", .tenant = "lab", .token_hash = "hash", .ttl = ttl};
    if (at(name).phase == Phase::released) return stacks_->take_over(name, wish);
    const auto submit = stacks_->request(name, wish);
    if (!submit) return submit.error();
    const auto done = engine_->request(*submit, {}, [&](const core::Lease& lease) {
      stacks_->submitted(name, wish, lease);
      return engine::Answered{};
    });
    settle();
    return done ? Status() : Status(done.error());
  }
  Status release(const std::string& name, bool down = false) {
    const Status done = stacks_->release(name, down ? After::down : After::up_if_ready);
    settle();
    return done;
  }
  const Stack& at(const std::string& name) const { return stacks_->find(name)->stack; }
  std::string state(const std::string& name) const { return std::string(stacks_->find(name)->state()); }
  std::string states() const { return state("chat") + " " + state("image") + " " + state("voice"); }
  const core::Lease* lease(const std::string& name) const { return engine_->find(at(name).use.lease); }

  asio::io_context io_{1};
  store::MemoryStore store_;
  RecordingWorker worker_{io_};
  Options options_;
  ManualClock* clock_ = nullptr;  // these two belong to the engine
  EmptyCard* card_ = nullptr;
  Time now_;
  std::optional<engine::Engine> engine_;
  std::optional<Stacks> stacks_;
};

}  // namespace sublet::stacks
