// SPDX-License-Identifier: Apache-2.0
// Writes the objects of the cluster on a thread of its own, because the API server may take long to answer: the slice
// of the node, lost claims, the conditions of pods, and events.
#pragma once

#include "kube/dra_door.h"
#include "kube/residence.h"
#include "kube/rounds.h"
#include "kube/strays.h"

#include <condition_variable>
#include <mutex>
#include <thread>

namespace sublet::kube {

class ObjectWriter {
 public:
  ObjectWriter(const Settings& settings, const Daemon& daemon, const Pods& pods, DraDoor& dra);
  ~ObjectWriter();  // waits for the calls in progress

  // Something has changed, or it is time. Any thread; does not block.
  void look_at_cards() { wake(cards_due_); }
  void look_at_leases() { wake(leases_due_); }

 private:
  const Settings& settings_;
  DraDoor& dra_;
  ResidenceTeller teller_;
  StrayTeller strays_;
  Complaint complaint_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool cards_due_ = false, leases_due_ = false, ends_ = false;  // under the mutex
  std::thread thread_;

  void wake(bool& what);
  void work();
  bool round();
};

}  // namespace sublet::kube
