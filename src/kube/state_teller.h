// SPDX-License-Identifier: Apache-2.0
// Tells containers the state of their lease by files, and writes each file again every few seconds: by its age
// `sublet-probe` knows that nobody tells any more.
#pragma once

#include "kube/daemon.h"
#include "kube/settings.h"

namespace sublet::kube {

inline constexpr Duration state_refresh = std::chrono::seconds(5);  // sublet_probe.c: stale_after

class StateTeller {
 public:
  StateTeller(const Settings& settings, const Daemon& daemon) : settings_(settings), daemon_(daemon) {}

  // Writes the files of all pods. Without an answer of the daemon nothing is written: the state is not known.
  void look() const;

 private:
  const Settings& settings_;
  const Daemon& daemon_;
};

}  // namespace sublet::kube
