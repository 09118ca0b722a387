// SPDX-License-Identifier: Apache-2.0
#include "cli/fetch.h"
#include "cli/render.h"

#include <memory>

namespace sublet::cli {

Action add_why(CLI::App& app, Common& common) {
  auto lease = std::make_shared<std::string>();
  app.add_option("LEASE", *lease, "Id or tag of the lease")->required()->type_name("LEASE");
  add_json(app, common);
  add_watch(app, common);
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
