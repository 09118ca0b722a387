// SPDX-License-Identifier: Apache-2.0
#include "machine/local_programs.h"
#include "machine/local_program.h"

#include "base/clock.h"
#include "base/log.h"
#include "proc/exit_record.h"

#include <fmt/format.h>
#include <boost/asio/post.hpp>

#include <cctype>
#include <csignal>

namespace sublet::machine {
namespace {

namespace asio = boost::asio;
// Pause between checks after the main process ended, while its descendants or its keeper's report are awaited.
constexpr Duration recheck_interval = std::chrono::milliseconds(200);
constexpr Duration longest_recheck = std::chrono::seconds(2);
// Age up to which a reading of /proc is used: many programs may end at the same moment.
constexpr std::int64_t scan_serves_ns = 10'000'000;

}  // namespace

LocalPrograms::LocalPrograms(asio::io_context& io, Actor& actor, Duration reconnect)
    : io_(io), actor_(actor), reconnect_(reconnect) {}
LocalPrograms::~LocalPrograms() = default;

Status LocalPrograms::open(Events events) {
  events_ = std::move(events);
  auto root = proc::ProcRoot::open();
  if (!root) return root.error();
  root_ = std::move(*root);
  return {};
}

Result<LocalPrograms::Identified> LocalPrograms::identify(std::int32_t pid, std::optional<std::uint32_t> uid,
                                                          std::int32_t parent) const {
  auto held = proc::hold_process(*root_, pid);
  if (!held) {
    if (held.error().code != Code::NotFound) return held.error();
    return bad_request(held.error().detail, "name a running process");
  }
  if (uid && held->info.uid != *uid) {
    return denied(fmt::format("process {} belongs to uid {}, not to uid {}", pid, held->info.uid, *uid),
                  "name a process of your own");
  }
  if (parent != 0 && held->info.ppid != parent) {
    return bad_request(fmt::format("process {} is a child of {}, not of the keeper {}", pid, held->info.ppid, parent),
                       "only the parent of a program can be its keeper");
  }
  return Identified{held->info.ref, proc::pidfd_inode(held->pidfd.get()).value_or(0)};
}

Status LocalPrograms::check_pid_namespace(std::int32_t asking_pid) const {
  // NSpid lists the pid in each pid namespace, from ours inwards. A single number means that the process is in ours.
  const auto status = root_->read_file(fmt::format("{}/status", asking_pid));
  // A fault of this machine, not of the caller.
  if (!status && status.error().code != Code::NotFound) return status.error();
  if (!status)
    return denied(fmt::format("the calling process {} cannot be inspected", asking_pid),
                  "hold the lease by a connection or a token, which need no process");
  const auto at = status->find("\nNSpid:");
  if (at == std::string::npos) return {};  // a kernel without nested namespaces
  const std::string line = status->substr(at + 7, status->find('\n', at + 1) - at - 7);
  int numbers = 0;
  for (std::size_t i = 1; i < line.size(); ++i) numbers += std::isdigit(line[i]) != 0 && std::isdigit(line[i - 1]) == 0;
  if (numbers == 1) return {};
  return denied(
      fmt::format("the calling process {} is in another pid namespace: its pids name other processes here", asking_pid),
      "start the container with --pid=host, or hold the lease from outside: sublet hold --vram SIZE --pid PID");
}

void LocalPrograms::follow(const core::Lease& lease, bool adopted) {
  auto& program = programs_[lease.id];
  if (program && program->owner.process == lease.owner.process && program->owner.keeper == lease.owner.keeper) {
    if (std::exchange(program->reported, false)) asio::post(io_, [this, again = program] { check(again); });
    return;
  }
  const auto attached = program ? program->attached : std::vector<ProcessRef>();
  const auto cgroups = program ? program->cgroups : std::vector<proc::CgroupRef>();
  program = std::make_shared<Program>(io_, lease.id);
  program->uid = lease.uid;
  program->owner = lease.owner;
  program->proven = !adopted;
  program->adopted = adopted;
  program->since_ns = monotonic_ns();
  program->attached = attached;
  program->cgroups = cgroups;
  if (lease.owner.keeper) {
    if (auto keeper = proc::open_pidfd(*root_, lease.owner.keeper)) program->keeper.assign(keeper->release());
    watch_keeper(program);
  }
  if (!lease.owner.process) return;
  // All processes of the main process's group belong to the program. After a restart of the daemon, this may be the
  // only link to an orphan whose ancestors have ended.
  lineage_.groups.push_back({.id = lease.owner.process.pid,
                             .leader_start = lease.owner.process.start_ticks,
                             .uid = lease.uid,
                             .session = false,
                             .lease = lease.id});
  open_main(program);
}

void LocalPrograms::open_main(const std::shared_ptr<Program>& program) {
  auto main = proc::open_pidfd(*root_, program->owner.process);
  if (main) {
    const std::uint64_t inode = program->owner.inode;
    program->proven = program->proven || (inode != 0 && proc::pidfd_inode(main->get()) == inode);
    program->main_watch.assign(main->release());
    watch(program);
    introduce(program);
  } else if (main.error().code == Code::NotFound) {
    introduce(program);
    asio::post(io_, [this, program] { check(program); });
  } else {  // for example, no descriptor is free; an unknown process does not count as ended
    log::warn({.lease = program->lease}, "cannot watch its program: {}; retrying", main.error().detail);
    program->recheck.expires_after(longest_recheck);
    program->recheck.async_wait([this, program](const boost::system::error_code& error) {
      if (!error) open_main(program);
    });
  }
}

void LocalPrograms::watch(const std::shared_ptr<Program>& program) {
  program->main_watch.async_wait(asio::posix::stream_descriptor::wait_read,
                                 [this, program](const boost::system::error_code& error) {
                                   if (error) return;  // the program was forgotten
                                   // Readable: all threads have ended. The pidfd stays open, so that the pid stays
                                   // proven until all processes are gone.
                                   check(program);
                                 });
}

// A keeper that was alive and has ended: normally its program has ended before.
void LocalPrograms::watch_keeper(const std::shared_ptr<Program>& program) {
  if (!program->keeper_lives()) return;
  program->keeper.async_wait(asio::posix::stream_descriptor::wait_read,
                             [this, program](const boost::system::error_code& error) {
                               if (error) return;  // the program was forgotten
                               // A signal to both may reach the program a moment later.
                               program->keeper_check.expires_after(recheck_interval);
                               program->keeper_check.async_wait([this, program](const boost::system::error_code& gone) {
                                 if (!gone) check_keeper(program);
                               });
                             });
}

void LocalPrograms::check_keeper(const std::shared_ptr<Program>& program) {
  if (find(program->lease) != program || program->reported) return;
  if (monotonic_ns() - scanned_ns_ > scan_serves_ns) scan();
  if (tree_lives(program->lease) && events_.keeper_lost) events_.keeper_lost(program->lease);
}

bool LocalPrograms::lives(ProcessRef process) const {
  const auto now = root_->read(process.pid);
  return now && now->ref == process && now->state != 'Z' && now->state != 'X';
}

// The main process has ended. Finds out whether the program has ended, and how. The keeper's exit record tells; a
// living keeper gets time to write it. Without a keeper the exit status is not known.
void LocalPrograms::check(const std::shared_ptr<Program>& program) {
  const auto current = programs_.find(program->lease);
  if (current == programs_.end() || current->second != program || program->reported) return;
  if (monotonic_ns() - scanned_ns_ > scan_serves_ns) scan();
  if (tree_lives(program->lease)) {
    if (program->killing) {  // a pass may miss a process that was just forked
      program->wanted = SIGKILL;
      send_wanted(program);
    }
    return check_again(program);
  }
  // Descendants may be in a group that only the actor knows. Until the actor has answered, the program does not count
  // as gone.
  if (program->adopted && program->owner.keeper && !program->answered &&
      monotonic_ns() - program->since_ns < reconnect_.count()) {
    return check_again(program);
  }
  core::ProgramEnded ended{program->lease, std::nullopt, false};
  if (!program->owner.exit_record.empty()) {
    const auto record = proc::read_exit_record(program->owner.exit_record, program->uid);
    if (record && record->lease == program->lease) {
      ended.exit_status = record->signal ? 128 + *record->signal : record->exit_status;
      ended.by_signal = record->signal.has_value();
      ended.forwarded = record->forwarded;
      ended.at = record->ended_at;
    } else if (program->keeper_lives()) {
      const std::int64_t now = monotonic_ns();
      if (program->gone_since_ns == 0) program->gone_since_ns = now;
      if (now - program->gone_since_ns < reconnect_.count()) return check_again(program);
      log::warn({.lease = program->lease}, "its keeper (pid {}) is alive but did not report the program's exit",
                program->owner.keeper.pid);
    }
  }
  program->reported = true;
  events_.ended(ended);
}

void LocalPrograms::check_again(const std::shared_ptr<Program>& program) {
  // Short pauses at first, then longer: descendants may outlive a main process for days, and each check reads all of
  // /proc.
  const Duration pause = std::min(recheck_interval * ++program->checks, longest_recheck);
  program->recheck.expires_after(std::chrono::duration_cast<std::chrono::steady_clock::duration>(pause));
  program->recheck.async_wait([this, program](const boost::system::error_code& error) {
    if (!error) check(program);
  });
}

bool LocalPrograms::tree_lives(LeaseId lease) const {
  // A booked process does not keep a lease alive: the lease ends with its owner.
  return std::any_of(lineage_.members.begin(), lineage_.members.end(), [&](const proc::Member& member) {
    return member.lease == lease && member.link != proc::Link::attached && member.link != proc::Link::cgroup;
  });
}

void LocalPrograms::book(const core::Lease& lease) {
  auto& program = programs_[lease.id];
  if (!program) program = std::make_shared<Program>(io_, lease.id);
  program->uid = lease.uid;
  program->attached.clear();
  program->cgroups.clear();
  program->owner_group.reset();
  program->group_path = lease.owner.cgroup, program->group_inode = lease.owner.inode;
  scan();  // processes of the program itself stay members without the booking
  for (const auto& [process, cgroup] : lease.booked) {
    if (cgroup.empty()) {
      const auto now = root_->read(process.pid);
      const proc::Member* known = member(process);
      const bool own = known != nullptr && known->lease == lease.id && proc::is_program(known->link);
      if (now && now->ref == process && !own) program->attached.push_back(process);
    } else if (auto group = check_cgroup(cgroup)) {
      program->cgroups.push_back(std::move(*group));
    }
  }
}

void LocalPrograms::forget(LeaseId lease) {
  const auto found = programs_.find(lease);
  keep_from_swap(lease, {}, false, [](const std::string&) {});
  if (found == programs_.end()) return;
  if (found->second->introduced) {
    actor_.order({.verb = actor::Verb::forget, .lease = lease.number}, {}, [](const actor::Reply&) {});
  }
  boost::system::error_code ignored;
  if (found->second->main_watch.is_open()) found->second->main_watch.close(ignored);
  if (found->second->keeper.is_open()) found->second->keeper.close(ignored);
  found->second->recheck.cancel();
  found->second->keeper_check.cancel();
  programs_.erase(found);
  ended_members_.forget_others([this](LeaseId other) { return programs_.contains(other); });
  std::erase_if(roots_, [lease](const proc::LeaseRoots& each) { return each.lease == lease; });
}

void LocalPrograms::scan() {
  if (programs_.empty()) {
    previous_ = std::exchange(lineage_, {});
    roots_.clear();
    stopped_.clear();
    return;
  }
  auto table = root_->list();
  if (!table) {
    log::warn("cannot read the process table: {}; using the previous one", table.error().detail);
    return;
  }
  scanned_ns_ = monotonic_ns();
  roots_ = roots();
  proc::Lineage next = proc::trace_lineage(roots_, lineage_, *table);
  ended_members_.note(lineage_, next);
  previous_ = std::exchange(lineage_, std::move(next));
  find_stopped(*table);
  have_actor_look();
}

// Most scans find no stopped process, and count nothing.
void LocalPrograms::find_stopped(std::span<const proc::ProcessInfo> table) {
  struct Count {
    std::size_t stopped = 0;
    bool main = false, by_debugger = false;
  };
  stopped_.clear();
  std::map<LeaseId, Count> counts;
  for (const proc::ProcessInfo& process : table) {
    if (process.state != 'T' && process.state != 't') continue;
    const proc::Member* member = lineage_.find(process.ref);
    if (member == nullptr || !proc::may_be_parked(member->link)) continue;
    Count& count = counts[member->lease];
    ++count.stopped;
    const bool main = find(member->lease)->owner.process == process.ref;
    if (main || !count.main) count.by_debugger = process.state == 't';
    count.main |= main;
  }
  for (const auto& [lease, count] : counts)
    if (count.main || count.stopped == tree(lease).size()) stopped_.push_back({lease, count.by_debugger});
}

const proc::Member* LocalPrograms::member(ProcessRef process) const {
  if (const proc::Member* now = lineage_.find(process)) return now;
  return previous_.find(process);  // it ended since; the driver may list it a moment longer
}

std::vector<ProcessRef> LocalPrograms::tree(LeaseId lease) const {
  // Beside a program of its own, booked processes are not parked: they would stay parked when the lease ends with its
  // program, and their owner has not agreed by starting that program.
  std::vector<ProcessRef> program, booked;
  for (const proc::Member& member : lineage_.members) {
    if (member.lease != lease) continue;
    if (proc::is_program(member.link)) program.push_back(member.process);
    else if (proc::may_be_parked(member.link)) booked.push_back(member.process);
  }
  return program.empty() ? booked : program;
}

bool LocalPrograms::inhabited(LeaseId lease) const {
  return std::any_of(lineage_.members.begin(), lineage_.members.end(),
                     [lease](const proc::Member& member) { return member.lease == lease; });
}

LeaseId LocalPrograms::lease_above(std::span<const proc::Ancestor> ancestry) const {
  return proc::lease_above(ancestry, lineage_, ended_members_, roots_);
}

// By the last scan, and by what was attached since. A group or a session may hold processes of other users, which have
// no part in the lease.
LeaseId LocalPrograms::lease_of(ProcessRef process, std::uint32_t uid) const {
  if (const proc::Member* known = lineage_.find(process)) {
    const bool certain = proc::is_program(known->link) || known->link == proc::Link::attached;
    const auto found = programs_.find(known->lease);
    return certain || (found != programs_.end() && found->second->uid == uid) ? known->lease : LeaseId{};
  }
  for (const auto& [id, program] : programs_)
    if (program->owner.process == process || std::ranges::count(program->attached, process) > 0) return id;
  return {};
}

LeaseId LocalPrograms::lease_around(std::int32_t pid, bool owned) const {
  constexpr int deepest = 1000;
  const auto caller = root_->read(pid);
  if (!caller) return {};
  auto process = caller;
  for (int depth = 0; depth < deepest && process && process->ref.pid > 1; ++depth) {
    const LeaseId lease = lease_of(process->ref, caller->uid);
    const auto program = programs_.find(lease);
    const bool own = program != programs_.end() && depth == 0 && program->second->owner.process == process->ref &&
                     !program->second->owner.keeper;
    if (lease && (owned || !own)) return lease;
    process = root_->read(process->ppid);
  }
  return {};
}

std::string LocalPrograms::name(ProcessRef process) const {
  const auto now = root_->read(process.pid);
  return now && now->ref == process ? now->comm : std::string();
}

bool LocalPrograms::keeper_alive(LeaseId lease) const {
  const auto found = programs_.find(lease);
  return found != programs_.end() && found->second->keeper_lives();
}

void LocalPrograms::forget_others(const std::function<bool(LeaseId)>& keep) {
  std::vector<LeaseId> gone;
  for (const auto& [id, program] : programs_) {
    if (!keep(id)) gone.push_back(id);
  }
  for (const LeaseId id : gone) forget(id);
}

}  // namespace sublet::machine
