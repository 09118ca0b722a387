// SPDX-License-Identifier: Apache-2.0
#include "actor/service.h"

#include "actor/order_form.h"
#include "base/clock.h"
#include "proc/pidfd.h"

#include <fmt/format.h>

#include <linux/capability.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>

namespace sublet::actor {
namespace {

// Age up to which a reading of /proc is used. The next order sees processes that a reading missed, and each kill is
// repeated.
constexpr std::int64_t scan_serves_ns = 10'000'000;

// Returns the abilities that this process has by its capabilities.
std::uint32_t powers(const proc::ProcRoot& root) {
  const auto status = root.read_file("self/status");
  const auto at = status ? status->find("\nCapEff:\t") : std::string::npos;
  if (at == std::string::npos) return 0;
  const std::uint64_t held = std::strtoull(status->c_str() + at + 9, nullptr, 16);
  const auto has = [&](int capability) { return (held >> capability & 1) != 0; };
  std::uint32_t found = 0;
  if (has(CAP_KILL)) found |= signals_others;
  if (has(CAP_SETUID) && has(CAP_SETGID)) found |= parks_others;
  if (has(CAP_SYS_PTRACE) && ::geteuid() == 0) found |= parks_roots;
  return found;
}

void set_path(Reply& reply, const std::string& text) {
  const std::size_t size = std::min(text.size(), sizeof reply.path - 1);
  std::memcpy(reply.path, text.data(), size);
}

// Puts the reason of a failure into the reply. "": no failure.
void explain(const std::string& why_not, Reply& reply) {
  if (why_not.empty()) return;
  reply.code = Code::failed;
  set_path(reply, why_not);
}

}  // namespace

Service::Service(const proc::ProcRoot& root, ServiceOptions options)
    : root_(root),
      options_(std::move(options)),
      groups_(root, options_.group_name),
      swap_(root, options_.helpers == nullptr ? nullptr : &options_.helpers->records()),
      cpu_(root, options_.group_name),
      unleased_(root, options_.unleased) {}

Service::~Service() {
  for (auto& [lease, followed] : followed_) {
    (void)cpu_.lift(lease);
    if (followed.place.group) groups_.leave(*followed.place.group);
  }
}

Reply Service::answer(std::span<const std::byte> message, std::vector<Fd> descriptors, bool truncated) {
  Reply reply;
  Order order;
  if (message.size() != sizeof order) {
    reply.code = Code::malformed;
    return reply;
  }
  std::memcpy(&order, message.data(), sizeof order);
  const auto verb = static_cast<std::uint32_t>(order.verb);
  if (verb == 0 || verb > last_verb) reply.code = Code::unknown_verb;
  else if (!well_formed(order)) reply.code = Code::malformed;
  else if (truncated || descriptors.size() != descriptors_of(order)) reply.code = Code::descriptors;
  else reply = obey(order, descriptors);
  reply.id = order.id;
  reply.verb = order.verb;
  reply.version = protocol_version;
  return reply;
}

Reply Service::obey(const Order& order, std::vector<Fd>& descriptors) {
  Reply reply;
  const LeaseId lease{order.lease};
  const auto known = followed_.find(lease);
  const bool about_known = order.verb == Verb::signal || order.verb == Verb::wake_keeper ||
                           order.verb == Verb::forget || order.verb == Verb::tell || order.verb == Verb::slow;
  const bool takes_uid = order.verb == Verb::checkpoint || order.verb == Verb::swap;
  // The lease's user is the one of the program's check, not the one in the order.
  const std::uint32_t uid = order.verb == Verb::follow ? order.uid
                            : known != followed_.end() ? known->second.uid
                            : takes_uid                ? order.uid
                                                       : the_daemon;
  const Role role = role_of(order, uid);
  if (!may(role, order.verb)) {
    reply.code = Code::denied;
    return reply;
  }
  if (about_known && known == followed_.end()) {
    reply.code = Code::not_followed;
    return reply;
  }
  switch (order.verb) {
    case Verb::hello: hello(reply); break;
    case Verb::follow: follow(order, descriptors, reply); break;
    case Verb::look: look(reply); break;
    case Verb::signal: signal(known->second, role, order, reply); break;
    case Verb::wake_keeper: wake_keeper(known->second, reply); break;
    case Verb::forget: forget(lease); break;
    case Verb::tell: tell(known->second, role, order, reply); break;
    case Verb::checkpoint:
      checkpoint(order, descriptors, known == followed_.end() ? nullptr : &known->second, reply);
      break;
    case Verb::swap: swap(order, descriptors, known == followed_.end() ? nullptr : &known->second, reply); break;
    case Verb::all_named: explain(swap_.let_others(), reply); break;
    case Verb::keep: keep(order, descriptors[0], reply); break;
    case Verb::slow: explain(slow(known->second, order.percent), reply); break;
    case Verb::inspect:
    case Verb::end: judge_unleased(order, std::move(descriptors[0]), reply); break;
    case Verb::close: unleased_.close(order.lease); break;
    case Verb::source: source(order, descriptors, reply); break;
    case Verb::parents: parents(order, reply); break;
  }
  return reply;
}

Role Service::role_of(const Order& order, std::uint32_t lease_uid) const {
  if (order.asked_by == the_daemon) return Role::daemon;
  if (order.asked_by == 0 || order.asked_by == ::geteuid()) return Role::admin;
  // The lease's owner needs no other role, so the account database is not asked.
  if (lease_uid != the_daemon && order.asked_by == lease_uid && may(Role::owner, order.verb)) return Role::owner;
  return is_admin(order.asked_by) ? Role::admin : Role::nobody;
}

bool Service::is_admin(std::uint32_t uid) const { return options_.is_admin && options_.is_admin(uid); }

// The owner may also be an admin. The database is asked only if this matters.
bool Service::reaches(const Order& order, Role role, std::uint32_t lease_uid, const proc::Uids& process) const {
  return may_signal(role, lease_uid, process) || (role == Role::owner && is_admin(order.asked_by));
}

void Service::hello(Reply& reply) {
  groups_.open();
  swap_.open();
  cpu_.open();
  reply.uid = ::geteuid();
  reply.flags = powers(root_);
  set_path(reply, groups_.hierarchy());
}

// --- follow

void Service::follow(const Order& order, std::vector<Fd>& descriptors, Reply& reply) {
  Followed followed;
  followed.lease = LeaseId{order.lease};
  followed.uid = order.uid;
  reply.code = check_program(order, descriptors, followed);
  if (reply.code != Code::ok) return;
  // The daemon may repeat the order, also after the keeper has ended.
  if (const auto before = followed_.find(followed.lease); before != followed_.end() && before->second.place.group) {
    if (before->second.main == followed.main) followed.place = before->second.place;
    else groups_.leave(*before->second.place.group);
  }
  if (followed.main && !followed.place.group) {
    const bool alone = (order.flags & adopted) == 0;
    followed.place = groups_.place(followed.lease, followed.main.pid, descriptors[0].get(), alone);
  }
  if (followed.place.group) reply.flags |= own_group;
  set_path(reply, followed.place.group ? followed.place.group->ref.path : followed.place.why_not);
  if (followed.keeper) followed.keeper_pidfd = std::move(descriptors.back());
  if (followed.main) {
    // Links the processes of its process group (a link that only spares).
    std::erase_if(lineage_.groups, [&](const proc::MemberGroup& group) { return group.id == followed.main.pid; });
    lineage_.groups.push_back({.id = followed.main.pid,
                               .leader_start = followed.main.start_ticks,
                               .uid = followed.uid,
                               .session = false,
                               .lease = followed.lease});
  }
  const LeaseId lease = followed.lease;
  followed_.insert_or_assign(lease, std::move(followed));
  scanned_ns_ = 0;
}

Code Service::check_program(const Order& order, const std::vector<Fd>& descriptors, Followed& followed) const {
  if (order.main_pid == 0) {
    // The main process is gone. Only we can have made the group with that name.
    auto left = groups_.left_behind(followed.lease);
    if (!left) return Code::no_proof;
    followed.place.group = std::move(*left);
    return Code::ok;
  }
  const ProcessRef main{order.main_pid, order.main_start};
  proc::ProcessInfo found;
  if (const Code code = check_process(descriptors[0], main, order.uid, found); code != Code::ok) return code;
  const std::uint64_t inode = proc::pidfd_inode(descriptors[0].get()).value_or(0);
  const bool same = order.main_inode != 0 && order.main_inode == inode;
  if (!same && ((order.flags & adopted) != 0 || order.main_inode != 0)) return Code::no_proof;
  if (order.keeper_pid != 0) {
    const ProcessRef keeper{order.keeper_pid, order.keeper_start};
    proc::ProcessInfo parent;
    if (const Code code = check_process(descriptors[1], keeper, order.uid, parent); code != Code::ok) return code;
    if (found.ppid != keeper.pid) return Code::not_its_keeper;
    followed.keeper = keeper;
  }
  followed.main = main;
  return Code::ok;
}

// Checks that the descriptor holds the named process, that the process belongs to that user, and that it may be
// touched.
Code Service::check_process(const Fd& pidfd, ProcessRef named, std::uint32_t uid, proc::ProcessInfo& found) const {
  const auto behind = proc::process_behind(root_, pidfd.get());
  if (!behind) return behind.error().code == sublet::Code::NotFound ? Code::gone : Code::descriptors;
  if (behind->ref != named) return Code::gone;
  const auto detailed = root_.read_with(named.pid, "status");
  const auto uids = detailed ? proc::parse_uids(detailed->text) : std::nullopt;
  if (!uids || detailed->info.ref != named || proc::is_dead(pidfd.get())) return Code::gone;
  if (untouchable(detailed->info)) return Code::untouchable;
  if (uid != 0 && uids->real != uid) return Code::wrong_user;
  found = detailed->info;
  return Code::ok;
}

void Service::forget(LeaseId lease) {
  const auto found = followed_.find(lease);
  (void)swap_.let(lease);  // if this fails, the next order tries again
  (void)cpu_.lift(lease);
  if (found->second.place.group) groups_.leave(*found->second.place.group);
  followed_.erase(found);
  ended_.forget_others([this](LeaseId other) { return followed_.contains(other); });
  std::erase_if(roots_, [lease](const proc::LeaseRoots& root) { return root.lease == lease; });
}

// --- descent

// Protects this process, the daemon and all their ancestors: none of them can be a lease's program.
void Service::protect(std::span<const proc::ProcessInfo> table) {
  std::unordered_map<std::int32_t, std::int32_t> parents;
  for (const proc::ProcessInfo& process : table) parents.emplace(process.ref.pid, process.ppid);
  protected_ = {1};
  for (std::int32_t pid : {static_cast<std::int32_t>(::getpid()), options_.client_pid}) {
    while (pid > 0 && protected_.insert(pid).second) {
      const auto parent = parents.find(pid);
      pid = parent == parents.end() ? 0 : parent->second;
    }
  }
}

bool Service::untouchable(const proc::ProcessInfo& process) const {
  if (process.kernel || process.ref.pid <= 1) return true;
  // Read again, because an order to follow may come before the first scan.
  for (std::int32_t pid : {static_cast<std::int32_t>(::getpid()), options_.client_pid}) {
    for (int steps = 0; pid > 1 && steps < 4096; ++steps) {
      if (pid == process.ref.pid) return true;
      const auto above = root_.read(pid);
      pid = above ? above->ppid : 0;
    }
  }
  return false;
}

bool Service::scan(std::vector<proc::ProcessInfo>* fresh) {
  if (fresh == nullptr && monotonic_ns() - scanned_ns_ <= scan_serves_ns) return true;
  std::vector<proc::LeaseRoots> roots;
  for (const auto& [lease, followed] : followed_) {
    proc::LeaseRoots root{.lease = lease,
                          .main = followed.main,
                          .keeper = followed.keeper,
                          .attached = {},
                          .in_cgroups = {},
                          .in_own_group = {}};
    if (followed.place.group) root.in_own_group = proc::newcomers(root_, *followed.place.group, lease, lineage_);
    roots.push_back(std::move(root));
  }
  auto table = root_.list();
  if (!table) return false;
  scanned_ns_ = monotonic_ns();
  proc::Lineage now = proc::trace_lineage(roots, lineage_, *table);
  ended_.note(lineage_, now);
  lineage_ = std::move(now);
  roots_ = std::move(roots);
  protect(*table);
  if (fresh != nullptr) *fresh = std::move(*table);
  return true;
}

// Moves processes into the group that the program forked before it was in the group.
void Service::gather() {
  for (const proc::Member& member : lineage_.members) {
    const auto found = followed_.find(member.lease);
    if (found == followed_.end() || !proc::is_program(member.link) || found->second.place.from.empty()) continue;
    if (protected_.contains(member.process.pid)) continue;
    const auto pidfd = proc::open_pidfd(root_, member.process);
    if (pidfd) groups_.follow_into(found->second.place, member.process.pid, pidfd->get());
  }
}

void Service::look(Reply& reply) {
  if (followed_.empty()) return;
  scanned_ns_ = 0;
  if (!scan()) {
    reply.code = Code::failed;
    reply.error = EIO;
    return;
  }
  gather();
}

// --- helpers

void Service::checkpoint(const Order& order, std::vector<Fd>& descriptors, const Followed* followed, Reply& reply) {
  proc::Rights rights;
  reply.code = check_target(order, descriptors[0], followed, rights);
  if (reply.code != Code::ok) return;
  if (options_.helpers == nullptr) {
    reply.code = Code::failed;
    set_path(reply, "sublet-actor was started without the options for helpers");
    return;
  }
  Helpers::Started started = options_.helpers->start({order.main_pid, order.main_start}, std::move(descriptors[0]),
                                                     rights, (order.flags & bring_back) != 0);
  reply.code = started.code;
  reply.error = started.error;
  reply.pid = started.pid;
  set_path(reply, started.why);
  attachment_ = std::move(started.socket);
}

void Service::swap(const Order& order, const std::vector<Fd>& descriptors, const Followed* followed, Reply& reply) {
  if (order.flags == let_swap) return explain(swap_.let(LeaseId{order.lease}), reply);
  proc::Rights rights;
  reply.code = check_target(order, descriptors[0], followed, rights);
  if (reply.code != Code::ok) return;
  explain(swap_.keep(LeaseId{order.lease}, order.main_pid, order.uid), reply);
}

// The rights are read while the pidfd proves that the process lives. If an exec changes them later, the kernel checks
// again when the helper looks into the process.
Code Service::check_target(const Order& order, const Fd& pidfd, const Followed* followed, proc::Rights& rights) {
  const ProcessRef process{order.main_pid, order.main_start};
  if (followed != nullptr && followed->uid != order.uid) return Code::wrong_user;
  const auto behind = proc::process_behind(root_, pidfd.get());
  if (!behind) return behind.error().code == sublet::Code::NotFound ? Code::gone : Code::descriptors;
  if (behind->ref != process) return Code::gone;
  if ((order.flags & by_user) == 0) {
    if (followed == nullptr) return Code::not_followed;
    scanned_ns_ = 0;
    const proc::Member* member = scan() ? lineage_.find(process) : nullptr;
    if (member == nullptr || member->lease != followed->lease || !proc::is_program(member->link)) return Code::no_proof;
  }
  const auto now = root_.read_with(process.pid, "status");
  auto found = now ? proc::parse_rights(now->text) : std::nullopt;
  const auto owner = root_.owner_of(fmt::format("{}/environ", process.pid));
  if (!found || now->info.ref != process || proc::is_dead(pidfd.get())) return Code::gone;
  if (untouchable(now->info)) return Code::untouchable;
  if (!may_park(order.uid, found->uids[0])) return Code::wrong_user;
  if (!found->plain()) return Code::other_rights;
  // The kernel reports root as owner of a process that may not be traced, and of a process that is just ending. The
  // helper checks processes of root.
  if (!owner || *owner != found->uids[0]) return root_.has_memory(process.pid) ? Code::untraceable : Code::gone;
  // Inside its container the process has another uid, and the container hides files that the helper needs.
  if (!root_.shares_namespaces(process.pid, now->text)) return Code::other_rights;
  rights = std::move(*found);
  return Code::ok;
}

void Service::keep(const Order& order, const Fd& document, Reply& reply) {
  StartedKeeper started = start_keeper(options_.keepers, order.uid, document, (powers(root_) & parks_others) != 0);
  reply.code = started.code;
  reply.error = started.error;
  set_path(reply, started.why);
  attachment_ = std::move(started.report);
}

void Service::judge_unleased(const Order& order, Fd pidfd, Reply& reply) {
  if ((order.flags & to_spare) != 0) return unleased_.spare(order, pidfd, reply);
  Surroundings around;
  if (!scan(&around.table)) {
    reply.code = Code::failed;
    reply.error = EIO;
    return;
  }
  around.untouchable = [this](const proc::ProcessInfo& process) {
    return process.kernel || process.ref.pid <= 1 || protected_.contains(process.ref.pid);
  };
  std::optional<LinkSources::Walk> walk;
  if (!followed_.empty() && options_.links != nullptr) {
    walk.emplace(*options_.links, [this](const proc::Ancestor& each) {
      return bool(proc::lease_above({&each, 1}, lineage_, ended_, roots_));
    });
  }
  around.leased = [&](ProcessRef process) { return has_lease(process, walk ? &*walk : nullptr); };
  around.signals_others = (powers(root_) & signals_others) != 0;
  if (order.verb == Verb::inspect) unleased_.inspect(order, pidfd, around, reply);
  else unleased_.end(order, std::move(pidfd), around, reply);
}

// Returns "" or a sentence about the failure. The keeper is not limited.
std::string Service::slow(const Followed& followed, std::uint32_t percent) {
  if (percent == 0) return cpu_.lift(followed.lease);
  scanned_ns_ = 0;
  if (!scan()) return "the process table cannot be read";
  std::vector<ProcessRef> members;
  if (followed.main) members.push_back(followed.main);
  for (const proc::Member& member : lineage_.members)
    if (member.lease == followed.lease && proc::is_program(member.link) && member.process != followed.main)
      members.push_back(member.process);
  return cpu_.limit(followed.lease, followed.place.group, members, static_cast<int>(percent));
}

}  // namespace sublet::actor
