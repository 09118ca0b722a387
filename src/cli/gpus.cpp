// SPDX-License-Identifier: Apache-2.0
#include "cli/fetch.h"
#include "cli/render.h"

namespace sublet::cli {

Action add_gpus(Command command, Common& common) {
  add_table_flags(command, common);
  return [&common] {
    return show(common, "/v1/devices", [&](const auto& body, auto&) {
      return with_remark(common, render_devices(body, common, look_for(common)),
                         list_at(body, "devices").empty() ? "the daemon knows no device; sublet doctor says why" : "");
    });
  };
}

}  // namespace sublet::cli
