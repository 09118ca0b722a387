// SPDX-License-Identifier: Apache-2.0
#include "cli/lease_verb.h"

#include <fmt/format.h>
#include <memory>

namespace sublet::cli {

Action add_touch(Command command, Common& common) {
  auto verb = std::make_shared<LeaseVerb>();
  add_lease(command, common, *verb);
  command.footer("An idle rule counts from the last work of the lease's program, or from a touch.");
  return [&common, verb] {
    return act_on_lease(common, *verb, "/touch", nlohmann::json::object(), [](const client::Lease& lease) {
      return lease.state == "active" ? fmt::format("{} is in use", lease.id)
                                     : fmt::format("{} is in use; it is {}", lease.id, lease.state);
    });
  };
}

}  // namespace sublet::cli
