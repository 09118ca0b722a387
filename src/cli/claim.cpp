// SPDX-License-Identifier: Apache-2.0
#include "base/size_bounds.h"
#include "cli/fetch.h"
#include "cli/lease_verb.h"

#include <fmt/format.h>
#include <memory>

namespace sublet::cli {

Action add_claim(Command command, Common& common) {
  auto verb = std::make_shared<LeaseVerb>();
  add_lease(command, common, *verb);
  return [&common, verb] {
    return act_on_lease(common, *verb, "/claim", nlohmann::json::object(), [&common](const client::Lease& lease) {
      return fmt::format("{} is {}: {} on {}", lease.id, lease.state, format_size_down(lease.vram),
                         names_of(common, lease.devices));
    });
  };
}

}  // namespace sublet::cli
