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
    return list_at(body, "rows").empty() ? "no lease in this period" : "";
  const auto since = time_at(body, "complete_since");
  return fmt::format(
      "some leases that ended {} ago or earlier are not counted\n"
      "  hint: use a shorter --since; `store.ended_per_user` and `store.keep_ended` limit the stored leases",
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
  const Option since = command.taken("--since", take_since, "Length of the period up to now (24h)").type("DURATION");
  const Option by = command.option("--by", flags->by, "One row for each user, consumer or tenant")
                        .type("WHAT")
                        .one_of({"user", "consumer", "tenant"})
                        .show_default();
  command
      .flag("--consumers", flags->consumers, "Print what is remembered about consumers, and how long their pauses take")
      .excludes(since)
      .excludes(by);
  add_table_flags(command, common);
  command.footer(
      "GiB·h is size times time. Until its last resize, a lease counts with the mean\n"
      "of its sizes. UNUSED is the part above the lease's own peak. Paused time is not\n"
      "held time; -o name,paused shows it. If a lease began before the period, its\n"
      "earlier pauses count as spread evenly over its life.\n"
      "ACTIVE counts leases that were granted. WAITING counts leases in the queue: to\n"
      "start, to grow or to resume; a lease that waits to grow or to resume counts in\n"
      "both columns. A wait lasts from the request to the first grant, or until now;\n"
      "it does not include waits to grow or to resume.\n"
      "--consumers prints the numbers behind estimates and pause costs. A pause takes\n"
      "a fixed time plus its bytes at the printed rate, and then settles until the\n"
      "memory is measured free. SPREAD is the error of earlier predictions. The rows\n"
      "(all) are the predictions for a consumer that was never paused. FAILED counts\n"
      "undone pauses among the last 16; PENALTY is their part of the cost of a pause.");
  return [&common, flags] {
    if (flags->consumers) {
      return show(common, "/v1/consumers", [&](const auto& body, auto&) {
        return with_remark(common, render_consumers(body, common, look_for(common)),
                           list_at(body, "consumers").empty() ? "no consumer is remembered yet" : "");
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
