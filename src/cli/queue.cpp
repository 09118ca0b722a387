// SPDX-License-Identifier: Apache-2.0
#include "cli/fetch.h"
#include "cli/render.h"

namespace sublet::cli {

Action add_queue(Command command, Common& common) {
  add_table_flags(command, common);
  return [&common] {
    return show_pages(common, "/v1/queue", "queue", [&](const auto& body, auto& client) {
      Look look = look_for(common);
      learn_devices(ask_also(client, "/v1/devices"), look);
      return with_remark(common, render_queue(body, common, look),
                         list_at(body, "queue").empty() ? "no lease waits" : "");
    });
  };
}

}  // namespace sublet::cli
