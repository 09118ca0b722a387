// SPDX-License-Identifier: Apache-2.0
#include "keep/tree.h"

#include "proc/pidfd.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <unordered_map>

namespace sublet::keep {
namespace {

// A list of all processes takes milliseconds, and most keepers have no child yet.
bool has_children() {
  siginfo_t info{};
  return ::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT | __WALL) == 0 || errno != ECHILD;
}

}  // namespace

Result<Tree> Tree::open() {
  auto root = proc::ProcRoot::open();
  if (!root) return root.error();
  Tree tree(std::move(*root));
  if (!has_children()) return tree;
  auto before = tree.root_.list();
  if (!before) return before.error();
  for (const auto& process : *before) {
    if (process.ppid == ::getpid()) tree.foreign_.insert(process.ref);
  }
  return tree;
}

Result<std::vector<proc::ProcessInfo>> Tree::processes() const {
  auto all = root_.list();
  if (!all) return all.error();
  std::unordered_multimap<std::int32_t, const proc::ProcessInfo*> children;
  for (const auto& process : *all) children.emplace(process.ppid, &process);
  std::vector<proc::ProcessInfo> found;
  std::set<std::int32_t> seen{::getpid()};
  std::vector<std::int32_t> open{::getpid()};
  while (!open.empty()) {
    const std::int32_t parent = open.back();
    open.pop_back();
    const auto [from, to] = children.equal_range(parent);
    for (auto it = from; it != to; ++it) {
      const proc::ProcessInfo& process = *it->second;
      // The table is no snapshot: a pid that was reused while the table was read could close a cycle.
      if (foreign_.contains(process.ref) || !seen.insert(process.ref.pid).second) continue;
      open.push_back(process.ref.pid);
      if (!process.dead()) found.push_back(process);
    }
  }
  return found;
}

Result<int> Tree::signal(int signal, bool spare_our_group) const {
  const auto list = processes();
  if (!list) return list.error();
  int sent = 0;
  for (const auto& process : *list) {
    if (spare_our_group && process.pgrp == ::getpgrp()) continue;
    const auto pidfd = proc::open_pidfd(root_, process.ref);
    if (pidfd && proc::send_signal(pidfd->get(), signal)) ++sent;
  }
  return sent;
}

}  // namespace sublet::keep
