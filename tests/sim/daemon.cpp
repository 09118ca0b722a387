// SPDX-License-Identifier: Apache-2.0
#include "daemon.h"

#include "disk_faults.h"

#include <fmt/format.h>
#include <unistd.h>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>

#include <cerrno>
#include <cstdlib>

namespace sublet::sim {

using namespace std::chrono_literals;

// ------------------------------------------------------------------------------------------------ the disk

namespace {

// Handlers that are ready at one moment; a few hundred is much.
constexpr std::size_t most_at_once = 10'000;

const char* files_in() { return ::access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp"; }
std::string prefix_of(pid_t process) { return fmt::format("sublet-sim-{}", process); }

}  // namespace

Disk::Disk(const Config& config, Agenda& agenda, Verdict& verdict, Oracle& oracle)
    : config_(config), agenda_(agenda), random_(config.seed ^ 0xd15c) {
  // Little is kept, so that much is thrown away.
  const store::Limits limits{.ended_per_user = 40, .remembered_rows = 200, .reasons_per_lease = 20, .events = 300};
  if (config.sqlite) {
    watch_disk_calls();
    fail_disk_call(0, 0);
    std::string name = fmt::format("{}/{}-XXXXXX", files_in(), prefix_of(::getpid()));
    directory_ = ::mkdtemp(name.data());
    sqlite_ = std::make_unique<store::SqliteStore>(directory_ / "store.db", limits, [this] { wake(); });
    faulty_.emplace(*sqlite_);
  } else {
    memory_ = std::make_unique<store::MemoryStore>(limits, [this] { wake(); });
    faulty_.emplace(*memory_);
  }
  watched_.emplace(*faulty_, verdict, [&oracle](const store::Batch& batch) { oracle.intended(batch); });
}

void Disk::remove_files_of(pid_t process) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(files_in(), ignored))
    if (entry.path().filename().string().starts_with(prefix_of(process) + "-"))
      std::filesystem::remove_all(entry.path(), ignored);
}

Disk::~Disk() {
  crash();
  std::error_code ignored;
  if (!directory_.empty()) std::filesystem::remove_all(directory_, ignored);
}

void Disk::wake() {
  if (std::exchange(woken_, true)) return;
  const bool stands = config_.slow_commits > 0 && random_.chance(config_.slow_commits);
  agenda_.in(random_.time(0ns, stands ? Config::standing_disk : config_.slowest_commit), [this] { pump(); });
}

void Disk::pump() {
  woken_ = false;
  // One transaction may hold all that waits, or only the first of it.
  const std::size_t at_most = random_.chance(70) ? SIZE_MAX : 1 + random_.below(3);
  if (memory_) memory_->pump(at_most);
  else sqlite_->pump(at_most);
  if (watched_->backlog().batches > 0) wake();
}

void Disk::crash() {
  if (memory_) memory_->crash();
  else sqlite_->crash();
}

void Disk::fail_next(Random& random) {
  if (sqlite_ && random.chance(60)) return fail_disk_call(1 + random.below(12), random.chance(50) ? EIO : ENOSPC);
  faulty_->fail_commit(1 + random.below(3),
                       random.chance(50) ? store::FaultyStore::Fate::lost : store::FaultyStore::Fate::kept,
                       unavailable("the disk says no"));
}

void Disk::heal() {
  faulty_->fail_commit(0, store::FaultyStore::Fate::lost, unavailable("the last fault"));
  fail_disk_call(0, 0);
}

// ------------------------------------------------------------------------------------------------ the daemon

Daemon::Daemon(const Config& config, World& world, Agenda& agenda, Verdict& verdict, Oracle& oracle, Disk& disk,
               std::uint64_t seed, Time wall, const std::string& boot_id,
               const std::function<void(engine::Engine&, boost::asio::io_context&)>& before_start)
    : config_(config),
      verdict_(verdict),
      oracle_(oracle),
      disk_(disk),
      tenancy_(config),
      life_(new Life{world, agenda, verdict, disk.store(), Random(seed), true, {}, 0, false, {}, {}, {}, {}, {}}),
      parts_(make_machine(life_, io_, wall)) {
  const Clock* clock = parts_.machine.clock.get();
  const auto lease_of = [this](ProcessRef process) {
    const proc::Member* member = parts_.programs->member(process);
    return member == nullptr ? LeaseId{} : member->lease;
  };
  life_->reading = [this, clock, lease_of](const gpu::GpuSnapshot& reading, std::int64_t asked_ns) {
    parts_.programs->check_let(engine_ && engine_->store_problem().empty());
    parts_.programs->scan();  // as the engine is about to
    oracle_.reading(reading, clock->at_monotonic(asked_ns), lease_of);
  };
  life_->restores = [this](LeaseId lease, const std::vector<pause::Room>& room) { oracle_.restores(lease, room); };
  life_->parks = [this](LeaseId lease, std::span<const ProcessRef> weighed) { oracle_.parks(lease, weighed); };
  life_->state_of = [this](LeaseId id) {
    const core::Lease* lease = engine_ ? core::find(engine_->state(), id) : nullptr;
    return lease == nullptr ? std::nullopt : std::optional(lease->state);
  };
  life_->has_unstored_end = [this](LeaseId id) { return engine_ && engine_->executor().ends().has_unstored(id); };
  engine::Options options;
  options.rules = config.rules;
  options.boot_id = boot_id;
  options.exit_dir = "/exits";
  options.mode = "dir";
  engine_.emplace(io_, disk.store(), std::move(parts_.machine), std::move(options));
  oracle_.ended();  // until it has read its store
  disk.store().when_opened([this, clock, &world](Time last) {
    world.list_all();  // of what is not listed when it begins to look it knows nothing
    oracle_.begin(&*engine_, &disk_.store(), std::max(clock->now(), last));
  });
  if (!config.tenants.empty()) engine_->capabilities().add(tenancy_);
  if (before_start) before_start(*engine_, io_);
  const Status started = engine_->start();
  verdict_.expect(started.has_value(), "does-not-start", [&] { return started.error().detail; });
}

Daemon::~Daemon() { oracle_.ended(); }

// No time passes meanwhile: what never comes to rest would keep a processor busy for nothing.
void Daemon::turn() {
  io_.restart();
  std::size_t done = 0;
  while (done < most_at_once && io_.poll_one() > 0) ++done;
  verdict_.expect(done < most_at_once, "never-rests", [this] {
    std::string text = "one thing follows from another without end, at one and the same moment";
    for (const core::PreemptionPlan& plan : engine_->state().preemption.plans) {
      text += fmt::format("; {} has others yield:", to_string(plan.preemptor()));
      for (const core::Victim& victim : plan.victims) text += " " + to_string(victim.lease);
    }
    return text;
  });
}

void Daemon::no_more_faults() { life_->faults = false; }

void Daemon::call(const core::Fact& fact, const std::string& key, Told told) {
  if (key.empty() || !engine_->commits().maybe_remembered(1000, key)) return decide(fact, key, told);
  engine_->commits().remembered(
      1000, key, [this, fact, key, told = std::move(told)](Result<std::optional<store::Remembered>> found) {
        if (!found) return told({.status = 503, .body = {}, .lease = {}});
        if (!*found) return decide(fact, key, told);
        told({.status = (*found)->status, .body = (*found)->body, .lease = {}, .durable = true, .again = true});
      });
}

void Daemon::grant(const core::Grant& grant) {
  if (engine_->set_grant(grant, {.uid = 1000, .key = {}, .fingerprint = {}}, {200, {}})) return;
}

void Daemon::change_tokens(Random& random) {
  const engine::Remember remember{.uid = 1000, .key = fmt::format("token-{}", random.next()), .fingerprint = "f"};
  const auto& tokens = engine_->access().tokens();
  if (random.chance(30)) return engine_->remember(remember, {200, "nothing changed"});
  if (!tokens.empty() && random.chance(50)) {
    (void)engine_->access().revoke_token(tokens.begin()->first, remember, {200, {}});
    return;
  }
  store::AccessToken token{.uid = 1000, .user = "ana", .scope = "submit", .hash = "hash"};
  if (random.chance(50)) token.expires_at = engine_->now() + random.time(1s, 60s);
  (void)engine_->access().add_token(std::move(token), remember,
                                    [](const store::AccessToken&) { return engine::Answered{}; });
}

void Daemon::decide(const core::Fact& asked, const std::string& key, const Told& told) {
  Answer answer;
  core::Fact fact = asked;
  // Host memory is looked at when the pause is decided.
  if (auto* weighs = std::get_if<core::Pause>(&fact))
    weighs->host = engine_->observer().host_memory(engine_->find(weighs->lease));
  const auto* pause = std::get_if<core::Pause>(&fact);
  const auto* resume = std::get_if<core::Resume>(&fact);
  const bool word = pause != nullptr && oracle_.wanted_back(pause->lease, false);
  const auto made =
      engine_->request(fact, {.uid = 1000, .key = key, .fingerprint = "f"}, [&](const core::Lease& lease) {
        answer.lease = lease.id;
        answer.generation = lease.generation;
        const auto* submit = std::get_if<core::Submit>(&fact);
        if (std::holds_alternative<core::Preempt>(fact) || (submit != nullptr && submit->preemption_request))
          oracle_.requested(lease.id);
        return engine::Answered{
            200, fmt::format("{} {} {}", to_string(lease.id), core::to_string(lease.state), lease.generation)};
      });
  if (made && resume != nullptr) oracle_.wanted_back(resume->lease, true);
  if (!made && pause != nullptr) oracle_.wanted_back(pause->lease, word);
  if (!made) {
    if (pause != nullptr) verdict_.met.refused(made.error().detail + " | " + made.error().hint);
    answer.status = http_status(made.error().code);
    answer.body = to_string(made.error().code);
    verdict_.expect(!made.error().detail.empty(), "unexplained", [] { return std::string("a refusal without words"); });
    return told(answer);
  }
  answer.status = made->status;
  answer.body = made->body;
  boost::asio::co_spawn(
      io_,
      [this, answer, told]() mutable -> boost::asio::awaitable<void> {
        answer.durable = co_await engine_->commits().durable(engine_->intended());
        if (answer.durable) oracle_.told(answer.lease, answer.generation);
        told(answer);
      },
      boost::asio::detached);
}

}  // namespace sublet::sim
