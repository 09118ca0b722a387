// SPDX-License-Identifier: Apache-2.0
#include "pause/driver_parker.h"

#include "base/clock.h"
#include "pause/checkpoint_tree.h"

#include <fmt/format.h>
#include <boost/asio/co_spawn.hpp>

#include <exception>

namespace sublet::pause {
namespace {

namespace asio = boost::asio;

std::string what_of(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception& exception) {
    return exception.what();
  } catch (...) {
    return "an exception that is none";
  }
}

}  // namespace

struct DriverParker::State : std::enable_shared_from_this<State> {
  struct Order;
  struct Lease {
    std::shared_ptr<CheckpointTree> tree;
    bool busy = false;
  };
  struct Owned {
    std::shared_ptr<CheckpointHelper> helper;
    LeaseId lease;  // none: the lease was forgotten, and the helper is stuck
  };

  State(asio::io_context& i, ParkerOptions o) : io(i), options(std::move(o)) {}

  std::shared_ptr<CheckpointTree> begin(LeaseId lease);
  void run(LeaseId lease, std::shared_ptr<CheckpointTree> tree, asio::awaitable<ParkOutcome> order, Done done);
  std::shared_ptr<CheckpointHelper> helper_for(LeaseId lease, ProcessRef process);
  void drop(ProcessRef process);
  void drop_if(const std::function<bool(ProcessRef, const Owned&)>& unwanted);
  void keep_only(LeaseId lease, const std::vector<ProcessRef>& tree);
  void on_returned(ProcessRef process);
  void forget(LeaseId lease);
  void end();

  asio::io_context& io;
  const ParkerOptions options;
  std::function<void(LeaseId)> returned;
  std::map<LeaseId, Lease> leases;
  std::map<ProcessRef, Owned> helpers;
  bool ended = false;
};

std::shared_ptr<CheckpointTree> DriverParker::State::begin(LeaseId lease) {
  Lease& entry = leases[lease];
  entry.busy = true;
  if (!entry.tree) {
    entry.tree = std::make_shared<CheckpointTree>(
        io, options,
        CheckpointTree::Helpers{.get = [this, lease](ProcessRef process) { return helper_for(lease, process); },
                                .drop = [this](ProcessRef process) { drop(process); },
                                .keep_only = [this, lease](const auto& tree) { keep_only(lease, tree); }});
  }
  return entry.tree;
}

// The coroutine belongs to the tree. Both are kept until it has ended, even if the lease or the Parker is gone.
void DriverParker::State::run(LeaseId lease, std::shared_ptr<CheckpointTree> tree, asio::awaitable<ParkOutcome> order,
                              Done done) {
  const std::int64_t since = monotonic_ns();
  asio::co_spawn(io, std::move(order),
                 [self = shared_from_this(), lease, tree = std::move(tree), done = std::move(done), since](
                     const std::exception_ptr& failure, ParkOutcome outcome) {
                   const auto entry = self->leases.find(lease);
                   const bool known = entry != self->leases.end() && entry->second.tree == tree;
                   if (self->ended || !known) return;
                   entry->second.busy = false;
                   if (failure) {
                     outcome = {};
                     outcome.code = core::ObstacleCode::internal;
                     outcome.detail = fmt::format("cannot park or unpark {}: {}", to_string(lease), what_of(failure));
                   }
                   outcome.took = Duration(monotonic_ns() - since);
                   done(std::move(outcome));
                 });
}

std::shared_ptr<CheckpointHelper> DriverParker::State::helper_for(LeaseId lease, ProcessRef process) {
  if (ended || !leases.contains(lease)) {  // the order continues without a receiver, and changes nothing more
    auto helper = options.helper(lease, process);
    helper->dismiss();
    return helper;
  }
  Owned& owned = helpers[process];
  owned.lease = lease;
  if (!owned.helper) {
    owned.helper = options.helper(lease, process);
    owned.helper->when_returned([weak = weak_from_this(), process] {
      if (const auto self = weak.lock()) self->on_returned(process);
    });
  }
  return owned.helper;
}

void DriverParker::State::drop(ProcessRef process) {
  const auto found = helpers.find(process);
  if (found == helpers.end() || found->second.helper->stuck()) return;
  found->second.helper->dismiss();
  helpers.erase(found);
}

void DriverParker::State::on_returned(ProcessRef process) {
  const auto found = helpers.find(process);
  if (found == helpers.end()) return;
  const LeaseId lease = found->second.lease;
  if (!lease) drop(process);
  else if (returned) returned(lease);
}

void DriverParker::State::drop_if(const std::function<bool(ProcessRef, const Owned&)>& unwanted) {
  std::vector<ProcessRef> dropped;
  for (const auto& [process, owned] : helpers) {
    if (unwanted(process, owned)) dropped.push_back(process);
  }
  for (const ProcessRef process : dropped) drop(process);
}

void DriverParker::State::keep_only(LeaseId lease, const std::vector<ProcessRef>& tree) {
  drop_if([&](ProcessRef process, const Owned& owned) {
    return owned.lease == lease && std::ranges::find(tree, process) == tree.end();
  });
}

void DriverParker::State::forget(LeaseId lease) {
  leases.erase(lease);
  for (auto& [process, owned] : helpers) {
    if (owned.lease == lease) owned.lease = {};
  }
  drop_if([](ProcessRef, const Owned& owned) { return !owned.lease; });
}

void DriverParker::State::end() {
  ended = true;
  leases.clear();
  for (auto& [process, owned] : std::exchange(helpers, {})) owned.helper->dismiss();
}

DriverParker::DriverParker(asio::io_context& io, ParkerOptions options)
    : state_(std::make_shared<State>(io, std::move(options))) {}

DriverParker::~DriverParker() { state_->end(); }

void DriverParker::park(LeaseId lease, Program program, Duration give_up, List list, Touch touch, Weigh weigh,
                        Done done) {
  auto tree = state_->begin(lease);
  auto order = tree->park(program, give_up, std::move(list), std::move(touch), std::move(weigh));
  state_->run(lease, std::move(tree), std::move(order), std::move(done));
}

void DriverParker::unpark(LeaseId lease, std::vector<ProcessRef> tree, std::vector<Room> room, Duration give_up,
                          Done done) {
  auto its = state_->begin(lease);
  auto order = its->unpark(std::move(tree), std::move(room), give_up);
  state_->run(lease, std::move(its), std::move(order), std::move(done));
}

bool DriverParker::busy(LeaseId lease) const {
  const auto found = state_->leases.find(lease);
  return found != state_->leases.end() && found->second.busy;
}

void DriverParker::when_returned(std::function<void(LeaseId)> told) { state_->returned = std::move(told); }

void DriverParker::forget(LeaseId lease) { state_->forget(lease); }

}  // namespace sublet::pause
