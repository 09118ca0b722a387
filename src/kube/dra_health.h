// SPDX-License-Identifier: Apache-2.0
// Tells the kubelet the state of the cards, which it shows in the status of pods with claims. Without an answer, the
// kubelet of 1.36 asks again every five seconds and logs an error each time. Any thread.
#pragma once

#include "dra_health.grpc.pb.h"
#include "kube/daemon.h"

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace sublet::kube {

class DraHealth final : public v1alpha1::DRAResourceHealth::Service {
 public:
  explicit DraHealth(std::string pool) : pool_(std::move(pool)) {}

  void set_cards(const std::vector<Card>& cards);
  void end_streams();  // before the server of this service is stopped

  grpc::Status NodeWatchResources(grpc::ServerContext* context, const v1alpha1::NodeWatchResourcesRequest* request,
                                  grpc::ServerWriter<v1alpha1::NodeWatchResourcesResponse>* writer) override;

 private:
  v1alpha1::NodeWatchResourcesResponse state_of(const std::vector<Card>& cards) const;

  const std::string pool_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Card> cards_;    // under the mutex
  std::uint64_t edition_ = 0;  // of the cards; under the mutex
  std::uint64_t run_ = 0;      // streams of an earlier run end; under the mutex
};

}  // namespace sublet::kube
