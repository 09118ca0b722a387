// SPDX-License-Identifier: Apache-2.0
#include "beside.h"

#include <fmt/format.h>

#include <algorithm>

namespace sublet::sim {

using namespace std::chrono_literals;
using nlohmann::json;

// ------------------------------------------------------------------------------------------------ keepers

class Beside::SimKeepers final : public machine::Keepers {
 public:
  SimKeepers(Beside& beside, House& house) : beside_(beside), house_(house) {}
  bool ready() const override { return beside_.calm_ || !beside_.random_.chance(5); }
  void start(const machine::KeeperOrder& order, Done done) override {
    beside_.check_durable(json::parse(order.document), order.uid);
    const bool fails = !beside_.calm_ && beside_.random_.chance(5);
    beside_.agenda_.in(beside_.random_.time(1ms, 500ms), [this, order, done, fails, lives = house_.lives()] {
      // The order may have reached a helper that outlives the daemon.
      if (lives.expired()) return;
      if (!fails) beside_.order(order);
      const engine::Engine::Transaction transaction(house_.engine());
      done(fails ? Result<ProcessRef>(unavailable("no rights")) : Result<ProcessRef>(ProcessRef{}));
    });
  }

 private:
  Beside& beside_;
  House& house_;
};

std::unique_ptr<machine::Keepers> Beside::keepers(House& house) { return std::make_unique<SimKeepers>(*this, house); }

// Nothing is started that the store does not know.
void Beside::check_durable(const json& document, std::uint32_t uid) {
  if (document.contains("drain")) return;
  const bool program = document.contains("program");
  const json& name = document.at(program ? "program" : "session");
  const std::string key = program ? guard::row_key(uid, name.at("tag")) : name.at("id").get<std::string>().substr(8);
  const std::string row = disk_.store().row(program ? "program" : "session", key);
  const json stored = json::parse(row.empty() ? "{}" : row);
  const json progress = stored.value("progress", json::object());
  if (document.contains("checkpoint")) return;
  verdict_.expect(progress.value("start", 0ULL) == name.value("start", 0ULL), "started-before-durable",
                  [&] { return fmt::format("start {} of {}, and the store has '{}'", name.dump(), key, row); });
}

void Beside::order(const machine::KeeperOrder& order) {
  auto keeper = std::make_shared<Keeper>();
  keeper->document = json::parse(order.document);
  keeper->uid = order.uid;
  keeper->user = order.user;
  if (keeper->document.contains("drain") || !keeper->document.contains("request")) return;
  keepers_.push_back(keeper);
  next(keeper, random_.time(1ms, 3s));
}

void Beside::next(const std::shared_ptr<Keeper>& keeper, Duration in) {
  agenda_.in(in, [this, weak = std::weak_ptr<Keeper>(keeper)] {
    if (const auto still = weak.lock()) step(still);
  });
}

void Beside::step(const std::shared_ptr<Keeper>& keeper) {
  if (house_ != nullptr && house_->engine().store_problem().empty()) {
    switch (keeper->stage) {
      case Keeper::Stage::begun: ask(*keeper); break;
      case Keeper::Stage::waiting: wait(*keeper); break;
      case Keeper::Stage::running: run(*keeper); break;
      case Keeper::Stage::over: break;
    }
  }
  if (keeper->stage != Keeper::Stage::over) return next(keeper, random_.time(50ms, 1s));
  std::erase(keepers_, keeper);
}

// As POST /v1/leases with the name of a start.
void Beside::ask(Keeper& keeper) {
  const json& request = keeper.document.at("request");
  const bool program = keeper.document.contains("program");
  const json& name = keeper.document.at(program ? "program" : "session");
  const guard::StartName start{program ? name.at("tag").get<std::string>() : "", name.value("number", 0ULL),
                               name.value("start", 0ULL)};
  const std::uint64_t number = program ? 0 : *sessions::parse_id(name.at("id").get<std::string>());
  guard::Guard& guard = house_->guard();
  sessions::Sessions& sessions = house_->sessions();
  engine::Engine& engine = house_->engine();
  const engine::Engine::Transaction transaction(engine);
  const Status may =
      program ? guard.may_submit(keeper.uid, start) : sessions.may_submit(keeper.uid, number, start.start);
  if (!may) {
    keeper.stage = Keeper::Stage::over;
    return;
  }
  core::Submit submit;
  submit.lease.uid = keeper.uid;
  submit.lease.user = submit.lease.tenant = keeper.user;
  submit.lease.consumer = submit.lease.tag = request.value("tag", "");
  submit.lease.vram = Bytes{request.value("vram_bytes", 1LL << 30)};
  submit.lease.owner.kind = core::OwnerKind::connection;
  if (!program) submit.lease.ttl = std::chrono::seconds(request.value("ttl_seconds", 60));
  submit.held = true;
  if (program) submit.successor_of = guard.predecessor(keeper.uid, start.tag);
  const auto made = engine.request(submit, {}, [&](const core::Lease& lease) {
    keeper.lease = lease.id;
    program ? guard.submitted(keeper.uid, start.tag, lease) : sessions.submitted(number, lease);
    return engine::Answered();
  });
  if (made) {
    keeper.stage = Keeper::Stage::waiting;
    keeper.held_by = house_;
    engine.access().hold(keeper.lease, keeper.lease.number + 1'000'000);
    return;
  }
  program ? guard.refused(keeper.uid, start.tag, made.error()) : sessions.refused(number, made.error());
  keeper.stage = Keeper::Stage::over;
}

// It waits for the grant, and starts its program once that is durable.
void Beside::wait(Keeper& keeper) {
  engine::Engine& engine = house_->engine();
  const core::Lease* lease = disk_.store().find(keeper.lease);
  const core::Lease* decided = core::find(engine.state(), keeper.lease);
  if (decided == nullptr || decided->ended()) {
    keeper.stage = Keeper::Stage::over;
    return;
  }
  if (std::exchange(keeper.held_by, house_) != house_)
    engine.access().hold(keeper.lease, keeper.lease.number + 1'000'000);
  if (lease == nullptr || lease->state != decided->state) return;
  if (lease->state == core::LeaseState::offered)
    (void)engine.request(core::Claim{lease->id}, {}, [](const auto&) { return engine::Answered(); });
  if (lease->state != core::LeaseState::active) return;
  std::vector<std::size_t> cards;
  for (const std::string& uuid : lease->devices)
    if (const auto card = world_.card_of(uuid)) cards.push_back(*card);
  if (world_.program_of(lease->id) == nullptr) {
    Program& program = world_.start_program(lease->id, lease->uid, std::move(cards), lease->vram);
    program.deaf = !calm_ && random_.chance(10);
  }
  const Program& program = *world_.program_of(lease->id);
  core::Attach attach{lease->id, lease->generation, {}, true, {}};
  attach.owner = {.kind = core::OwnerKind::process,
                  .process = program.main,
                  .keeper = program.keeper,
                  .exit_record = fmt::format("/exits/{}", to_string(lease->id)),
                  .inode = 0};
  if (engine.request(attach, {}, [](const auto&) { return engine::Answered(); })) keeper.stage = Keeper::Stage::running;
}

void Beside::run(Keeper& keeper) {
  Program* program = world_.program_of(keeper.lease);
  if (program == nullptr || !program->lives) {
    if (program != nullptr && program->keeper_alive)
      (void)house_->engine().request(core::ProgramEnded{keeper.lease, program->exit_status, program->by_signal}, {},
                                     [](const auto&) { return engine::Answered(); });
    keeper.stage = Keeper::Stage::over;
    return;
  }
  const core::Lease* lease = core::find(house_->engine().state(), keeper.lease);
  const bool is_over = lease == nullptr || lease->ended();
  if (is_over || random_.chance(2)) world_.end_program(*program, static_cast<int>(random_.below(2)), false);
  else if (!calm_ && random_.chance(0.5)) program->keeper_alive = false;
}

// ------------------------------------------------------------------------------------------------ containers

class Beside::SimWorker final : public compose::Worker {
 public:
  SimWorker(Beside& beside, House& house) : beside_(beside), house_(house) {}

  void describe(const compose::Sources&, Described done) override {
    std::vector<compose::Description> all;
    for (const char* name : {"chat", "paint", "speech"}) {
      compose::Description one;
      one.name = one.project = name;
      one.directory = std::string("/srv/") + name;
      one.file = one.directory + "/compose.yaml";
      one.origin = compose::Origin::config;
      one.services = {{.name = "api", .labels = {}, .healthcheck = true}};
      one.extension = R"({"vram": "3GiB"})";
      one.resolved = "{}";
      all.push_back(std::move(one));
    }
    const bool away = is_away();
    later([done, all, away] { away ? done(unavailable("the worker is away")) : done(all); });
  }
  void up(const compose::Start& start, Done done) override {
    beside_.check_may_start(start.name);
    const bool away = is_away(), fails = !beside_.calm_ && beside_.random_.chance(5);
    later([this, start, done, away, fails] {
      if (away) return done(unavailable("the worker is away"));
      compose::Container one;
      one.id = std::string(64, 'a');
      one.service = "api";
      one.name = start.project + "-api-1";
      one.labels = {{"com.docker.compose.project.working_dir", start.directory}, {"sublet.stack", start.name}};
      one.status = "running";
      one.health = beside_.calm_ || !beside_.random_.chance(10) ? "healthy" : "unhealthy";
      beside_.containers_[start.project] = {one};
      done(fails ? Status(Error{Code::Stale, "up failed", ""}) : Status());
      tell(start.project);
    });
  }
  void pull(const compose::Start&, Done done) override {
    later([done] { done({}); });
  }
  void down(const compose::Stop& stop, Done done) override {
    const bool away = is_away();
    later([this, stop, done, away] {
      if (away) return done(unavailable("the worker is away"));
      beside_.containers_.erase(stop.project);
      done({});
      tell(stop.project);
    });
  }
  void watch(const std::vector<std::string>& projects) override {
    for (const std::string& project : projects) later([this, project] { tell(project); });
    if (std::exchange(told_engine_, true)) return;
    later([this] { engine_({.reachable = true, .version = "27", .program = "docker compose", .why = {}}); });
  }
  void on_observation(std::function<void(const compose::Observation&)> listener) override {
    observe_ = std::move(listener);
  }
  void on_engine(std::function<void(const compose::Engine&)> listener) override { engine_ = std::move(listener); }
  std::uint64_t logs(const compose::LogQuery&, Chunk chunk, Done done) override {
    later([chunk, done] { chunk("api | up\n"), done({}); });
    return 1;
  }
  void stop_logs(std::uint64_t) override {}

 private:
  bool is_away() { return !beside_.calm_ && beside_.random_.chance(5); }
  void tell(const std::string& project) {
    const auto found = beside_.containers_.find(project);
    observe_({project, found == beside_.containers_.end() ? std::vector<compose::Container>() : found->second});
  }
  template <typename What>
  void later(What what) {
    beside_.agenda_.in(beside_.random_.time(1ms, 5s), [this, what = std::move(what), lives = house_.lives()] {
      if (lives.expired()) return;
      const engine::Engine::Transaction transaction(house_.engine());
      what();
    });
  }

  Beside& beside_;
  House& house_;
  bool told_engine_ = false;
  std::function<void(const compose::Observation&)> observe_;
  std::function<void(const compose::Engine&)> engine_;
};

std::unique_ptr<compose::Worker> Beside::worker(House& house) { return std::make_unique<SimWorker>(*this, house); }

// Containers start for a lease whose grant is durable.
void Beside::check_may_start(const std::string& stack) {
  const std::string row = disk_.store().row("stack", stack);
  const json stored = json::parse(row.empty() ? "{}" : row);
  const LeaseId id{stored.value("use", json::object()).value("lease", 0ULL)};
  const core::Lease* lease = disk_.store().find(id);
  verdict_.expect(lease != nullptr && lease->granted_at && !lease->ended(), "stack-started-before-durable",
                  [&] { return fmt::format("{}: the store has '{}'", stack, row); });
}

void Beside::reboot() {
  keepers_.clear();
  containers_.clear();
}

bool Beside::is_empty() const { return keepers_.empty() && containers_.empty(); }

std::string Beside::left() const {
  std::string text;
  for (const auto& keeper : keepers_)
    text += fmt::format("a keeper of {} in stage {}; ", keeper->document.value("program", json()).dump(),
                        static_cast<int>(keeper->stage));
  for (const auto& [project, all] : containers_) text += fmt::format("containers of {}; ", project);
  return text;
}

}  // namespace sublet::sim
