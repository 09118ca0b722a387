// SPDX-License-Identifier: Apache-2.0
#include "machine.h"

#include "cooperation.h"
#include "parker.h"

#include <csignal>
#include <cstdlib>

namespace sublet::sim {
namespace {

using namespace std::chrono_literals;

class SimClock final : public Clock {
 public:
  SimClock(const Agenda& agenda, Time wall)
      : agenda_(agenda), offset_ns_(wall.ns - agenda.now_ns()), slept_(agenda.slept()) {}
  Time now() const override { return {agenda_.now_ns() + offset_ns_}; }
  std::int64_t offset_ns() const override { return offset_ns_; }
  void go_on_from(Time time) override {
    if (time > now()) offset_ns_ = time.ns - agenda_.now_ns();
  }
  Duration take_sleep() override {
    const Duration slept = agenda_.slept() - slept_;
    if (slept < 1s) return {};
    slept_ = agenda_.slept();
    offset_ns_ += slept.count();
    return slept;
  }

 private:
  const Agenda& agenda_;
  std::int64_t offset_ns_;
  Duration slept_;
};

class SimAlarm final : public engine::Alarm {
 public:
  explicit SimAlarm(Agenda& agenda) : agenda_(agenda) {}
  ~SimAlarm() override { cancel(); }
  void set(Duration from_now, std::function<void()> ring) override {
    cancel();
    id_ = agenda_.in(from_now, std::move(ring));
  }
  void cancel() override { agenda_.cancel(id_); }

 private:
  Agenda& agenda_;
  Agenda::Id id_{};
};

class SimHost final : public engine::Host {
 public:
  explicit SimHost(std::shared_ptr<Life> life) : life_(std::move(life)) {}
  core::HostMemory memory(std::span<const ProcessRef>, const std::optional<proc::SwapStopper>&) const override {
    const Config& config = life_->world.config();
    core::HostMemory host;
    host.available = std::max(config.host_memory - life_->world.total_parked(), Bytes{});
    if (life_->faults && life_->random.chance(config.short_host)) host.available = {host.available.count / 8};
    if (life_->faults && life_->random.chance(config.short_host / 4)) host.pressure = 0.5;
    if (config.headroom_known) host.headroom = Bytes{host.available.count / 2};
    return host;
  }
  engine::HostUse use(std::span<const ProcessRef>) const override { return {}; }
  Status lock_card(const std::string&) override { return {}; }
  void remove_exit_record(const std::string& path) override {
    // Named after its lease; its keeper's note is the only one, so it may go only when the end is durable.
    const auto lease = parse_lease_id(path.substr(path.rfind('/') + 1));
    life_->verdict.expect(lease && life_->store.ended(*lease), "record-removed-early",
                          [&] { return path + " was removed, and the end of its lease is not durable"; });
  }
  void sweep_exit_records(const std::string&, const std::function<bool(LeaseId)>&) override {}

 private:
  std::shared_ptr<Life> life_;
};

// Nobody signals for the simulated programs but they themselves.
class SimActor final : public engine::Actor {
 public:
  void start(std::function<void()>) override {}
  void stop() override {}
  const std::string& problem() const override { return none_; }
  std::string hint() const override { return {}; }
  bool ready() const override { return false; }
  const actor::Reply& introduction() const override { return said_; }
  void fetch(actor::Order, std::span<const int>, Fetched) override {}

 private:
  std::string none_;
  actor::Reply said_;
};

}  // namespace

Parts make_machine(const std::shared_ptr<Life>& life, boost::asio::io_context& io, Time wall) {
  Parts parts{};
  parts.machine.clock = std::make_unique<SimClock>(life->agenda, wall);
  parts.machine.alarm = [life] { return std::make_unique<SimAlarm>(life->agenda); };
  parts.machine.host = std::make_unique<SimHost>(life);
  auto probe = std::make_unique<SimProbe>(life);
  auto programs = std::make_unique<SimPrograms>(life);
  parts.probe = probe.get();
  parts.programs = programs.get();
  parts.machine.probe = std::move(probe);
  parts.machine.actor = std::make_unique<SimActor>();
  parts.machine.programs = std::move(programs);
  parts.machine.parker = std::make_unique<SimParker>(life, io);
  parts.machine.cooperation = std::make_unique<SimCooperation>(life);
  return parts;
}

// ------------------------------------------------------------------------------------------------ the probe

void SimProbe::start(Events events) {
  events_ = std::move(events);
  ask_in(0ns);
}

void SimProbe::ask_in(Duration from_now) {
  life_->agenda.cancel(next_);
  next_ = later(life_, from_now, [this] { ask(); });
}

void SimProbe::take_now() {
  wanted_ = true;
  if (!asked_) ask_in(0ns);
}

void SimProbe::set_busy(bool busy) {
  const bool sooner = busy && !busy_;
  busy_ = busy;
  if (sooner && !asked_) ask_in(1s);
}

// The driver takes its time, and what it says is how things were at one moment of it.
void SimProbe::ask() {
  if (stopped_) return;
  asked_ = true;
  wanted_ = false;
  const std::int64_t asked_ns = life_->agenda.now_ns();
  slept_ = life_->agenda.slept();
  const bool slow = life_->faults && life_->random.chance(5);
  const Duration until_read = life_->random.time(0ns, 3s);
  const Duration until_told = slow ? life_->random.time(0ns, 3s) : life_->random.time(0ns, 2ms);
  const auto read = [this, asked_ns, until_told] {
    if (life_->faults && life_->random.chance(life_->world.config().missing)) life_->world.hide({}, life_->random);
    gpu::GpuSnapshot reading = life_->world.read(life_->agenda.now_ns());
    life_->agenda.stand_still(1ns);  // what is done from now on is done later: at its time it could not be seen
    if (life_->faults && life_->random.chance(life_->world.config().lies)) spoil(reading);
    later(life_, until_told, [this, reading = std::move(reading), asked_ns] { answer(reading, asked_ns); });
  };
  if (slow) later(life_, until_read, read);
  else read();
}

void SimProbe::answer(gpu::GpuSnapshot reading, std::int64_t asked_ns) {
  if (stopped_) return;
  asked_ = false;
  ask_in(wanted_ ? 0s : busy_ ? 1s : 5s);
  if (life_->faults && life_->random.chance(life_->world.config().lies / 4)) {
    problem_ = "the driver does not answer";
    return events_.problem(problem_);
  }
  problem_.clear();
  // One that was asked for before the machine slept looks newer than it is: nothing may rest on it.
  if (slept_ == life_->agenda.slept()) life_->reading(reading, asked_ns);
  events_.snapshot(std::move(reading), asked_ns);
}

// Never plausible, never less: what nobody could tell from the truth is no lie that anybody answers for.
void SimProbe::spoil(gpu::GpuSnapshot& reading) {
  if (reading.devices.empty()) return;
  Random& random = life_->random;
  gpu::GpuDevice& device = random.pick(reading.devices);
  switch (random.below(8)) {
    case 0: reading.devices.clear(); return;
    case 1: device.problem = "unknown error"; return;
    case 2: device.used = device.total + MiB; return;
    case 3: device.used = Bytes{-1}; return;
    case 4: device.total = Bytes{0}; return;
    case 5: reading.devices.push_back(reading.devices.front()); return;
    case 6: device.processes.push_back({.process = {77, 0}, .used = 2 * MiB}); return;
    default: reading.problem = "no library"; return;
  }
}

// ------------------------------------------------------------------------------------------------ programs

Status SimPrograms::open(Events events) {
  events_ = std::move(events);
  life_->world.when_ended([this](LeaseId lease) {
    if (const auto found = followed_.find(lease); found != followed_.end()) look_soon(lease, found->second.number);
  });
  return {};
}

SimPrograms::~SimPrograms() { life_->world.when_ended({}); }

// Its end is noticed within a fraction of a second.
void SimPrograms::look_soon(LeaseId lease, int number) {
  later(life_, life_->random.time(0ns, 200ms), [this, lease, number] { look(lease, number); });
}

void SimPrograms::follow(const core::Lease& lease, bool) {
  Followed& followed = followed_[lease.id];
  const bool same = followed.number != 0 && followed.owner.process == lease.owner.process;
  followed.owner = lease.owner;
  if (!same) followed.number = ++last_number_;
  look_soon(lease.id, followed.number);
}

void SimPrograms::look(LeaseId lease, int number) {
  const auto found = followed_.find(lease);
  if (found == followed_.end() || found->second.number != number) return;
  const Program* program = life_->world.program_of(lease);
  const bool lives = program != nullptr && program->main == found->second.owner.process
                         ? program->lives
                         : life_->world.processes().contains(found->second.owner.process);
  if (lives) return;
  core::ProgramEnded ended{lease, std::nullopt, false};
  if (program != nullptr && program->main == found->second.owner.process && program->keeper_alive) {
    ended.exit_status = program->exit_status;
    ended.by_signal = program->by_signal;
  }
  events_.ended(ended);
}

void SimPrograms::forget(LeaseId lease) { followed_.erase(lease); }

void SimPrograms::forget_others(const std::function<bool(LeaseId)>& keep) {
  std::erase_if(followed_, [&keep](const auto& entry) { return !keep(entry.first); });
}

void SimPrograms::scan() {
  members_.clear();
  for (const auto& [ref, process] : life_->world.processes()) {
    if (!process.lease || !followed_.contains(process.lease)) continue;
    members_.emplace(ref, proc::Member{ref, process.lease, proc::Link::descendant});
  }
}

const proc::Member* SimPrograms::member(ProcessRef process) const {
  const auto found = members_.find(process);
  return found == members_.end() ? nullptr : &found->second;
}

std::vector<ProcessRef> SimPrograms::tree(LeaseId lease) const {
  std::vector<ProcessRef> tree;
  for (const auto& [ref, member] : members_) {
    if (member.lease == lease) tree.push_back(ref);
  }
  return tree;
}

// Nobody is ended but whose end was decided, durably; and never while it is parked, unless the driver takes too long.
void SimPrograms::check_signal(LeaseId id) const {
  const core::Lease* lease = life_->store.find(id);
  const bool decided = life_->store.ended(id) || (lease != nullptr && lease->stop_requested);
  life_->verdict.expect(decided, "signal-undecided",
                        [&] { return to_string(id) + " is to be ended, and nothing durable says so"; });
  life_->verdict.expect(lease == nullptr || lease->ended() || !lease->parking ||
                            lease->state == core::LeaseState::poisoned || life_->world.hung(id),
                        "parked-program-signalled", [&] {
                          return to_string(id) + " is ended while it is " + std::string(to_string(lease->state));
                        });
}

bool SimPrograms::signal(LeaseId lease, int signal, std::uint32_t) {
  if (!followed_.contains(lease)) return false;
  check_signal(lease);
  Program* program = life_->world.program_of(lease);
  if (program == nullptr || !program->lives) return true;
  if (signal != SIGKILL && program->deaf) return true;
  // Who sleeps in the kernel ends later.
  life_->agenda.in(life_->random.time(0ns, life_->faults && life_->random.chance(5) ? 20s : 300ms),
                   [&world = life_->world, lease] {
                     if (Program* its = world.program_of(lease)) world.end_program(*its, 143, true);
                   });
  return true;
}

bool SimPrograms::keeper_alive(LeaseId lease) const {
  const Program* program = life_->world.program_of(lease);
  return program != nullptr && program->keeper_alive && program->lives;
}

void SimPrograms::wake_keeper(LeaseId lease, std::uint32_t asked_by) { signal(lease, SIGTERM, asked_by); }

// What the HTTP edge asks: it is not part of a simulation.
Result<engine::Programs::Identified> SimPrograms::identify(std::int32_t, std::optional<std::uint32_t>,
                                                           std::int32_t) const {
  return unavailable("a simulated machine has no processes that anybody could name");
}
Result<proc::CgroupRef> SimPrograms::check_cgroup(const std::string&) const {
  return unavailable("a simulated machine has no cgroups");
}
const proc::ProcRoot& SimPrograms::root() const { std::abort(); }

bool SimPrograms::lives(ProcessRef process) const { return life_->world.processes().contains(process); }

}  // namespace sublet::sim
