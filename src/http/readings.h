// SPDX-License-Identifier: Apache-2.0
// The measured figures, and their changes, for all readers of the event stream. They are no decisions: they are not
// stored, and a reader that missed some asks for the tables. One look and one text serve all readers. Loop thread.
#pragma once

#include "engine/engine.h"

#include <nlohmann/json.hpp>

#include <chrono>
#include <map>
#include <memory>
#include <string>

namespace sublet::http {

class Readings {
 public:
  using Clock = std::chrono::steady_clock;
  using Version = std::uint64_t;  // of the figures; it grows with each look that finds another figure

  // Looks at the figures, unless another reader has looked since `since`.
  void look(const engine::Engine& engine, Clock::time_point since);
  Clock::time_point looked_at() const { return looked_at_; }
  Version version() const { return version_; }

  // The devices and leases with other figures than at `version`, as JSON; "" without a change.
  std::shared_ptr<const std::string> changes_after(Version version);

 private:
  struct Device {
    nlohmann::json row, figures;  // the figures are the row without those that change at each look
    Version version = 0;          // of the last change
    std::uint64_t look = 0;       // the last one that saw it
  };
  struct Use {
    std::int64_t used_bytes = 0;
    engine::LeaseActivity::State activity{};
    Version version = 0;
    std::uint64_t look = 0;
  };

  bool look_at_devices(const engine::Engine& engine);
  bool look_at_leases(const engine::Engine& engine);
  std::string render(Version after) const;

  std::map<std::string, Device> devices_;  // by UUID
  std::map<LeaseId, Use> leases_;
  std::uint64_t looks_ = 0;
  Version version_ = 0;
  Clock::time_point looked_at_{};
  Time at_{};                                                    // the same, by the daemon's clock
  std::map<Version, std::shared_ptr<const std::string>> texts_;  // changes from each version to the present one
};

}  // namespace sublet::http
