// SPDX-License-Identifier: Apache-2.0
#include "cli/fetch.h"
#include "cli/render.h"

#include <memory>

namespace sublet::cli {

Action add_ps(Command command, Common& common) {
  auto all = std::make_shared<bool>(false);
  command.flag("-a,--all", *all, "List ended leases too, newest first");
  add_table_flags(command, common);
  return [&common, all] {
    return show_pages(common, *all ? "/v1/leases?all=true" : "/v1/leases", "leases",
                      [&](const auto& body, auto& client) {
                        Look look = look_for(common);
                        learn_devices(ask_also(client, "/v1/devices"), look);
                        const bool none = list_at(body, "leases").empty();
                        return with_remark(common, render_leases(body, common, look),
                                           !none  ? ""
                                           : *all ? "there are no leases yet"
                                                  : "no lease is live; list the ended ones: sublet ps --all");
                      });
  };
}

}  // namespace sublet::cli
