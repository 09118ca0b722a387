// SPDX-License-Identifier: Apache-2.0
// The verb `report`.
#include "base/text.h"
#include "cli/fetch.h"
#include "cli/render.h"

#include <memory>

namespace sublet::cli {
namespace {

// Said beside the table: what it lacks, or that it has no row.
std::string remark(const nlohmann::json& body, const Look& look) {
  if (!member(body, "complete").is_boolean() || flag_at(body, "complete"))
    return list_at(body, "rows").empty() ? "no lease in that time" : "";
  const auto since = time_at(body, "complete_since");
  return fmt::format(
      "leases that ended {} ago or earlier are not all counted\n"
      "  hint: look back less far (--since); `store.ended_per_user` and `store.keep_ended` say what is kept",
      since ? compact(look.now - *since) : "some time");
}

}  // namespace

Action add_report(Command command, Common& common) {
  using namespace std::chrono_literals;
  struct Flags {
    std::optional<Duration> since;
    std::string by = "user";
    bool consumers = false;
  };
  auto flags = std::make_shared<Flags>();
  const auto take_since = [flags](const std::string& text) -> Status {
    const auto since = parse_duration(text);
    if (!since) return since.error();
    if (*since < 1s || *since > 24h * 3650)
      return bad_request(fmt::format("{} is not between 1s and 3650d", printable(text)), "for example 7d");
    flags->since = *since;
    return {};
  };
  const Option since = command.taken("--since", take_since, "How far to look back (24h)").type("DURATION");
  const Option by = command.option("--by", flags->by, "A row for each user, consumer or tenant")
                        .type("WHAT")
                        .one_of({"user", "consumer", "tenant"})
                        .show_default();
  command.flag("--consumers", flags->consumers, "What is remembered of consumers, and how long their pauses take")
      .excludes(since)
      .excludes(by);
  add_table_flags(command, common);
  command.footer(
      "Held is size by time; before a lease was last resized it counts with the mean of\n"
      "its sizes until then. Never used is the part of it that lay above the lease's\n"
      "own peak. Time in which a lease was paused is not held, whatever little it kept;\n"
      "-o name,paused shows it. Of a lease that began before the window,\n"
      "earlier pauses count as spread evenly over its life.\n"
      "Active are leases that have begun, waiting those of the queue: to begin, to\n"
      "grow, or to come back from a pause. Who waits for the last two is active too.\n"
      "A wait goes from the request to the first grant, or until now; what was waited\n"
      "for later, to grow or to come back, is not in it. The window ends now.\n"
      "--consumers: what estimates and prices rest on. A pause takes its fixed part\n"
      "and its bytes by the rate beside it; then it settles until it is measured gone.\n"
      "The spread is how far pauses were from what was expected of them. A consumer\n"
      "that is new is expected to take as long as all did on its device, or anywhere:\n"
      "the rows (all).");
  return [&common, flags] {
    if (flags->consumers) {
      return show(common, "/v1/consumers", [&](const auto& body, auto&) {
        return with_remark(common, render_consumers(body, common, look_for(common)),
                           list_at(body, "consumers").empty() ? "nothing is remembered of any consumer yet" : "");
      });
    }
    const std::string target =
        fmt::format("/v1/report?since={}ms&by={}", flags->since.value_or(24h) / 1ms, client::encode(flags->by));
    return show(common, target, [&](const auto& body, auto&) {
      const Look look = look_for(common);
      return with_remark(common, render_report(body, common, look), remark(body, look));
    });
  };
}

}  // namespace sublet::cli
