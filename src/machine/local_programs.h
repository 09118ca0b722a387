// SPDX-License-Identifier: Apache-2.0
// The programs of this machine, found through /proc. Holds a pidfd of each owner and keeper, so that an end is noticed
// at once and no reused pid is mistaken. The actor sends the signals. Orders for an actor that is away are sent when it
// is back.
#pragma once

#include "base/fd.h"
#include "machine/actor.h"
#include "machine/programs.h"
#include "proc/ended_members.h"
#include "proc/lease_group.h"
#include "proc/pidfd.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <unordered_map>

namespace sublet::machine {

class LocalPrograms final : public Programs {
 public:
  // `reconnect`: time for a living keeper to report the exit status. Keeps a reference to `actor`.
  LocalPrograms(boost::asio::io_context& io, Actor& actor, Duration reconnect);
  ~LocalPrograms() override;

  Status open(Events events) override;  // /proc must be readable
  void introduce_all() override;
  void follow(const core::Lease& lease, bool adopted) override;
  void book(const core::Lease& lease) override;
  void forget(LeaseId lease) override;
  void forget_others(const std::function<bool(LeaseId)>& keep) override;
  void scan() override;
  const proc::Member* member(ProcessRef process) const override;
  std::vector<ProcessRef> tree(LeaseId lease) const override;
  bool inhabited(LeaseId lease) const override;
  LeaseId lease_above(std::span<const proc::Ancestor> ancestry) const override;
  LeaseId lease_around(std::int32_t pid, bool owned) const override;
  LeaseId lease_of_group(std::int32_t pid) const override;
  std::vector<StoppedProgram> stopped_programs() const override { return stopped_; }
  std::string name(ProcessRef process) const override;
  bool signal(LeaseId lease, int signal, std::uint32_t asked_by) override;
  bool keeper_alive(LeaseId lease) const override;
  void wake_keeper(LeaseId lease, std::uint32_t asked_by) override;
  void tell(LeaseId lease, ProcessRef process, int signal, std::function<void(SignalResult)> done) override;
  void keep_from_swap(LeaseId lease, ProcessRef process, bool keep, std::function<void(std::string)> done) override;
  void all_are_kept() override;
  void limit_cpu(LeaseId lease, CpuCause cause, int percent, std::function<void(const CpuLimited&)> done) override;
  // Has the actor start the helper for a process of a lease (src/pause/local_checkpoint_helper.h). `to_bring_back`: no
  // proof is needed that the process belongs to the lease's program.
  void start_helper(LeaseId lease, ProcessRef process, bool to_bring_back, HelperStarted done);
  bool can_signal(LeaseId lease) const override;
  std::string why_not_signalled(LeaseId lease) const override;
  Result<Identified> identify(std::int32_t pid, std::optional<std::uint32_t> uid, std::int32_t parent) const override;
  Status check_pid_namespace(std::int32_t asking_pid) const override;
  Result<proc::CgroupRef> check_cgroup(const std::string& directory) const override;
  Result<std::string> group_directory(const std::string& path) const override;
  Result<proc::GroupState> look_at_group(const std::string& path) const override { return proc::look_at_group(path); }
  bool take_group_seen(LeaseId lease) override;
  bool lives(ProcessRef process) const override;
  const proc::ProcRoot& root() const override { return *root_; }

 private:
  struct Program;
  void open_main(const std::shared_ptr<Program>& program);
  void watch(const std::shared_ptr<Program>& program);
  void watch_keeper(const std::shared_ptr<Program>& program);
  void check_keeper(const std::shared_ptr<Program>& program);
  void check(const std::shared_ptr<Program>& program);
  void check_again(const std::shared_ptr<Program>& program);
  bool tree_lives(LeaseId lease) const;
  LeaseId lease_of(ProcessRef process, std::uint32_t uid) const;
  void find_stopped(std::span<const proc::ProcessInfo> table);
  std::shared_ptr<Program> find(LeaseId lease) const;
  // Control groups (local_programs_groups.cpp).
  std::vector<proc::LeaseRoots> roots() const;
  bool add_members(const proc::CgroupRef& group, proc::LeaseRoots& roots) const;
  // The conversation with the actor (local_programs_actor.cpp).
  void introduce(const std::shared_ptr<Program>& program);
  void introduced(const std::shared_ptr<Program>& program, const actor::Reply& reply);
  void send_wanted(const std::shared_ptr<Program>& program);
  void signalled(const std::shared_ptr<Program>& program, int signal, const actor::Reply& reply);
  void have_actor_look();
  bool is_known_to_actor(const Program& program, ProcessRef process) const;

  boost::asio::io_context& io_;
  Actor& actor_;
  Duration reconnect_;
  Events events_;
  std::optional<proc::ProcRoot> root_;
  mutable proc::MountedHierarchies hierarchies_;
  std::unordered_map<LeaseId, std::shared_ptr<Program>> programs_;
  proc::Lineage lineage_;
  proc::Lineage previous_;
  std::vector<proc::LeaseRoots> roots_;  // of the last scan
  proc::EndedMembers ended_members_;
  std::vector<StoppedProgram> stopped_;
  std::int64_t scanned_ns_ = 0;  // CLOCK_MONOTONIC in ns, when /proc was last read
  std::set<LeaseId> kept_from_swap_;
  bool actor_looks_ = false;  // the actor has not answered an order to look
};

}  // namespace sublet::machine
