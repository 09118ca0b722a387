// SPDX-License-Identifier: Apache-2.0
// The actor's verbs. Whatever is asked is checked here against what this process sees itself: who is behind a
// descriptor, who descends from whom, who is in a group that it made. What it is told decides nothing but which lease
// is meant and on whose behalf. Belongs to one thread.
#pragma once

#include "actor/groups.h"
#include "actor/helpers.h"
#include "actor/protocol.h"
#include "actor/roles.h"
#include "actor/swap_keeper.h"
#include "base/fd.h"
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
  std::string group_name = "sublet";  // of the control groups, see Groups
  std::int32_t client_pid = 0;        // the daemon: never touched, nor its ancestors; 0: not known
  // Whether that user is an admin, as far as it is known: root and this process's own user are without being asked for.
  // Answers in a moment.
  std::function<bool(std::uint32_t uid)> is_admin;
  Helpers* helpers = nullptr;  // outlive the client, as the processes do; null: nothing is parked
};

// Serves one client; what it was told dies with it.
class Service {
 public:
  Service(const proc::ProcRoot& root, ServiceOptions options);
  ~Service();  // takes empty groups away

  // The answer to one message with what was attached to it. `truncated`: more was attached than could be received.
  Reply answer(std::span<const std::byte> message, std::vector<Fd> descriptors, bool truncated);
  // What goes along with the last answer, if anything.
  Fd take_attachment() { return std::exchange(attachment_, Fd()); }

 private:
  struct Followed {
    LeaseId lease;
    std::uint32_t uid = 0;
    ProcessRef main;    // none: only its group is known
    ProcessRef keeper;  // none: gone
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
  Code check_target(const Order& order, const Fd& pidfd, const Followed* followed, proc::Rights& rights);
  void forget(LeaseId lease);

  bool scan();
  void gather();
  void protect(std::span<const proc::ProcessInfo> table);
  bool untouchable(const proc::ProcessInfo& process) const;

  const proc::ProcRoot& root_;
  ServiceOptions options_;
  Groups groups_;
  SwapKeeper swap_;
  std::map<LeaseId, Followed> followed_;
  proc::Lineage lineage_;
  std::unordered_set<std::int32_t> protected_;  // pids
  std::int64_t scanned_ns_ = 0;
  Fd attachment_;
};

}  // namespace sublet::actor
