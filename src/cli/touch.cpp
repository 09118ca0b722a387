// SPDX-License-Identifier: Apache-2.0
#include "cli/lease_verb.h"

#include <fmt/format.h>

#include <memory>

namespace sublet::cli {
namespace {

struct TouchFlags {
  LeaseVerb token;  // only its token file is set
  std::vector<std::string> leases;
};

int touch(const Common& common, const TouchFlags& flags) {
  int code = kOk;
  for (const std::string& lease : flags.leases) {
    const int its = act_on_lease(
        common, {lease, flags.token.token_file}, "/touch", nlohmann::json::object(), [](const client::Lease& now) {
          return fmt::format("{} is in use{}", now.id, now.state == "active" ? "" : "; it is " + now.state);
        });
    if (code == kOk) code = its;
  }
  return code;
}

}  // namespace

Action add_touch(Command command, Common& common) {
  auto flags = std::make_shared<TouchFlags>();
  command.option("LEASE", flags->leases, "Ids or tags of leases")
      .required()
      .not_empty()
      .type("LEASE")
      .offers(Offer::Of::leases);
  add_token(command, common, flags->token);
  command.footer("An idle rule counts from the last work of the lease's program, or from a touch.");
  return [&common, flags] { return touch(common, *flags); };
}

}  // namespace sublet::cli
