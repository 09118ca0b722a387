// SPDX-License-Identifier: Apache-2.0
// The programs of leases as one life of the daemon sees them, and the messages about them to the actor.
#include "actor.h"
#include "machine.h"

#include <fmt/format.h>

#include <csignal>
#include <cstdlib>

namespace sublet::sim {

using namespace std::chrono_literals;

SimPrograms::SimPrograms(std::shared_ptr<Life> life, SimActor& actor) : life_(std::move(life)), actor_(actor) {
  actor_.when_signalled([this](LeaseId lease, int signal) {
    check_signal(lease);
    strike(lease, signal);
  });
  // A new actor is told at once of all leases that are followed.
  actor_.when_come([this] {
    for (const auto& [lease, followed] : followed_) check_introduced(lease, followed);
  });
}

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
  followed.uid = lease.uid;
  if (!same) followed.number = ++last_number_;
  if (!same) introduce(lease.id, followed);
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

void SimPrograms::book(const core::Lease& lease) { booked_.insert(lease.id); }

void SimPrograms::forget(LeaseId lease) {
  keep_from_swap(lease, {}, false, [](const std::string&) {});
  const auto found = followed_.find(lease);
  if (found != followed_.end() && found->second.introduced)
    actor_.order({.verb = actor::Verb::forget, .lease = lease.number}, {}, [](const actor::Reply&) {});
  followed_.erase(lease);
  booked_.erase(lease);
}

void SimPrograms::forget_others(const std::function<bool(LeaseId)>& keep) {
  std::set<LeaseId> gone;
  for (const auto& [lease, followed] : followed_)
    if (!keep(lease)) gone.insert(lease);
  for (const LeaseId lease : booked_)
    if (!keep(lease)) gone.insert(lease);
  for (const LeaseId lease : gone) forget(lease);
}

void SimPrograms::scan() {
  members_.clear();
  for (const auto& [ref, process] : life_->world.processes()) {
    const bool follows = followed_.contains(process.lease);
    if (!process.lease || (!follows && !booked_.contains(process.lease))) continue;
    members_.emplace(ref, proc::Member{ref, process.lease, follows ? proc::Link::descendant : proc::Link::attached});
  }
}

const proc::Member* SimPrograms::member(ProcessRef process) const {
  const auto found = members_.find(process);
  return found == members_.end() ? nullptr : &found->second;
}

std::vector<ProcessRef> SimPrograms::tree(LeaseId lease) const {
  std::vector<ProcessRef> program, booked;
  for (const auto& [ref, member] : members_) {
    if (member.lease != lease) continue;
    if (proc::is_program(member.link)) program.push_back(ref);
    else if (proc::may_be_parked(member.link)) booked.push_back(ref);
  }
  return program.empty() ? booked : program;
}

// A program is ended only if its end was decided, durably. It is never ended while parked, unless the driver takes too
// long, its card is gone, or a request for its end does not wait.
void SimPrograms::check_signal(LeaseId id) const {
  if (sent_early_.contains(id)) return;  // the store may have failed before the actor sent it
  const core::Lease* lease = life_->store.find(id);
  const bool decided =
      life_->store.ended(id) || (lease != nullptr && lease->stop_requested) || life_->has_unstored_end(id);
  life_->verdict.expect(decided, "signal-undecided",
                        [&] { return to_string(id) + " is to be ended, and nothing durable says so"; });
  life_->verdict.expect(
      lease == nullptr || lease->ended() || !lease->parking || lease->state == core::LeaseState::poisoned ||
          life_->world.hung(id) || life_->world.forced(id) ||
          life_->has_unstored_end(id) ||  // it runs again, and the disk does not know that yet
          // it does not answer repeated resume orders
          (lease->state == core::LeaseState::resuming && lease->parking->told),
      "parked-program-signalled", [&] {
        const auto decided_state = life_->state_of(id);
        return fmt::format("{} is ended while it is {}; it is decided to be {}", to_string(id), to_string(lease->state),
                           decided_state ? to_string(*decided_state) : "gone");
      });
}

bool SimPrograms::inhabited(LeaseId lease) const {
  return std::ranges::any_of(members_, [lease](const auto& entry) { return entry.second.lease == lease; });
}

// Where there is never an actor, some other helper does what it would, and is always there.
bool SimPrograms::signal(LeaseId lease, int signal, std::uint32_t) {
  const auto found = followed_.find(lease);
  if (found == followed_.end()) return false;
  check_signal(lease);
  if (life_->has_unstored_end(lease)) sent_early_.insert(lease);
  if (!life_->world.config().actor) return strike(lease, signal), true;
  found->second.wanted = signal;
  send_wanted(lease, found->second);
  return true;
}

void SimPrograms::strike(LeaseId lease, int signal) {
  Program* program = life_->world.program_of(lease);
  if (program == nullptr || !program->lives) return;
  if (signal != SIGKILL && program->deaf) return;
  // A process that sleeps in the kernel ends later.
  life_->agenda.in(life_->random.time(0ns, life_->faults && life_->random.chance(5) ? 20s : 300ms),
                   [&world = life_->world, lease] {
                     if (Program* its = world.program_of(lease)) world.end_program(*its, 143, true);
                   });
}

// ------------------------------------------------------------------------------------------------ said to the actor

void SimPrograms::introduce_all() {
  for (auto& [lease, followed] : followed_) {
    followed.introduced = followed.ordered = false;
    introduce(lease, followed);
  }
}

void SimPrograms::introduce(LeaseId lease, Followed& followed) {
  if (!followed.owner.keeper || !actor_.ready()) return;
  followed.introduced_to = actor_.number();
  const actor::Order order{.verb = actor::Verb::follow,
                           .lease = lease.number,
                           .uid = followed.uid,
                           .main_pid = followed.owner.process.pid,
                           .main_start = followed.owner.process.start_ticks};
  actor_.order(order, {}, [this, lease, number = followed.number](const actor::Reply& reply) {
    const auto found = followed_.find(lease);
    if (found == followed_.end() || found->second.number != number || reply.code != actor::Code::ok) return;
    found->second.introduced = true;
    send_wanted(lease, found->second);
  });
}

void SimPrograms::send_wanted(LeaseId lease, Followed& followed) {
  if (!followed.introduced || followed.ordered || followed.wanted == 0) return;
  followed.ordered = true;
  const int signal = followed.wanted;
  actor_.order({.verb = actor::Verb::signal, .lease = lease.number, .signal = signal}, {},
               [this, lease, signal](const actor::Reply& reply) { signalled(lease, signal, reply); });
}

// Lost: it is sent when the actor is back, and was introduced to the program. SIGKILL is sent until nothing is left.
void SimPrograms::signalled(LeaseId lease, int signal, const actor::Reply& reply) {
  const auto found = followed_.find(lease);
  if (found == followed_.end() || reply.code == actor::Code::lost) return;
  Followed& followed = found->second;
  followed.ordered = false;
  if (followed.wanted == signal) followed.wanted = 0;
  if (reply.code != actor::Code::ok) {
    events_.unkillable(lease, std::string(to_string(reply.code)));
    if (signal == SIGKILL) {
      later(life_, 2s, [this, lease] {
        const auto again = followed_.find(lease);
        if (again == followed_.end()) return;
        again->second.wanted = SIGKILL;
        send_wanted(lease, again->second);
      });
    }
  }
  send_wanted(lease, followed);
}

void SimPrograms::keep_from_swap(LeaseId lease, ProcessRef process, bool keep, std::function<void(std::string)> done) {
  const auto answered = [this, done = std::move(done)](const actor::Reply& reply) {
    if (reply.code == actor::Code::ok) return done({});
    life_->verdict.met.failed("swap");
    done(reply.path[0] != '\0' ? std::string(reply.path) : std::string(to_string(reply.code)));
  };
  actor::Order order{.verb = actor::Verb::swap, .lease = lease.number};
  if (!keep) {
    if (kept_from_swap_.erase(lease) == 0) return;
    order.flags = actor::let_swap;
    return actor_.order(order, {}, answered);
  }
  const Program* program = life_->world.program_of(lease);
  const bool known = followed_.contains(lease) || (booked_.contains(lease) && program != nullptr);
  if (!known || !life_->world.processes().contains(process)) return answered({.code = actor::Code::gone});
  kept_from_swap_.insert(lease);
  order.uid = followed_.contains(lease) ? followed_.at(lease).uid : program->uid;
  order.main_pid = process.pid;
  order.main_start = process.start_ticks;
  actor_.order(order, {}, answered);
}

void SimPrograms::check_introduced(LeaseId lease, const Followed& followed) const {
  life_->verdict.expect(!followed.owner.keeper || followed.introduced_to == actor_.number(), "not-introduced",
                        [&] { return "nobody told the actor that came of the program of " + to_string(lease); });
}

void SimPrograms::all_are_kept() {
  actor_.order({.verb = actor::Verb::all_named}, {}, [](const actor::Reply&) {});
}

// A program that runs again may be swapped out like any other.
void SimPrograms::check_let(bool store_is_read) const {
  life_->verdict.expect(!store_is_read || !actor_.waits_for_names(), "never-named", [] {
    return "the actor obeyed all orders, and does not know that whatever else it finds kept from swap is to be let be";
  });
  for (const LeaseId id : kept_from_swap_) {
    const core::Lease* lease = life_->store.find(id);
    const bool runs =
        lease != nullptr && lease->state == core::LeaseState::active && life_->state_of(id) == core::LeaseState::active;
    life_->verdict.expect(!runs, "kept-for-nothing", [&] {
      return fmt::format("{} is not parked, and is still kept from the swap device", to_string(id));
    });
  }
}

bool SimPrograms::keeper_alive(LeaseId lease) const {
  const Program* program = life_->world.program_of(lease);
  return program != nullptr && program->keeper_alive && program->lives;
}

// It asks its program itself.
void SimPrograms::wake_keeper(LeaseId lease, std::uint32_t) {
  if (!followed_.contains(lease)) return;
  check_signal(lease);
  strike(lease, SIGTERM);
}

// A call of the HTTP edge, which is not part of a simulation.
Result<machine::Programs::Identified> SimPrograms::identify(std::int32_t, std::optional<std::uint32_t>,
                                                            std::int32_t) const {
  return unavailable("a simulated machine has no processes that anybody could name");
}
Result<proc::CgroupRef> SimPrograms::check_cgroup(const std::string&) const {
  return unavailable("a simulated machine has no cgroups");
}
const proc::ProcRoot& SimPrograms::root() const { std::abort(); }

bool SimPrograms::lives(ProcessRef process) const { return life_->world.processes().contains(process); }

}  // namespace sublet::sim
