// SPDX-License-Identifier: Apache-2.0
#include "cli/lease_verb.h"

#include <fmt/format.h>
#include <memory>

namespace sublet::cli {

Action add_release(Command command, Common& common) {
  auto verb = std::make_shared<LeaseVerb>();
  auto force = std::make_shared<bool>(false);
  add_lease(command, common, *verb);
  command.flag(
      "--force", *force,
      "Release the lease even if its processes hold VRAM; they continue without a lease (a stack: is brought down)");
  return [&common, verb, force] {
    nlohmann::json body = nlohmann::json::object();
    if (*force) body["force"] = true;
    return act_on_lease(common, *verb, "/release", body, [](const client::Lease& lease) {
      return fmt::format("{} has ended ({})", lease.id, lease.end_reason);
    });
  };
}

}  // namespace sublet::cli
