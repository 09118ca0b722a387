// SPDX-License-Identifier: Apache-2.0
#include "cli/fetch.h"
#include "cli/render.h"

#include <fmt/format.h>

#include <memory>

namespace sublet::cli {

namespace {

using nlohmann::json;

// One sentence about a process that holds GPU memory: its lease, its approval, or its verdict.
Result<std::string> explain_process(const json& processes, const std::string& pid, client::Client& client,
                                    const Common& common) {
  for (const json& row : list_at(processes, "processes")) {
    if (fmt::format("{}", number_at(row, "pid").value_or(0)) != pid) continue;
    if (const std::string lease = text_at(row, "lease"); !lease.empty())
      return fmt::format("pid {} belongs to {} (link: {}); sublet why {} tells more\n", pid, lease,
                         text_at(row, "link"), lease);
    if (const auto approval = number_at(row, "approval"))
      return fmt::format("pid {} has no lease, and approval {} allows that\n", pid, *approval);
  }
  const json verdicts = ask_also(client, "/v1/verdicts?pid=" + client::encode(pid));
  const auto& found = list_at(verdicts, "verdicts");
  if (found.empty())
    return not_found(fmt::format("pid {} holds no GPU memory that the daemon has seen, or is another user's", pid),
                     "sublet proclist lists the processes that do");
  const std::string id = fmt::format("{}", number_at(found.front(), "id").value_or(0));
  return render_verdict(ask_also(client, "/v1/verdicts/" + id), look_for(common));
}

}  // namespace

Action add_why(Command command, Common& common) {
  auto lease = std::make_shared<std::string>();
  command.option("LEASE", *lease, "Id or tag of the lease, or pid:N for a process that holds GPU memory")
      .required()
      .not_empty()
      .type("LEASE")
      .offers(Offer::Of::all_leases);
  add_json(command, common);
  add_watch(command, common);
  return [&common, lease] {
    if (lease->starts_with("pid:"))
      return show(common, "/v1/processes", [&](const auto& body, auto& client) {
        return explain_process(body, lease->substr(4), client, common);
      });
    return show(common, "/v1/leases/" + client::encode(*lease) + "/why",
                [&](const auto& body, auto& client) -> Result<std::string> {
                  Look look = look_for(common);
                  learn_devices(ask_also(client, "/v1/devices"), look);
                  return render_why(body, look);
                });
  };
}

}  // namespace sublet::cli
