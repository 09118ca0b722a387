// SPDX-License-Identifier: Apache-2.0
// The part of LocalPrograms that gives orders to the actor: which programs exist, and which should end.
#include "base/log.h"
#include "machine/local_program.h"
#include "machine/local_programs.h"

#include <fmt/format.h>
#include <boost/asio/post.hpp>

#include <csignal>
#include <cstring>
#include <utility>

namespace sublet::machine {

std::shared_ptr<LocalPrograms::Program> LocalPrograms::find(LeaseId lease) const {
  const auto found = programs_.find(lease);
  return found == programs_.end() ? nullptr : found->second;
}

void LocalPrograms::introduce_all() {
  actor_looks_ = false;
  for (const auto& [id, program] : programs_) {
    program->introduced = program->ordered = false;
    program->refusal.clear();
    introduce(program);
  }
}

// Introduces only proven programs that Sublet started. The actor proves them again. If the main process is gone, the
// program's own group is the proof, which only the actor can give.
void LocalPrograms::introduce(const std::shared_ptr<Program>& program) {
  const core::Owner& owner = program->owner;
  if (!owner.keeper || !actor_.ready()) return;
  actor::Order order{.verb = actor::Verb::follow, .lease = program->lease.number, .uid = program->uid};
  std::vector<int> descriptors;
  if (program->main_watch.is_open() && !proc::is_dead(program->main_watch.native_handle())) {
    if (!program->proven) return;
    order.flags = program->adopted ? actor::adopted : 0;
    order.main_pid = owner.process.pid;
    order.main_start = owner.process.start_ticks;
    order.main_inode = owner.inode;
    descriptors.push_back(program->main_watch.native_handle());
    if (program->keeper_lives()) {
      order.keeper_pid = owner.keeper.pid;
      order.keeper_start = owner.keeper.start_ticks;
      descriptors.push_back(program->keeper.native_handle());
    }
  } else {
    order.flags = actor::adopted;
  }
  actor_.order(order, descriptors, [this, program, keeper = order.keeper_pid != 0](const actor::Reply& reply) {
    // The keeper ended on the way of the order: its program is introduced without it.
    const bool again = reply.code == actor::Code::gone && keeper && !program->keeper_lives();
    if (again && find(program->lease) == program) introduce(program);
    else introduced(program, reply);
  });
}

void LocalPrograms::introduced(const std::shared_ptr<Program>& program, const actor::Reply& reply) {
  if (find(program->lease) != program || reply.code == actor::Code::lost) return;
  program->answered = true;
  program->introduced = reply.code == actor::Code::ok;
  const actor::Reply& who = actor_.introduction();
  if (!program->introduced) {
    program->refusal = to_string(reply.code);
    // The actor saw its end first; the daemon will see it soon.
    if (reply.code != actor::Code::gone && reply.code != actor::Code::no_proof) {
      log::warn({.lease = program->lease}, "the actor refused to register its program: {}", program->refusal);
    }
  } else if ((who.flags & actor::signals_others) == 0 && who.uid != program->uid) {
    program->refusal =
        fmt::format("the actor runs as uid {} and may not signal programs of uid {}", who.uid, program->uid);
  } else {
    program->proven = true;
  }
  if ((reply.flags & actor::own_group) != 0) {
    const auto hierarchies = proc::find_hierarchies(*root_);
    auto group = hierarchies ? proc::find_lease_group(*hierarchies, reply.path, program->lease)
                             : Result<proc::LeaseGroup>(hierarchies.error());
    if (group) program->group = std::move(*group);
  } else if (program->introduced) {
    log::debug("{}: its program has no control group of its own: {}", to_string(program->lease), reply.path);
  }
  // The actor that has come has lifted all limits.
  if (const std::uint32_t percent = program->cpu_percent(); program->introduced && percent > 0)
    actor_.order({.verb = actor::Verb::slow, .lease = program->lease.number, .percent = percent}, {},
                 [](const actor::Reply&) {});
  if (std::exchange(program->wake, false)) wake_keeper(program->lease, program->asked_by);
  if (program->wanted == 0) return;
  if (program->refusal.empty()) return send_wanted(program);
  program->wanted = 0;
  events_.unkillable(program->lease, program->refusal);
}

void LocalPrograms::have_actor_look() {
  if (actor_looks_ || !actor_.ready()) return;
  const auto followed = [](const auto& entry) { return entry.second->introduced; };
  if (std::none_of(programs_.begin(), programs_.end(), followed)) return;
  actor_looks_ = true;
  actor_.order({.verb = actor::Verb::look}, {}, [this](const actor::Reply&) { actor_looks_ = false; });
}

bool LocalPrograms::can_signal(LeaseId lease) const {
  const auto program = find(lease);
  return program && ((program->proven && program->refusal.empty()) || keeper_alive(lease));
}

std::string LocalPrograms::why_not_signalled(LeaseId lease) const {
  const auto program = find(lease);
  return program && program->proven ? program->refusal : std::string();
}

void LocalPrograms::wake_keeper(LeaseId lease, std::uint32_t asked_by) {
  const auto program = find(lease);
  if (!program || !program->keeper.is_open()) return;
  if (asked_by != actor::the_daemon) program->asked_by = asked_by;
  if (!program->introduced) {
    program->wake = true;
    return;
  }
  const actor::Order order{.verb = actor::Verb::wake_keeper, .asked_by = program->asked_by, .lease = lease.number};
  actor_.order(order, {}, [program](const actor::Reply& reply) { program->wake = reply.code == actor::Code::lost; });
}

bool LocalPrograms::signal(LeaseId lease, int signal, std::uint32_t asked_by) {
  const auto program = find(lease);
  if (!program || !program->proven || !program->refusal.empty()) return false;
  if (asked_by != actor::the_daemon) program->asked_by = asked_by;
  program->wanted = signal;
  if (signal == SIGKILL) {
    program->killing = true;
    check_again(program);
  }
  send_wanted(program);
  return true;
}

void LocalPrograms::tell(LeaseId lease, ProcessRef process, int signal, std::function<void(SignalResult)> done) {
  const auto program = find(lease);
  if (!program || !program->introduced) {
    SignalResult told;
    told.problem = program && !program->refusal.empty() ? program->refusal : "the actor did not register its program";
    told.lasts = program && (!program->refusal.empty() || !program->proven);
    return boost::asio::post(io_, [done = std::move(done), told] { done(told); });
  }
  const actor::Order order{.verb = actor::Verb::tell,
                           .lease = lease.number,
                           .main_pid = process.pid,
                           .main_start = process.start_ticks,
                           .signal = signal};
  actor_.order(order, {}, [done = std::move(done)](const actor::Reply& reply) {
    SignalResult told;
    if (reply.code != actor::Code::ok) told.problem = to_string(reply.code);
    using actor::Code;
    told.by_program = reply.code == Code::unhandled || reply.code == Code::gone;
    const bool passes = reply.code == Code::ok || reply.code == Code::lost || reply.code == Code::not_followed;
    told.lasts = !told.by_program && !passes;
    told.may_have_been = reply.code == Code::lost && reply.error != 0;
    done(told);
  });
}

// The actor cannot prove a program that was not introduced: Sublet did not start it, or nothing proves its identity
// after a restart of the daemon. The actor does not know booked processes.
bool LocalPrograms::is_known_to_actor(const Program& program, ProcessRef process) const {
  const proc::Member* known = member(process);
  return program.introduced && (known == nullptr || proc::is_program(known->link));
}

void LocalPrograms::keep_from_swap(LeaseId lease, ProcessRef process, bool keep,
                                   std::function<void(std::string)> done) {
  const auto answered = [done = std::move(done)](const actor::Reply& reply) {
    if (reply.code == actor::Code::ok) return done({});
    done(reply.code == actor::Code::failed && reply.path[0] != '\0' ? std::string(reply.path)
                                                                    : std::string(to_string(reply.code)));
  };
  if (!keep) {
    if (kept_from_swap_.erase(lease) == 0) return;
    return actor_.order({.verb = actor::Verb::swap, .lease = lease.number, .flags = actor::let_swap}, {},
                        [answered](const actor::Reply& reply) {
                          // Lost: the next actor is told all parked leases, and releases all other groups.
                          if (reply.code != actor::Code::lost) answered(reply);
                        });
  }
  const auto program = find(lease);
  const auto pidfd = proc::open_pidfd(*root_, process);
  if (!program || !pidfd) return answered({.code = actor::Code::gone});
  kept_from_swap_.insert(lease);
  const actor::Order order{.verb = actor::Verb::swap,
                           .lease = lease.number,
                           .uid = program->uid,
                           .flags = is_known_to_actor(*program, process) ? 0 : actor::by_user,
                           .main_pid = process.pid,
                           .main_start = process.start_ticks};
  const int descriptor = pidfd->get();
  actor_.order(order, {&descriptor, 1}, answered);
}

void LocalPrograms::limit_cpu(LeaseId lease, CpuCause cause, int percent, std::function<void(const CpuLimited&)> done) {
  const auto program = find(lease);
  // An actor that knows no program has lifted the limits of the one before.
  CpuLimited unknown{percent == 0 ? "" : "the actor does not know its program", true};
  if (!program || !program->introduced) {
    if (program) program->cpu_percents[static_cast<std::size_t>(cause)] = 0;
    // Only programs with a keeper are introduced.
    if (percent > 0 && (!program || !program->owner.keeper)) unknown = {"Sublet did not start its program"};
    else if (percent > 0 && !program->refusal.empty()) unknown.why_not = program->refusal;
    return boost::asio::post(io_, [done = std::move(done), unknown] { done(unknown); });
  }
  const int before = std::exchange(program->cpu_percents[static_cast<std::size_t>(cause)], percent);
  actor_.order({.verb = actor::Verb::slow, .lease = lease.number, .percent = program->cpu_percent()}, {},
               [done = std::move(done), unknown, program, cause, percent, before](const actor::Reply& reply) {
                 if (reply.code == actor::Code::ok) return done({});
                 const bool is_lost = reply.code == actor::Code::lost || reply.code == actor::Code::not_followed;
                 int& ordered = program->cpu_percents[static_cast<std::size_t>(cause)];
                 // A limit that was not changed is still in force. One that was not lifted goes with the next order.
                 if (ordered == percent && percent > 0) ordered = is_lost ? 0 : before;
                 if (is_lost) return done(unknown);
                 done({reply.path[0] != '\0' ? std::string(reply.path) : std::string(to_string(reply.code))});
               });
}

void LocalPrograms::all_are_kept() {
  actor_.order({.verb = actor::Verb::all_named}, {}, [](const actor::Reply& reply) {
    if (reply.code == actor::Code::ok || reply.code == actor::Code::lost) return;
    log::warn("memory that an earlier actor kept out of swap is still kept out: {}",
              reply.path[0] != '\0' ? std::string_view(reply.path) : to_string(reply.code));
  });
}

namespace {

Error no_helper(ProcessRef process, const actor::Reply& reply) {
  using Refused = actor::Code;
  const bool rights = reply.code == Refused::wrong_user || reply.code == Refused::other_rights ||
                      reply.code == Refused::untouchable || reply.code == Refused::untraceable;
  std::string why(to_string(reply.code));
  if (reply.path[0] != '\0') why += fmt::format(": {}", reply.path);
  if (reply.error != 0) why += fmt::format(": {}", std::strerror(reply.error));
  // Helpers that are not needed any more end soon.
  const bool later = reply.code == Refused::busy || reply.code == Refused::too_many;
  return Error{rights                        ? Code::Denied
               : reply.code == Refused::gone ? Code::NotFound
               : later                       ? Code::InUse
                                             : Code::Unavailable,
               fmt::format("no helper for process {}: {}", process.pid, why),
               {}};
}

}  // namespace

void LocalPrograms::start_helper(LeaseId lease, ProcessRef process, bool to_bring_back, HelperStarted done) {
  const auto program = find(lease);
  const auto pidfd = proc::open_pidfd(*root_, process);
  if (!program || !pidfd) {
    return done(program ? pidfd.error() : unavailable(fmt::format("{} has no program", to_string(lease))));
  }
  const actor::Order order{.verb = actor::Verb::checkpoint,
                           .lease = lease.number,
                           .uid = program->uid,
                           .flags = (to_bring_back ? actor::bring_back : 0) |
                                    (to_bring_back || !is_known_to_actor(*program, process) ? actor::by_user : 0),
                           .main_pid = process.pid,
                           .main_start = process.start_ticks};
  const int descriptor = pidfd->get();
  actor_.fetch(order, {&descriptor, 1}, [process, done = std::move(done)](const actor::Reply& reply, Fd socket) {
    if (reply.code != actor::Code::ok) done(no_helper(process, reply));
    else if (!socket) done(unavailable(fmt::format("no helper for process {}: its socket was lost", process.pid)));
    else done(std::move(socket));
  });
}

void LocalPrograms::send_wanted(const std::shared_ptr<Program>& program) {
  if (!program->introduced || program->ordered || program->wanted == 0) return;
  program->ordered = true;
  const int signal = program->wanted;
  const actor::Order order{
      .verb = actor::Verb::signal, .asked_by = program->asked_by, .lease = program->lease.number, .signal = signal};
  actor_.order(order, {}, [this, program, signal](const actor::Reply& reply) { signalled(program, signal, reply); });
}

void LocalPrograms::signalled(const std::shared_ptr<Program>& program, int signal, const actor::Reply& reply) {
  // Lost: the order is sent again when the actor is back and knows the program.
  if (find(program->lease) != program || reply.code == actor::Code::lost) return;
  program->ordered = false;
  if (program->wanted == signal) program->wanted = 0;
  if (reply.code != actor::Code::ok) {
    events_.unkillable(program->lease, std::string(to_string(reply.code)));
  } else if (reply.refused != 0) {
    events_.unkillable(program->lease, fmt::format("{} of its processes belong to another user or may not be signalled",
                                                   reply.refused));
  }
  send_wanted(program);
}

}  // namespace sublet::machine
