// SPDX-License-Identifier: Apache-2.0
#include "cli/fetch.h"
#include "cli/render.h"

namespace sublet::cli {

Action add_status(Command command, Common& common) {
  add_json(command, common);
  add_watch(command, common);
  return [&common] {
    return show(common, "/v1/status", [&](const auto& body, auto& client) -> Result<std::string> {
      Look look = look_for(common);
      learn_devices(body, look);
      return render_status(body, ask_also(client, "/v1/leases"), look);
    });
  };
}

}  // namespace sublet::cli
