// SPDX-License-Identifier: Apache-2.0
#include "cli/lease_verb.h"

#include <fmt/format.h>
#include <memory>

#include <climits>

namespace sublet::cli {

Action add_attach(Command command, Common& common) {
  struct Flags {
    LeaseVerb verb;
    int pid = 0;
    std::string cgroup;
  };
  auto flags = std::make_shared<Flags>();
  add_lease(command, common, flags->verb);
  const Option pid =
      command.option("--pid", flags->pid, "A process, with all its descendants").type("P").between(1, INT_MAX);
  command.option("--cgroup", flags->cgroup, "Directory of a control group: every process in it and below it")
      .type("DIR")
      .offers(Offer::Of::directories)
      .excludes(pid);
  return [&common, flags]() -> int {
    if (flags->pid == 0 && flags->cgroup.empty()) {
      return usage_error("attach needs --pid or --cgroup", "for example: sublet attach lease-7 --pid 4711");
    }
    nlohmann::json body;
    if (flags->pid != 0) body = {{"pid", flags->pid}, {"owner", false}};
    else body = {{"cgroup", flags->cgroup}};
    const std::string what = flags->pid != 0 ? fmt::format("process {}", flags->pid) : flags->cgroup;
    return act_on_lease(common, flags->verb, "/attach", body, [what](const client::Lease& lease) {
      return fmt::format("{} now belongs to {}", what, lease.id);
    });
  };
}

}  // namespace sublet::cli
