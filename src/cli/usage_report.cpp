// SPDX-License-Identifier: Apache-2.0
// The verb `report`.
#include "base/text.h"
#include "cli/fetch.h"
#include "cli/render.h"
#include "cli/report_page.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace sublet::cli {
namespace {

using namespace std::chrono_literals;

struct ReportFlags {
  std::optional<Moment> since;  // begin of the period; as a duration, its length
  std::optional<Moment> until;
  Duration length = 24h;  // of the period
  std::string by = "user";
  bool consumers = false;
  bool csv = false;
  std::string html, svg;  // files
};

// The time for which use is not known, within the period.
std::string missing_use(const nlohmann::json& body) {
  const auto from = time_at(body, "from"), to = time_at(body, "to");
  if (!from || !to) return "";
  std::vector<std::pair<Time, Time>> gaps;
  for (const auto& gap : list_at(body, "gaps")) {
    const auto begin = time_at(gap, "from"), end = time_at(gap, "to");
    if (begin && end && text_at(gap, "what") == "used") gaps.emplace_back(std::max(*begin, *from), std::min(*end, *to));
  }
  std::ranges::sort(gaps);
  Duration missing{};
  Time counted = *from;
  for (const auto& [begin, end] : gaps) {
    missing += std::max(end - std::max(begin, counted), Duration{});
    counted = std::max(counted, end);
  }
  if (missing < 1s) return "";
  return fmt::format(
      "use and GPU work are not known for {} of this time; IDLE is the share of what is known\n"
      "  hint: --json lists the gaps",
      format_duration(missing));
}

// Said beside the table: what it lacks, or that it has no row.
std::string remark(const nlohmann::json& body, const Look& look) {
  if (!member(body, "complete").is_boolean() || flag_at(body, "complete"))
    return list_at(body, "rows").empty() ? "no lease in this period" : missing_use(body);
  std::string why;
  for (const auto& gap : list_at(body, "gaps"))
    if (text_at(gap, "what") == "leased") why = ": " + text_at(gap, "why");
  const auto since = time_at(body, "complete_since");
  return fmt::format(
      "some leases of {} ago or earlier are not counted{}\n"
      "  hint: use a shorter --since; docs/reports.md explains gaps",
      since ? compact(look.now - *since) : "some time", why);
}

// A period that begins at a time has its length by now.
Status settle_period(ReportFlags& flags, Time now) {
  if (!flags.since) return {};
  const Time to = !flags.until ? now : flags.until->distance ? now - *flags.until->distance : flags.until->at;
  flags.length = flags.since->distance.value_or(to - flags.since->at);
  if (flags.length >= 1s && flags.length <= 24h * 3650) return {};
  return bad_request(fmt::format("the period from {} to {} is not between 1s and 3650d",
                                 format_rfc3339(to - flags.length), format_rfc3339(to)),
                     "--since is its begin or its length, and --until its end");
}

std::string report_target(const ReportFlags& flags, bool whole) {
  std::string target = fmt::format("/v1/report?since={}ms&by={}", flags.length / 1ms, client::encode(flags.by));
  if (flags.until) target += "&until=" + client::encode(to_query(*flags.until));
  return whole ? target + "&whole=true" : target;
}

// Prints how the usage changed, in sentences, on stderr.
Result<std::string> render_usage(const Common& common, const nlohmann::json& body) {
  const Look look = look_for(common);
  return with_remark(common, render_report(body, common, look), remark(body, look));
}

Status write_report(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (file) return {};
  return from_errno(fmt::format("cannot write {}", printable(path)), errno);
}

int write_pictures(const Common& common, const ReportFlags& flags) {
  auto client = connect(common);
  if (!client) return fail(common, client.error());
  const auto reply = client->get(report_target(flags, true));
  if (!reply) return fail(common, reply.error());
  const auto report = client::parse(*reply);
  if (!report) return fail(common, report.error());
  for (const auto& [path, make] : {std::pair{&flags.html, &report_html}, {&flags.svg, &report_svg}}) {
    if (path->empty()) continue;
    if (const Status written = write_report(*path, make(*report)); !written) return fail(common, written.error());
    say(common, fmt::format("sublet: the report is in {}", visible(*path)));
  }
  return kOk;
}

int print_csv(const Common& common, const ReportFlags& flags) {
  return show(common, report_target(flags, false), [&](const nlohmann::json& body, auto&) -> Result<std::string> {
    return with_remark(common, report_csv(body), remark(body, look_for(common)));
  });
}

}  // namespace

Action add_report(Command command, Common& common) {
  auto flags = std::make_shared<ReportFlags>();
  const Option since = command.moment("--since", flags->since, Tense::past,
                                      "Begin of the period: a day, a time, today, or its length (24h)");
  const Option until =
      command.moment("--until", flags->until, Tense::past, "End of the period: a day, a time, or so long ago (now)");
  const Option by = command.option("--by", flags->by, "One row for each user, consumer, tenant, session or device")
                        .type("WHAT")
                        .one_of({"user", "consumer", "tenant", "session", "device"})
                        .show_default();
  const Option csv = command.flag("--csv", flags->csv, "Print the rows as comma-separated values");
  const Option html = command.option("--html", flags->html, "Write a page with tables and plots to this file")
                          .type("FILE")
                          .not_empty("no file is named")
                          .offers(Offer::Of::files)
                          .excludes(csv);
  const Option svg = command.option("--svg", flags->svg, "Write the plots to this file")
                         .type("FILE")
                         .not_empty("no file is named")
                         .offers(Offer::Of::files)
                         .excludes(csv);
  Option consumers = command.flag("--consumers", flags->consumers,
                                  "Print what is remembered about consumers, and how long their pauses take");
  for (const Option& other : {since, until, by, csv, html, svg}) consumers = consumers.excludes(other);
  add_table_flags(command, common);
  command.footer(
      "GiB·h is size times time. UNUSED is the part above the lease's own peak. Paused\n"
      "time is not held time; -o name,paused shows it. CAUSED is the time that others\n"
      "waited for memory that was held: each second is shared among the holders by the\n"
      "bytes that they held. IDLE is the held part without GPU work. --html and --svg\n"
      "draw use and waits over time. docs/reports.md explains all columns.\n"
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
    if (const Status settled = settle_period(*flags, look_for(common).now); !settled)
      return usage_error(settled.error().detail, settled.error().hint);
    if (!flags->html.empty() || !flags->svg.empty()) return write_pictures(common, *flags);
    if (flags->csv) return print_csv(common, *flags);
    return show(common, report_target(*flags, common.json),
                [&](const auto& body, auto&) { return render_usage(common, body); });
  };
}

}  // namespace sublet::cli
