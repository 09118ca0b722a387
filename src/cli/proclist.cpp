// SPDX-License-Identifier: Apache-2.0
#include "cli/fetch.h"
#include "cli/render.h"

namespace sublet::cli {

Action add_proclist(Command command, Common& common) {
  add_table_flags(command, common);
  return [&common] {
    return show(common, "/v1/processes", [&](const auto& body, auto& client) {
      Look look = look_for(common);
      learn_devices(ask_also(client, "/v1/devices"), look);
      return with_remark(common, render_processes(body, common, look),
                         list_at(body, "processes").empty() ? "no process holds GPU memory" : "");
    });
  };
}

}  // namespace sublet::cli
