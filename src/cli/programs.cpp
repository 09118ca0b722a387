// SPDX-License-Identifier: Apache-2.0
#include "cli/fetch.h"
#include "cli/render.h"

namespace sublet::cli {

Action add_programs(Command command, Common& common) {
  add_table_flags(command, common);
  command.footer("Programs that sublet run --detach started; an admin sees those of all users.");
  return [&common] {
    return show(common, "/v1/programs", [&](const auto& body, auto&) {
      return with_remark(
          common, render_programs(body, common, look_for(common)),
          list_at(body, "programs").empty() ? "no supervised program: sublet run --detach starts one" : "");
    });
  };
}

}  // namespace sublet::cli
