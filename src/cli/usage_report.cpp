// SPDX-License-Identifier: Apache-2.0
// The verb `report`.
#include "cli/fetch.h"
#include "cli/render.h"

#include <memory>

namespace sublet::cli {

Action add_report(Command command, Common& common) {
  struct Flags {
    std::optional<Duration> since;
    std::string by = "user";
  };
  auto flags = std::make_shared<Flags>();
  command.duration("--since", flags->since, "How far to look back (24h)");
  command.option("--by", flags->by, "A row for each user, consumer or tenant").type("WHAT");
  add_table_flags(command, common);
  command.footer(
      "Held is size by time, at the lease's latest size. Never used is the part of it that lay above the lease's\n"
      "own peak. A wait goes from the request to the grant, or until now. The window ends now.");
  return [&common, flags] {
    const auto seconds = flags->since.value_or(std::chrono::hours(24)) / std::chrono::seconds(1);
    const std::string target = fmt::format("/v1/report?since={}s&by={}", seconds, client::encode(flags->by));
    return show(common, target, [&](const auto& body, auto&) {
      const bool cut_off = member(body, "complete").is_boolean() && !flag_at(body, "complete");
      return with_remark(common, render_report(body, common, look_for(common)),
                         list_at(body, "rows").empty() ? "no lease in that time"
                         : cut_off ? "only the newest leases of that time are counted: there are too many"
                                   : "");
    });
  };
}

}  // namespace sublet::cli
