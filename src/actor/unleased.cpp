// SPDX-License-Identifier: Apache-2.0
#include "actor/unleased.h"

#include "actor/gpu_evidence.h"
#include "actor/protected_programs.h"

#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace sublet::actor {
namespace {

// Descendants above these numbers are signalled, but not remembered.
constexpr std::size_t most_of_record = 1024, most_remembered = 8192;
constexpr std::size_t most_records = 1024;

ProcessRef named_in(const Order& order) { return {order.main_pid, order.main_start}; }

}  // namespace

// Collects the living processes below the first ones, from one reading of the process table. Each is proven by its
// parent: the parent lived after the process named it, so no reused pid is taken for a descendant.
class Unleased::Tree {
 public:
  using Spared = std::set<ProcessRef>;
  Tree(const Unleased& unleased, const Surroundings& around, const Spared& spared)
      : unleased_(unleased), around_(around), spared_(spared) {
    for (const proc::ProcessInfo& process : around.table) {
      by_pid_.emplace(process.ref.pid, &process);
      children_.emplace(process.ppid, &process);
    }
  }

  // The real user of the process that is ended. Its descendants of other users are spared.
  void set_offender(std::uint32_t uid) { offender_ = uid; }
  // The process was judged already.
  void add_proven(Target target) {
    if (seen_.insert(target.process.pid).second) targets_.push_back(std::move(target));
  }
  // A descendant of an earlier reading, which may have another parent now.
  void add_remembered(Target target) {
    const proc::ProcessInfo* now = find(target.process);
    if (now == nullptr || proc::is_dead(target.pidfd.get()) || seen_.contains(target.process.pid)) return;
    if (must_spare(*now) || is_below_spared(*now)) spare_all(*now);
    else add_proven(std::move(target));
  }
  void add_descendants() {
    for (std::size_t i = 0; i < targets_.size(); ++i) add_children(i);
  }

  const proc::ProcessInfo* find(ProcessRef process) const {
    const auto found = by_pid_.find(process.pid);
    return found == by_pid_.end() || found->second->ref != process ? nullptr : found->second;
  }
  // Whether the daemon wants the process or one above it to be spared.
  bool is_below_spared(const proc::ProcessInfo& process) const {
    const proc::ProcessInfo* at = &process;
    for (std::size_t steps = 0; steps <= by_pid_.size(); ++steps) {
      if (spared_.contains(at->ref)) return true;
      const auto above = by_pid_.find(at->ppid);
      if (above == by_pid_.end()) return false;
      at = above->second;
    }
    return false;  // a loop, which only a table torn by reused pids can show
  }

  std::vector<Target> take_targets() { return std::move(targets_); }
  std::uint32_t spared() const { return left_; }

 private:
  void add_children(std::size_t parent) {
    const std::int32_t pid = targets_[parent].process.pid;
    const auto [first, last] = children_.equal_range(pid);
    for (auto at = first; at != last; ++at) {
      const proc::ProcessInfo& child = *at->second;
      if (child.dead() || seen_.contains(child.ref.pid)) continue;
      auto held = proc::hold_process(unleased_.root_, child.ref.pid);
      const bool ended = held ? held->info.ref != child.ref : held.error().code == sublet::Code::NotFound;
      if (ended) continue;
      const bool proven = held && held->info.ppid == pid && !proc::is_dead(targets_[parent].pidfd.get());
      if (!proven || must_spare(child)) spare_all(child);
      else add_proven({child.ref, std::move(held->pidfd)});
    }
  }

  bool must_spare(const proc::ProcessInfo& process) const {
    return around_.untouchable(process) || spared_.contains(process.ref) || around_.leased(process.ref) ||
           unleased_.is_exempt(process.ref.pid, offender_);
  }

  void spare_all(const proc::ProcessInfo& process) {
    std::vector<const proc::ProcessInfo*> open{&process};
    while (!open.empty()) {
      const proc::ProcessInfo& next = *open.back();
      open.pop_back();
      if (!seen_.insert(next.ref.pid).second) continue;
      if (!next.dead()) ++left_;
      const auto [first, last] = children_.equal_range(next.ref.pid);
      for (auto at = first; at != last; ++at) open.push_back(at->second);
    }
  }

  const Unleased& unleased_;
  const Surroundings& around_;
  const Spared& spared_;
  std::unordered_map<std::int32_t, const proc::ProcessInfo*> by_pid_;
  std::unordered_multimap<std::int32_t, const proc::ProcessInfo*> children_;  // by the pid of the parent
  std::unordered_set<std::int32_t> seen_;
  std::vector<Target> targets_;
  std::uint32_t offender_ = 0;
  std::uint32_t left_ = 0;
};

Unleased::Unleased(const proc::ProcRoot& root, UnleasedOptions options) : root_(root), options_(std::move(options)) {
  if (options_.directory.empty()) options_.directory = own_directory();
}

// The pidfd decides. Pid and start time only show that the daemon means the same process.
Code Unleased::prove(const Order& order, const Fd& pidfd) const {
  const auto behind = proc::process_behind(root_, pidfd.get());
  if (!behind) return behind.error().code == sublet::Code::NotFound ? Code::gone : Code::descriptors;
  if (behind->ref != named_in(order)) return Code::gone;
  if (proc::pidfd_inode(pidfd.get()).value_or(0) != order.main_inode) return Code::no_proof;
  return Code::ok;
}

Code Unleased::judge(const Order& order, const Fd& pidfd, const Surroundings& around, Reply& reply,
                     std::uint32_t& uid) const {
  if (const Code code = prove(order, pidfd); code != Code::ok) return code;
  const auto now = root_.read_with(order.main_pid, "status");
  const auto uids = now ? proc::parse_uids(now->text) : std::nullopt;
  const auto files = proc::open_process_files(root_, order.main_pid);
  if (!uids || !files || now->info.ref != named_in(order) || proc::is_dead(pidfd.get())) return Code::gone;
  uid = uids->real;
  // The pidfd lives, so all that was read is of its process. The directory stays bound to it.
  const auto executable = proc::executable_of(files->get());
  if (executable)
    std::memcpy(reply.path, executable->path.data(), std::min(executable->path.size(), sizeof reply.path - 1));
  if (around.untouchable(now->info)) return Code::untouchable;
  const bool hosts = root_.shares_namespaces(order.main_pid, now->text);
  if (executable && actor::is_protected(*executable, hosts, options_.directory)) return Code::untouchable;
  if (around.leased(named_in(order))) return Code::leased;
  const GpuEvidence evidence = find_gpu_evidence(files->get(), options_.cards);
  if (evidence.device_file) reply.flags |= has_device_file;
  if (evidence.mapping) reply.flags |= has_mapping;
  if (proc::is_dead(pidfd.get())) return Code::gone;
  if (!evidence.device_file && !evidence.mapping) return Code::no_evidence;
  const bool others = uid != ::geteuid() && uids->saved != ::geteuid();
  if (others && !around.signals_others) {
    reply.error = EPERM;
    return Code::failed;
  }
  return Code::ok;
}

// Whether a descendant is of another user than the offender, or protected. A process whose executable cannot be seen
// may be a protected one.
bool Unleased::is_exempt(std::int32_t pid, std::uint32_t offender) const {
  const auto now = root_.read_with(pid, "status");
  const auto files = proc::open_process_files(root_, pid);
  if (!now || !files) return false;  // it has ended
  const auto uids = proc::parse_uids(now->text);
  if (!uids || uids->real != offender) return true;
  const auto executable = proc::executable_of(files->get());
  if (!executable) return executable.error().code != sublet::Code::NotFound;
  return actor::is_protected(*executable, root_.shares_namespaces(pid, now->text), options_.directory);
}

void Unleased::inspect(const Order& order, const Fd& pidfd, const Surroundings& around, Reply& reply) const {
  std::uint32_t uid = 0;
  reply.code = judge(order, pidfd, around, reply, uid);
}

void Unleased::spare(const Order& order, const Fd& pidfd, Reply& reply) {
  reply.code = prove(order, pidfd);
  if (reply.code != Code::ok) return;
  if (!records_.contains(order.lease) && records_.size() >= most_records) reply.code = Code::too_many;
  else records_[order.lease].spared.insert(named_in(order));
}

void Unleased::end(const Order& order, Fd pidfd, const Surroundings& around, Reply& reply) {
  const auto known = records_.find(order.lease);
  Record record = known == records_.end() ? Record{} : std::exchange(known->second, {});
  const Tree::Spared spared = std::exchange(record.spared, {});
  Tree tree(*this, around, spared);
  const proc::ProcessInfo* process = tree.find(named_in(order));
  const bool is_spared = process != nullptr && !process->dead() && tree.is_below_spared(*process);
  reply.code = is_spared ? Code::leased : judge(order, pidfd, around, reply, record.uid);
  const bool same = record.process == named_in(order) && record.inode == order.main_inode;
  tree.set_offender(record.uid);
  if (reply.code == Code::ok) tree.add_proven({named_in(order), std::move(pidfd)});
  if (reply.code == Code::ok || (reply.code == Code::gone && order.signal == SIGKILL && same)) {
    for (Target& target : record.descendants)
      if (same) tree.add_remembered(std::move(target));
    tree.add_descendants();
    reply.left = tree.spared();
    record = {named_in(order), order.main_inode, record.uid, tree.take_targets(), {}};
    send(record.descendants, order.signal, reply);
    std::erase_if(record.descendants, [&](const Target& target) { return target.process == named_in(order); });
  }
  records_.erase(order.lease);
  if (record.process) remember(order.lease, std::move(record));
}

void Unleased::send(const std::vector<Target>& targets, int signal, Reply& reply) {
  for (const Target& target : targets) {
    const Status sent = proc::send_signal(target.pidfd.get(), signal);
    if (sent) ++reply.sent;
    else if (sent.error().code != sublet::Code::NotFound) ++reply.refused;
    // A stopped process could not react to SIGTERM.
    if (sent && signal == SIGTERM) (void)proc::send_signal(target.pidfd.get(), SIGCONT);
  }
  if (reply.sent > 0) {
    reply.code = Code::ok;
  } else if (reply.refused == 0) {
    reply.code = Code::gone;
  } else {
    reply.code = Code::failed;
    reply.error = EPERM;
  }
}

// Each remembered descendant costs a descriptor.
void Unleased::remember(std::uint64_t verdict, Record record) {
  if (records_.size() >= most_records) return;
  std::size_t all = 0;
  for (const auto& [number, other] : records_) all += other.descendants.size();
  const std::size_t most = std::min(most_of_record, most_remembered - std::min(all, most_remembered));
  if (record.descendants.size() > most) record.descendants.resize(most);
  records_.emplace(verdict, std::move(record));
}

}  // namespace sublet::actor
