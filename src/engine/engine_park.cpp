// SPDX-License-Identifier: Apache-2.0
// Yielding and coming back as the core orders it, carried out by the parker.
#include "base/log.h"
#include "engine/engine.h"

#include "base/planted.h"

#include <fmt/format.h>
#include <boost/asio/post.hpp>

#include <algorithm>

namespace sublet::engine {

core::HostMemory Engine::host_memory(const core::Lease* lease) const {
  return host_.memory(lease == nullptr ? 0 : lease->owner.process.pid);
}

std::vector<ProcessRef> Engine::tree_of(LeaseId lease) {
  programs_.scan();
  return programs_.tree(lease);
}

// Where processes under no lease use the card, its free bytes are anybody's until the restore takes them.
std::vector<gpu::BallastWish> Engine::ballast_for(LeaseId id) const {
  std::vector<gpu::BallastWish> ballast;
  const core::Lease* lease = state_.find(id);
  if (lease == nullptr || !lease->parking || !lease->parking->settled) return ballast;
  const Bytes each{lease->parking->entry.count /
                   static_cast<std::int64_t>(std::max<std::size_t>(lease->devices.size(), 1))};
  for (const std::string& uuid : lease->devices) {
    const auto device = state_.devices().find(uuid);
    if (device == state_.devices().end() || device->second.unleased <= Bytes{}) continue;
    ballast.push_back({uuid, std::min(each, lease->vram) + gpu::ballast_margin});
  }
  return ballast;
}

// What comes of an order from before the store failed answers nothing any more: the core, which has read the store
// anew, undoes what was half done by an order of its own, and waits for that one.
void Engine::park(LeaseId lease) {
  if (parker_.busy(lease)) {  // still with an order from before the store failed: undone by what the core orders next
    boost::asio::post(io_, [this, lease] { tick(core::Parked{lease, false, "an earlier order has not come back"}); });
    return;
  }
  parker_.park(
      lease, [this, lease] { return tree_of(lease); },
      [this, lease, epoch = store_epoch_](const ParkOutcome& outcome) {
        if (unparks_waiting_.erase(lease) != 0) return unpark(lease);
        if (epoch != store_epoch_ && !planted(Bug::old_orders_answer)) return;
        log::info("{}: {}", to_string(lease),
                  outcome.kind == ParkOutcome::Kind::done
                      ? fmt::format("{} processes parked in {}", outcome.parked.size(), format_duration(outcome.took))
                      : "not parked: " + outcome.detail);
        tick(core::Parked{lease, outcome.kind == ParkOutcome::Kind::done, outcome.detail, outcome.host_bytes});
      });
}

void Engine::unpark(LeaseId lease) {
  if (parker_.busy(lease) && !planted(Bug::two_orders_at_once)) {
    unparks_waiting_.insert(lease);
    return;
  }
  parker_.unpark(lease, tree_of(lease), ballast_for(lease),
                 [this, lease, epoch = store_epoch_](const ParkOutcome& outcome) {
                   if (unparks_waiting_.erase(lease) != 0) return unpark(lease);
                   if (epoch == store_epoch_ || planted(Bug::old_orders_answer)) unparked(lease, outcome);
                 });
}

void Engine::unparked(LeaseId lease, const ParkOutcome& outcome) {
  using How = core::Unparked::How;
  How how = How::not_yet;
  if (outcome.kind == ParkOutcome::Kind::done) how = How::runs;
  else if (outcome.kind == ParkOutcome::Kind::final) how = How::never;
  if (how != How::runs) log::warn("{}: its program does not run again: {}", to_string(lease), outcome.detail);
  tick(core::Unparked{lease, how, outcome.detail});
}

}  // namespace sublet::engine
