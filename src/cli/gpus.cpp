// SPDX-License-Identifier: Apache-2.0
#include "cli/fetch.h"
#include "cli/render.h"

#include <memory>

namespace sublet::cli {

Action add_gpus(Command command, Common& common) {
  auto in_long = std::make_shared<bool>(false);
  command.flag("-l,--long", *in_long, "Temperature, power, clocks, link and memory errors of each device");
  add_table_flags(command, common);
  return [&common, in_long] {
    if (*in_long && common.columns.empty())
      common.columns = {"gpu", "name", "cc", "busy", "temp", "power", "clock", "link", "ecc", "state", "problem"};
    return show(common, "/v1/devices", [&](const auto& body, auto&) {
      return with_remark(common, render_devices(body, common, look_for(common)),
                         list_at(body, "devices").empty() && list_at(body, "mig_cards").empty()
                             ? "the daemon knows no device; sublet doctor says why"
                             : "");
    });
  };
}

}  // namespace sublet::cli
