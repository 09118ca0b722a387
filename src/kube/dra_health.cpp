// SPDX-License-Identifier: Apache-2.0
#include "kube/dra_health.h"

#include "base/clock.h"
#include "kube/claim.h"

#include <chrono>

namespace sublet::kube {
namespace {

// The kubelet takes a state of 30 s ago for unknown.
constexpr std::chrono::seconds between_states{10};
constexpr std::int64_t second_ns = 1'000'000'000;

}  // namespace

void DraHealth::set_cards(const std::vector<Card>& cards) {
  {
    const std::scoped_lock lock(mutex_);
    if (cards_ == cards) return;
    cards_ = cards;
    ++edition_;
  }
  changed_.notify_all();
}

void DraHealth::end_streams() {
  {
    const std::scoped_lock lock(mutex_);
    ++run_;
  }
  changed_.notify_all();
}

v1alpha1::NodeWatchResourcesResponse DraHealth::state_of(const std::vector<Card>& cards) const {
  v1alpha1::NodeWatchResourcesResponse state;
  for (const Card& card : cards) {
    v1alpha1::DeviceHealth& health = *state.add_devices();
    health.mutable_device()->set_pool_name(pool_);
    health.mutable_device()->set_device_name(device_name(card));
    health.set_health(card.healthy ? v1alpha1::HEALTHY : v1alpha1::UNHEALTHY);
    health.set_last_updated_time(wall_time().ns / second_ns);
    if (!card.healthy) health.set_message("the card is lost or out of service: see sublet status on the node");
  }
  return state;
}

grpc::Status DraHealth::NodeWatchResources(grpc::ServerContext* context, const v1alpha1::NodeWatchResourcesRequest*,
                                           grpc::ServerWriter<v1alpha1::NodeWatchResourcesResponse>* writer) {
  std::unique_lock lock(mutex_);
  const std::uint64_t run = run_;
  while (run == run_ && !context->IsCancelled()) {
    const std::uint64_t told = edition_;
    const auto state = state_of(cards_);
    lock.unlock();
    const bool written = writer->Write(state);
    lock.lock();
    if (!written) break;
    changed_.wait_for(lock, between_states, [&] { return run != run_ || told != edition_; });
  }
  return grpc::Status::OK;
}

}  // namespace sublet::kube
