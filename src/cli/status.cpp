// SPDX-License-Identifier: Apache-2.0
#include "cli/fetch.h"
#include "cli/render.h"
#include "cli/subject.h"

#include <memory>

namespace sublet::cli {

Action add_status(Command command, Common& common) {
  auto name = std::make_shared<std::string>();
  command.option("LEASE", *name, "Show only this lease or program, by its id or tag")
      .not_empty()
      .type("LEASE")
      .offers(Offer::Of::leases_and_programs);
  add_json(command, common);
  add_watch(command, common);
  command.footer(
      "The bar of a device: # leased and used, = leased and not used yet, x used\n"
      "without a lease, . free to be leased. The blank rest belongs to the driver and\n"
      "the headroom, which also covers the bytes kept for paused programs.\n"
      "With LEASE, the exit status tells its state: 0 it runs or is paused, 3 it has\n"
      "ended or was stopped, 5 it has failed, 6 it waits for memory or for its next\n"
      "start, 4 there is none.\n"
      "The bar of a lease: # used, . not used, | the soft limit; the end of the bar is\n"
      "the ceiling, or the size of the lease.");
  return [&common, name] {
    if (!name->empty()) return show_subject(common, *name);
    return show(common, "/v1/status", [&](const auto& body, auto& client) -> Result<std::string> {
      Look look = look_for(common);
      learn_devices(body, look);
      return render_status(body, ask_also(client, "/v1/leases"), look, ask_also(client, "/v1/tenants"));
    });
  };
}

}  // namespace sublet::cli
