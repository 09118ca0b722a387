// SPDX-License-Identifier: Apache-2.0
// Looks for evidence that a process under no lease uses a GPU, and ends such a process with its descendants. Each order
// proves and judges all processes anew. Belongs to one thread.
#pragma once

#include "actor/protocol.h"
#include "base/fd.h"
#include "proc/pidfd.h"
#include "proc/process_table.h"

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace sublet::actor {

struct UnleasedOptions {
  std::string cards{};      // directory of the simulated cards; "": none
  std::string directory{};  // of Sublet's programs; "": the directory of this program
};

// The processes at the time of an order, and what the service knows about them.
struct Surroundings {
  std::vector<proc::ProcessInfo> table;  // read for this order
  std::function<bool(const proc::ProcessInfo& process)> untouchable;
  std::function<bool(ProcessRef process)> leased;  // a member of a lease by any link, or a keeper
  bool signals_others = false;                     // this process may signal processes of other users
};

class Unleased {
 public:
  Unleased(const proc::ProcRoot& root, UnleasedOptions options);

  // The verb `inspect`: the process is proven by the pidfd, it is not protected and under no lease, and there is
  // evidence.
  void inspect(const Order& order, const Fd& pidfd, const Surroundings& around, Reply& reply) const;
  // The verb `end`: signals the process and its living descendants after the same look. Descendants need no evidence.
  // All that is protected, leased, or of another real user is spared, with everything below it.
  void end(const Order& order, Fd pidfd, const Surroundings& around, Reply& reply);
  // The verb `end` with the flag `to_spare`: the next order about the record spares the process and everything below
  // it.
  void spare(const Order& order, const Fd& pidfd, Reply& reply);
  void close(std::uint64_t verdict) { records_.erase(verdict); }

 private:
  struct Target {
    ProcessRef process;
    Fd pidfd;
  };
  // The state of a record of the daemon.
  struct Record {
    ProcessRef process;
    std::uint64_t inode = 0;
    std::uint32_t uid = 0;            // real, when it was judged last
    std::vector<Target> descendants;  // got SIGTERM
    std::set<ProcessRef> spared;      // named by the daemon, for the next order
  };
  class Tree;

  Code prove(const Order& order, const Fd& pidfd) const;
  // `uid`: gets the real user of the process.
  Code judge(const Order& order, const Fd& pidfd, const Surroundings& around, Reply& reply, std::uint32_t& uid) const;
  bool is_exempt(std::int32_t pid, std::uint32_t offender) const;
  static void send(const std::vector<Target>& targets, int signal, Reply& reply);
  void remember(std::uint64_t verdict, Record record);

  const proc::ProcRoot& root_;
  UnleasedOptions options_;
  std::map<std::uint64_t, Record> records_;
};

}  // namespace sublet::actor
