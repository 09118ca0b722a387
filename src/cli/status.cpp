// SPDX-License-Identifier: Apache-2.0
#include "cli/fetch.h"
#include "cli/render.h"

namespace sublet::cli {

Action add_status(Command command, Common& common) {
  add_json(command, common);
  add_watch(command, common);
  command.footer(
      "The bar of a device: # leased and used, = leased and not used yet, x used\n"
      "without a lease, . free to be leased. The blank rest belongs to the driver and\n"
      "the headroom, which also covers the bytes kept for paused programs.");
  return [&common] {
    return show(common, "/v1/status", [&](const auto& body, auto& client) -> Result<std::string> {
      Look look = look_for(common);
      learn_devices(body, look);
      return render_status(body, ask_also(client, "/v1/leases"), look);
    });
  };
}

}  // namespace sublet::cli
