// SPDX-License-Identifier: Apache-2.0
#include "machine.h"

#include "actor.h"
#include "cooperation.h"
#include "parker.h"

#include <csignal>
#include <cstdlib>

namespace sublet::sim {
namespace {

using namespace std::chrono_literals;

class SimClock final : public Clock {
 public:
  SimClock(std::shared_ptr<Life> life, Time wall)
      : life_(std::move(life)), agenda_(life_->agenda), offset_ns_(wall.ns - agenda_.now_ns()) {
    life_->noticed_sleep = agenda_.slept();
  }
  Time now() const override { return {agenda_.now_ns() + offset_ns_}; }
  std::int64_t offset_ns() const override { return offset_ns_; }
  void go_on_from(Time time) override {
    if (time > now()) offset_ns_ = time.ns - agenda_.now_ns();
  }
  Duration take_sleep() override {
    const Duration slept = agenda_.slept() - life_->noticed_sleep;
    if (slept < 1s) return {};
    life_->noticed_sleep = agenda_.slept();
    life_->woke_at_ns = agenda_.now_ns();
    offset_ns_ += slept.count();
    return slept;
  }

 private:
  std::shared_ptr<Life> life_;
  const Agenda& agenda_;
  std::int64_t offset_ns_;
};

class SimAlarm final : public machine::Alarm {
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

class SimHost final : public machine::Host {
 public:
  explicit SimHost(std::shared_ptr<Life> life) : life_(std::move(life)) {}
  core::HostMemory memory(std::span<const ProcessRef> processes,
                          const std::optional<proc::SwapStopper>& by) const override {
    const World& world = life_->world;
    const Config& config = world.config();
    core::HostMemory host;
    host.available = std::max(config.host_memory - life_->world.total_parked(), Bytes{});
    if (life_->faults && life_->random.chance(config.short_host)) host.available = {host.available.count / 8};
    host.pressure = world.ram().pressure();
    host.may_swap = config.swap && processes.empty();  // of the machine alone
    for (const ProcessRef ref : processes) {
      const auto found = world.processes().find(ref);
      if (found != world.processes().end()) host.may_swap |= world.ram().may_swap(found->second.group, by && by->root);
    }
    if (config.headroom_known && !processes.empty()) host.headroom = Bytes{host.available.count / 2};
    return host;
  }
  std::vector<std::string> swap_groups(std::span<const ProcessRef> processes) const override {
    std::vector<std::string> groups;
    for (const ProcessRef ref : processes) {
      const auto found = life_->world.processes().find(ref);
      groups.push_back(found == life_->world.processes().end() ? std::string() : std::to_string(found->second.group));
    }
    return groups;
  }
  machine::HostUse use(std::span<const ProcessRef> processes) const override {
    machine::HostUse sum;
    for (const ProcessRef ref : processes) {
      const auto found = life_->world.processes().find(ref);
      if (found == life_->world.processes().end()) continue;
      sum.resident += life_->world.driver().resident(ref) - found->second.swapped;
      sum.swapped += found->second.swapped;
    }
    return sum;
  }
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

}  // namespace

Parts make_machine(const std::shared_ptr<Life>& life, boost::asio::io_context& io, Time wall) {
  Parts parts{};
  parts.machine.clock = std::make_unique<SimClock>(life, wall);
  parts.machine.alarm = [life] { return std::make_unique<SimAlarm>(life->agenda); };
  parts.machine.host = std::make_unique<SimHost>(life);
  auto probe = std::make_unique<SimProbe>(life);
  auto actor = std::make_unique<SimActor>(life);
  auto programs = std::make_unique<SimPrograms>(life, *actor);
  parts.actor = actor.get();
  parts.probe = probe.get();
  parts.programs = programs.get();
  parts.machine.probe = std::move(probe);
  parts.machine.actor = std::move(actor);
  parts.machine.programs = std::move(programs);
  parts.machine.parker = std::make_unique<SimParker>(life, io, parts.machine.alarm);
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
  if (until_read + until_told > machine::late_after && slow)
    later(life_, machine::late_after, [this] {
      if (!stopped_) events_.late("the driver has not answered for a while");
    });
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
  // A reading that was asked for before the machine slept looks newer than it is: no decision may rest on it.
  const bool noticed = life_->noticed_sleep == life_->agenda.slept() && asked_ns >= life_->woke_at_ns;
  if (slept_ == life_->agenda.slept() && noticed) life_->reading(reading, asked_ns);
  events_.snapshot(std::move(reading), asked_ns);
}

// False readings are always implausible, and never less than the truth: no part of the daemon could recognize other
// lies.
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

}  // namespace sublet::sim
