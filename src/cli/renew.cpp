// SPDX-License-Identifier: Apache-2.0
#include "cli/lease_verb.h"

#include <fmt/format.h>
#include <memory>

namespace sublet::cli {

Action add_renew(Command command, Common& common) {
  auto verb = std::make_shared<LeaseVerb>();
  auto ttl = std::make_shared<std::optional<Duration>>();
  add_lease(command, common, *verb);
  command.ttl("--ttl", *ttl, "New time to live from now on (default: the previous one, starting again)");
  return [&common, verb, ttl] {
    nlohmann::json body = nlohmann::json::object();
    if (*ttl) body["ttl_seconds"] = **ttl / std::chrono::seconds(1);
    return act_on_lease(common, *verb, "/renew", body,
                        [](const client::Lease& lease) { return fmt::format("{} is renewed", lease.id); });
  };
}

}  // namespace sublet::cli
