// SPDX-License-Identifier: Apache-2.0
#include "machine/local_unleased.h"

#include "base/aside.h"
#include "machine/actor.h"
#include "machine/programs.h"
#include "proc/detached.h"
#include "proc/pidfd.h"

#include <fmt/format.h>
#include <boost/asio/post.hpp>

#include <fcntl.h>
#include <unistd.h>
#include <algorithm>
#include <cstring>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

namespace sublet::machine {
namespace {

actor::Order order_about(actor::Verb verb, ProcessRef process, int pidfd) {
  return {.verb = verb,
          .main_pid = process.pid,
          .main_start = process.start_ticks,
          .main_inode = proc::pidfd_inode(pidfd).value_or(0)};
}

std::string sentence_about(const actor::Reply& reply) {
  if (reply.error == 0) return std::string(to_string(reply.code));
  return fmt::format("{}: {}", to_string(reply.code), std::strerror(reply.error));
}

// `signals`: the order sends a signal, so an order that was lost may have been obeyed.
UnleasedResult result_of(const actor::Reply& reply, bool signals) {
  using Kind = UnleasedResult::Kind;
  UnleasedResult result;
  switch (reply.code) {
    case actor::Code::ok: result.kind = Kind::done; break;
    // Another inode: the pid is of another process now.
    case actor::Code::gone:
    case actor::Code::no_proof: result.kind = Kind::gone; break;
    case actor::Code::lost: result.kind = signals && reply.error != 0 ? Kind::uncertain : Kind::no_actor; break;
    default: result.kind = Kind::spared; break;
  }
  if (result.kind != Kind::done) result.why = sentence_about(reply);
  result.lasting = reply.code == actor::Code::untouchable;
  if (reply.code == actor::Code::lost) return result;
  result.exe = reply.path;
  result.device_file = (reply.flags & actor::has_device_file) != 0;
  result.mapping = (reply.flags & actor::has_mapping) != 0;
  result.sent = static_cast<int>(reply.sent);
  result.spared_descendants = static_cast<int>(reply.left);
  return result;
}

proc::Ancestor to_ancestor(const actor::Parent& parent) {
  const auto last = static_cast<std::uint32_t>(proc::ParentSource::leader);
  return {.process = {parent.pid, parent.start_ticks},
          .uid = parent.uid,
          .name = std::string(parent.name, ::strnlen(parent.name, sizeof parent.name)),
          .source = static_cast<proc::ParentSource>(std::min(parent.source, last)),
          .certain = (parent.flags & actor::is_certain) != 0,
          .dead = (parent.flags & actor::has_ended) != 0,
          .ended = Time{parent.ended_ns}};
}

Parents read_parents(const actor::Reply& reply, const Fd& file) {
  Parents parents;
  if (reply.code != actor::Code::ok || !file) return parents;
  std::vector<actor::Parent> all(std::min(reply.sent, actor::most_parents));
  const auto size = static_cast<ssize_t>(all.size() * sizeof(actor::Parent));
  if (::pread(file.get(), all.data(), static_cast<std::size_t>(size), 0) != size) return parents;
  parents.asked = true;
  for (const actor::Parent& each : all) parents.ancestry.push_back(to_ancestor(each));
  parents.missing = reply.path;
  return parents;
}

class LocalUnleased final : public Unleased {
 public:
  LocalUnleased(boost::asio::io_context& io, Actor& actor, Programs& programs)
      : io_(io), actor_(actor), programs_(programs) {}

  Result<std::uint64_t> hold(ProcessRef process, std::uint64_t inode) override {
    auto pidfd = proc::open_pidfd(programs_.root(), process);
    if (!pidfd) return pidfd.error();
    const std::uint64_t its = proc::pidfd_inode(pidfd->get()).value_or(0);
    if (inode != 0 && its != inode) {
      return not_found(fmt::format("process {} has ended: another process has its pid now", process.pid));
    }
    held_.insert_or_assign(process, std::move(*pidfd));
    return its;
  }
  void let_go(ProcessRef process) override { held_.erase(process); }
  bool lives(ProcessRef process) const override {
    const auto found = held_.find(process);
    return found != held_.end() && !proc::is_dead(found->second.get());
  }
  Result<proc::ProcessRecord> describe(ProcessRef process) const override {
    auto record = proc::describe_process(programs_.root(), process, false);
    if (record) record->command = command_of(process);
    const auto found = held_.find(process);
    // The process lives, so all that was read before is of this process.
    if (record && found != held_.end() && proc::is_dead(found->second.get())) {
      return not_found(fmt::format("process {} has ended", process.pid));
    }
    return record;
  }

  void trace(ProcessRef process, std::function<void(const Parents&)> told) override {
    const actor::Order order{.verb = actor::Verb::parents, .main_pid = process.pid, .main_start = process.start_ticks};
    actor_.fetch(order, {}, [told = std::move(told)](const actor::Reply& reply, const Fd& file) {
      told(read_parents(reply, file));
    });
  }
  LeaseId lease_above(const std::vector<proc::Ancestor>& ancestry) const override {
    return programs_.lease_above(ancestry);
  }
  void open_sources(const std::string& accounting) override {
    const auto ask = [this](std::uint32_t which, std::size_t place, std::span<const int> descriptors) {
      actor_.order({.verb = actor::Verb::source, .flags = which}, descriptors, [this, place](const auto& reply) {
        sources_[place].works = reply.code == actor::Code::ok;
        sources_[place].text = reply.path[0] != '\0' ? reply.path : std::string(to_string(reply.code));
      });
    };
    ask(actor::the_connector, 0, {});
    const auto path = proc::document_file(accounting);
    if (!path) return;
    const int descriptor = path->get();
    ask(actor::the_accounting, 1, {&descriptor, 1});
  }
  const std::vector<LinkSource>& sources() const override { return sources_; }

  void look(ProcessRef process, Done done) override {
    const Fd* pidfd = ready_for(process, done);
    if (pidfd == nullptr) return;
    const int descriptor = pidfd->get();
    actor_.order(order_about(actor::Verb::inspect, process, descriptor), {&descriptor, 1},
                 [done = std::move(done)](const actor::Reply& reply) { done(result_of(reply, false)); });
  }

  void end(std::uint64_t verdict, ProcessRef process, int signal, const std::vector<ProcessRef>& spare,
           Done done) override {
    programs_.scan();
    const Fd* pidfd = ready_for(process, done);
    if (pidfd == nullptr) return;
    const auto ending = std::make_shared<Ending>();
    ending->pidfd = Fd(::fcntl(pidfd->get(), F_DUPFD_CLOEXEC, 3));
    ending->order = order_about(actor::Verb::end, process, pidfd->get());
    ending->order.lease = verdict;
    ending->order.signal = signal;
    ending->done = std::move(done);
    std::vector<proc::HeldProcess> leased;
    if (!ending->pidfd || !hold_leased(leased) || !hold_all(spare, leased)) {
      refuse(ending->done, UnleasedResult::Kind::no_actor, "the processes of leases cannot be told to the actor");
      return;
    }
    ending->waiting = leased.size() + 1;
    for (const proc::HeldProcess& held : leased) {
      const int descriptor = held.pidfd.get();
      actor::Order order = order_about(actor::Verb::end, held.info.ref, descriptor);
      order.lease = verdict;
      order.flags = actor::to_spare;
      actor_.order(order, {&descriptor, 1}, [ending, &actor = actor_](const actor::Reply& reply) {
        const bool ended = reply.code == actor::Code::gone || reply.code == actor::Code::no_proof;
        if (reply.code != actor::Code::ok && !ended) ending->failure = reply;
        go_on(ending, actor);
      });
    }
    go_on(ending, actor_);
  }

  void close(std::uint64_t verdict) override {
    if (!actor_.ready()) return;  // the next actor knows no record
    actor_.order({.verb = actor::Verb::close, .lease = verdict}, {}, [](const actor::Reply&) {});
  }

 private:
  // An order to end a process that waits until the actor knows all processes of leases.
  struct Ending {
    actor::Order order;
    Fd pidfd;
    Done done;
    std::size_t waiting = 0;  // answers that are missing, and one for the caller
    std::optional<actor::Reply> failure{};
  };

  static void go_on(const std::shared_ptr<Ending>& ending, Actor& actor) {
    if (--ending->waiting > 0) return;
    if (ending->failure) {
      UnleasedResult result{.kind = UnleasedResult::Kind::no_actor, .why = sentence_about(*ending->failure)};
      return ending->done(result);
    }
    const int descriptor = ending->pidfd.get();
    actor.order(ending->order, {&descriptor, 1},
                [done = std::move(ending->done)](const actor::Reply& reply) { done(result_of(reply, true)); });
  }

  void refuse(const Done& done, UnleasedResult::Kind kind, std::string why) {
    UnleasedResult result{.kind = kind, .why = std::move(why)};
    boost::asio::post(io_, [done, result] { done(result); });
  }

  // Returns the pidfd for an order. Null: no order is possible, and `done` is called later.
  const Fd* ready_for(ProcessRef process, const Done& done) {
    const auto found = held_.find(process);
    const proc::Member* member = lives(process) ? programs_.member(process) : nullptr;
    if (found == held_.end()) {
      refuse(done, UnleasedResult::Kind::gone, "the process is not held");
    } else if (!actor_.ready()) {
      refuse(done, UnleasedResult::Kind::no_actor, "the actor does not run");
    } else if (member != nullptr) {
      refuse(done, UnleasedResult::Kind::spared, fmt::format("the process belongs to {}", to_string(member->lease)));
    } else {
      return &found->second;
    }
    return nullptr;
  }

  // Holds the processes of leases. The actor cannot prove processes that Sublet did not start, such as attached ones.
  // It spares all below a named process, so only the uppermost processes of each lease are held. False: some cannot be
  // held.
  bool hold_leased(std::vector<proc::HeldProcess>& leased) const {
    const auto table = programs_.root().list();
    if (!table) return false;
    std::unordered_map<std::int32_t, ProcessRef> by_pid;
    for (const proc::ProcessInfo& process : *table) by_pid.emplace(process.ref.pid, process.ref);
    for (const proc::ProcessInfo& process : *table) {
      if (process.dead() || programs_.member(process.ref) == nullptr) continue;
      const auto parent = by_pid.find(process.ppid);
      if (parent != by_pid.end() && programs_.member(parent->second) != nullptr) continue;
      auto pidfd = proc::open_pidfd(programs_.root(), process.ref);
      if (pidfd) leased.push_back({std::move(*pidfd), process});
      else if (pidfd.error().code != Code::NotFound) return false;
    }
    return true;
  }

  // Holds the other processes that must be spared. False: some cannot be held.
  bool hold_all(const std::vector<ProcessRef>& spare, std::vector<proc::HeldProcess>& held) const {
    for (const ProcessRef process : spare) {
      const auto info = programs_.root().read(process.pid);
      if (!info || info->ref != process) continue;  // it has ended
      auto pidfd = proc::open_pidfd(programs_.root(), process);
      if (pidfd) held.push_back({std::move(*pidfd), *info});
      else if (pidfd.error().code != Code::NotFound) return false;
    }
    return true;
  }

  // The process may block the reader, so another thread reads. "": there is no answer yet.
  static std::string command_of(ProcessRef process) {
    constexpr std::int64_t patience_ns = 50'000'000;
    static AsideThread thread;
    static AskedAside<ProcessRef, std::string> commands(thread, {.patience_ns = patience_ns});
    const auto fresh = [](const std::string&, std::int64_t) { return true; };
    return commands
        .get(process, fresh,
             [pid = process.pid]() -> Result<std::string> {
               const auto root = proc::ProcRoot::open();
               if (!root) return root.error();
               return root->command_line(pid);
             })
        .value_or("");
  }

  boost::asio::io_context& io_;
  Actor& actor_;
  Programs& programs_;
  std::unordered_map<ProcessRef, Fd> held_;
  std::vector<LinkSource> sources_{{"connector", false, "not asked yet"}, {"accounting", false, "not asked yet"}};
};

}  // namespace

std::unique_ptr<Unleased> local_unleased(boost::asio::io_context& io, Actor& actor, Programs& programs) {
  return std::make_unique<LocalUnleased>(io, actor, programs);
}

}  // namespace sublet::machine
