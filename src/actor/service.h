// SPDX-License-Identifier: Apache-2.0
// Carries out the actor's verbs. Every order is checked against facts that this process sees itself: the process behind
// a descriptor, descent, and membership of a group that it made. The order decides only which lease is meant and for
// whom. Belongs to one thread.
#pragma once

#include "actor/cpu_limits.h"
#include "actor/groups.h"
#include "actor/helpers.h"
#include "actor/keeper_start.h"
#include "actor/link_sources.h"
#include "actor/protocol.h"
#include "actor/roles.h"
#include "actor/swap_keeper.h"
#include "actor/unleased.h"
#include "base/fd.h"
#include "proc/ended_members.h"
#include "proc/lineage.h"
#include "proc/process_table.h"

#include <functional>
#include <map>
#include <span>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

namespace sublet::actor {

struct ServiceOptions {
  std::string group_name = "sublet";  // NAME of the control groups, see Groups
  std::int32_t client_pid = 0;        // pid of the daemon, which is never touched, nor are its ancestors; 0: not known
  // Whether the user is known to be an admin; root and this process's user are admins without it. Must answer quickly.
  std::function<bool(std::uint32_t uid)> is_admin;
  Helpers* helpers = nullptr;    // outlives the client; null: nothing is parked
  LinkSources* links = nullptr;  // outlives the client; null: parents that have ended are not known
  KeeperOptions keepers{};
  UnleasedOptions unleased{};
};

// Serves one client. All that the client said is forgotten when the client goes.
class Service {
 public:
  Service(const proc::ProcRoot& root, ServiceOptions options);
  ~Service();  // removes empty groups

  // Answers a message with its attached descriptors. `truncated`: some descriptors could not be received.
  Reply answer(std::span<const std::byte> message, std::vector<Fd> descriptors, bool truncated);
  // Returns the descriptor for the last answer, if it has one.
  Fd take_attachment() { return std::exchange(attachment_, Fd()); }

 private:
  struct Followed {
    LeaseId lease;
    std::uint32_t uid = 0;
    ProcessRef main;    // none: only the group is known
    ProcessRef keeper;  // none: the keeper is gone
    Fd keeper_pidfd;
    Groups::Place place;
  };

  Reply obey(const Order& order, std::vector<Fd>& descriptors);
  bool is_admin(std::uint32_t uid) const;
  Role role_of(const Order& order, std::uint32_t lease_uid) const;
  bool reaches(const Order& order, Role role, std::uint32_t lease_uid, const proc::Uids& process) const;
  void hello(Reply& reply);
  void follow(const Order& order, std::vector<Fd>& descriptors, Reply& reply);
  Code check_program(const Order& order, const std::vector<Fd>& descriptors, Followed& followed) const;
  Code check_process(const Fd& pidfd, ProcessRef named, std::uint32_t uid, proc::ProcessInfo& found) const;
  void look(Reply& reply);
  void signal(const Followed& followed, Role role, const Order& order, Reply& reply);
  void wake_keeper(const Followed& followed, Reply& reply) const;
  void tell(const Followed& followed, Role role, const Order& order, Reply& reply);
  void checkpoint(const Order& order, std::vector<Fd>& descriptors, const Followed* followed, Reply& reply);
  void swap(const Order& order, const std::vector<Fd>& descriptors, const Followed* followed, Reply& reply);
  void keep(const Order& order, const Fd& document, Reply& reply);
  void judge_unleased(const Order& order, Fd pidfd, Reply& reply);
  bool has_lease(ProcessRef process, LinkSources::Walk* walk) const;
  void source(const Order& order, const std::vector<Fd>& descriptors, Reply& reply);
  void parents(const Order& order, Reply& reply);
  std::string slow(const Followed& followed, std::uint32_t percent);
  Code check_target(const Order& order, const Fd& pidfd, const Followed* followed, proc::Rights& rights);
  void forget(LeaseId lease);

  // Reads /proc and traces the leases. `fresh`: gets the table, which is then read in any case.
  bool scan(std::vector<proc::ProcessInfo>* fresh = nullptr);
  void gather();
  void protect(std::span<const proc::ProcessInfo> table);
  bool untouchable(const proc::ProcessInfo& process) const;

  const proc::ProcRoot& root_;
  ServiceOptions options_;
  Groups groups_;
  SwapKeeper swap_;
  CpuLimits cpu_;
  Unleased unleased_;
  std::map<LeaseId, Followed> followed_;
  std::vector<proc::LeaseRoots> roots_;  // of the last scan
  proc::Lineage lineage_;
  proc::EndedMembers ended_;
  std::unordered_set<std::int32_t> protected_;  // pids of processes that are never touched
  std::int64_t scanned_ns_ = 0;
  Fd attachment_;
};

}  // namespace sublet::actor
