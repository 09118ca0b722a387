// SPDX-License-Identifier: Apache-2.0
#include "cli/fetch.h"
#include "cli/render.h"

#include <memory>

namespace sublet::cli {

Action add_why(Command command, Common& common) {
  auto lease = std::make_shared<std::string>();
  command.option("LEASE", *lease, "Id or tag of the lease")
      .required()
      .not_empty()
      .type("LEASE")
      .offers(Offer::Of::all_leases);
  add_json(command, common);
  add_watch(command, common);
  return [&common, lease] {
    return show(common, "/v1/leases/" + client::encode(*lease) + "/why",
                [&](const auto& body, auto& client) -> Result<std::string> {
                  Look look = look_for(common);
                  learn_devices(ask_also(client, "/v1/devices"), look);
                  return render_why(body, look);
                });
  };
}

}  // namespace sublet::cli
