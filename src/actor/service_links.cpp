// SPDX-License-Identifier: Apache-2.0
// The verbs of the actor about sources of links, and the links that spare a process.
#include "actor/service.h"
#include "proc/detached.h"

#include <fcntl.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string>

namespace sublet::actor {
namespace {

constexpr std::size_t longest_path = 4096;

Parent to_parent(const proc::Ancestor& ancestor) {
  Parent parent{.pid = ancestor.process.pid,
                .uid = ancestor.uid,
                .start_ticks = ancestor.process.start_ticks,
                .ended_ns = ancestor.ended.ns,
                .source = static_cast<std::uint32_t>(ancestor.source)};
  if (ancestor.certain) parent.flags |= is_certain;
  if (ancestor.dead) parent.flags |= has_ended;
  std::memcpy(parent.name, ancestor.name.data(), std::min(ancestor.name.size(), sizeof parent.name - 1));
  return parent;
}

void set_path(Reply& reply, const std::string& text) {
  std::memcpy(reply.path, text.data(), std::min(text.size(), sizeof reply.path - 1));
}

// A sealed memfd cannot become shorter meanwhile, and its reading does not wait. False: it is no such file.
bool read_path(const Fd& document, std::string& path) {
  constexpr int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
  if ((::fcntl(document.get(), F_GET_SEALS) & seals) != seals) return false;
  std::array<char, longest_path + 1> text;
  const ssize_t size = ::pread(document.get(), text.data(), text.size(), 0);
  if (size < 0 || static_cast<std::size_t>(size) > longest_path) return false;
  path.assign(text.data(), static_cast<std::size_t>(size));
  return (path.empty() || path[0] == '/') && path.find('\0') == std::string::npos;
}

}  // namespace

void Service::source(const Order& order, const std::vector<Fd>& descriptors, Reply& reply) {
  LinkSources::Condition condition{false, "sublet-actor was started without sources of links"};
  if (order.flags == the_accounting) {
    std::string path;
    if (!read_path(descriptors[0], path)) {
      reply.code = Code::descriptors;
      return;
    }
    if (options_.links != nullptr) condition = options_.links->account(path);
  } else if (options_.links != nullptr) {
    condition = options_.links->listen();
  }
  reply.code = condition.works ? Code::ok : Code::failed;
  set_path(reply, condition.text);
}

void Service::parents(const Order& order, Reply& reply) {
  if (options_.links == nullptr) {
    reply.code = Code::failed;
    return;
  }
  const Traced traced = options_.links->trace({order.main_pid, order.main_start});
  std::vector<Parent> all;
  for (const proc::Ancestor& each : traced.ancestry) all.push_back(to_parent(each));
  auto file = proc::document_file({reinterpret_cast<const char*>(all.data()), all.size() * sizeof(Parent)});
  if (!file) {
    reply.code = Code::failed;
    reply.error = ENOMEM;
    return;
  }
  reply.sent = static_cast<std::uint32_t>(all.size());
  set_path(reply, traced.missing);
  attachment_ = std::move(*file);
}

// A process below a dead one of a lease is spared, as if the dead one lived. Records about the dead never condemn.
// `walk`: of this order; null: there is nothing to find.
bool Service::has_lease(ProcessRef process, LinkSources::Walk* walk) const {
  const auto keeps = [&](const auto& entry) { return entry.second.keeper == process; };
  if (lineage_.find(process) != nullptr || std::any_of(followed_.begin(), followed_.end(), keeps)) return true;
  return walk != nullptr && walk->finds(process);
}

}  // namespace sublet::actor
