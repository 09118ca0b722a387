// SPDX-License-Identifier: Apache-2.0
#include "cli/report_page.h"
#include "plot/plot.h"

#include <gtest/gtest.h>

#include <cmath>

namespace sublet::cli {
namespace {

using nlohmann::json;

json row(const char* name) {
  return {{"name", name},
          {"leases", 3},
          {"active", 1},
          {"waiting", 0},
          {"held_mib_seconds", 3686400},
          {"used_mib_seconds", 1843200},
          {"busy_seconds", 1800.5},
          {"idle_mib_seconds", nullptr},
          {"wait", {{"p50_ms", 1500}, {"p95_ms", 60000}}},
          {"wait_caused_seconds", 90},
          {"pauses_caused", 2},
          {"pauses_suffered", 1}};
}

json whole_report() {
  const json point{{"at", "2026-11-26T10:00:00.000Z"},
                   {"leased_bytes", 8589934592},
                   {"used_bytes", 4294967296},
                   {"busy_percent", 50}};
  json unknown = point;
  unknown["used_bytes"] = unknown["busy_percent"] = nullptr;
  json hours = json::array();
  for (int hour = 0; hour < 24; ++hour) hours.push_back({{"hour", hour}, {"waited_seconds", hour * 60}});
  return {
      {"from", "2026-11-26T10:00:00.000Z"},
      {"to", "2026-11-27T10:00:00.000Z"},
      {"by", "user"},
      {"rows", {row("<script>alert(1)</script>"), row("=cmd,\"x\"")}},
      {"total", row("")},
      {"gaps", {{{"from", "a"}, {"to", "b"}, {"what", "used"}, {"why", "the daemon <b>stopped</b>"}}}},
      {"series",
       {{"step_seconds", 360},
        {"devices", {{{"device", "gpu0"}, {"total_bytes", 17179869184}, {"points", {point, unknown, point, point}}}}},
        {"waiting", {{{"at", "x"}, {"waiting", 0.5}}, {{"at", "y"}, {"waiting", 2}}}}}},
      {"matrix", {{"names", {"ana", "b&b"}}, {"seconds", {{0, 90}, {0, 0}}}}},
      {"neighbours",
       {{{"name", "b&b"},
         {"wait_caused_seconds", 90},
         {"pauses_caused", 0},
         {"used_gib_hours", 1.5},
         {"per_gib_hour", 60}}}},
      {"trend",
       {{"hours", hours},
        {"weeks", {{{"from", "2026-11-23T00:00:00.000Z"}, {"waited_seconds", 7200}}}},
        {"sentences", {"waits doubled since <Monday>"}}}}};
}

std::size_t count(const std::string& text, std::string_view part) {
  std::size_t found = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++found;
  return found;
}

TEST(ReportPage, NamesWithMarkupAreEscaped) {
  const std::string page = report_html(whole_report());
  EXPECT_EQ(count(page, "<script"), 0U);
  EXPECT_EQ(count(page, "&lt;script&gt;alert(1)&lt;/script&gt;"), 1U);
  EXPECT_EQ(count(page, "<b>stopped"), 0U);
  EXPECT_NE(page.find("since &lt;Monday&gt;"), std::string::npos);
  EXPECT_NE(page.find("b&amp;b"), std::string::npos);
}

TEST(ReportPage, EveryPlotHasData) {
  const std::string page = report_html(whole_report());
  const std::size_t plots = count(page, "<svg class=\"plot\"");
  EXPECT_EQ(plots, 5U);  // memory, work, waiting, hours, weeks
  std::size_t at = 0;
  for (std::size_t i = 0; i < plots; ++i) {
    at = page.find("<svg class=\"plot\"", at);
    const auto end = page.find("</svg>", at);
    EXPECT_NE(page.substr(at, end - at).find("class=\"data\""), std::string::npos) << page.substr(at, 300);
    at = end;
  }
  EXPECT_EQ(count(page, "http"), count(page, "http://www.w3.org/2000/svg"));  // no other file
}

TEST(ReportPage, AnUnknownValueIsAGapInItsLine) {
  const std::string svg = report_svg(whole_report());
  const auto begin = svg.find("Memory of gpu0");
  const std::string plot = svg.substr(begin, svg.find("</svg>", begin) - begin);
  EXPECT_EQ(count(plot, "stroke=\"#3b7dd8\""), 1U);  // leased is known throughout
  EXPECT_EQ(count(plot, "stroke=\"#2f9e62\""), 2U);  // used is not
}

TEST(ReportPage, AnEmptyReportIsAPageToo) {
  const json empty{{"from", "2026-11-26T10:00:00.000Z"},
                   {"to", "2026-11-27T10:00:00.000Z"},
                   {"by", "user"},
                   {"rows", json::array()}};
  EXPECT_NE(report_html(empty).find("No lease in this period"), std::string::npos);
  EXPECT_NE(report_html(json::object()).find("</html>"), std::string::npos);
  EXPECT_NE(report_svg(json::object()).find("</svg>"), std::string::npos);
}

TEST(ReportPage, RowsAsCommaSeparatedValues) {
  const std::string csv = report_csv(whole_report());
  EXPECT_EQ(csv.substr(0, 12), "name,leases,");
  EXPECT_EQ(count(csv, "\r\n"), 3U);
  // A text that a spreadsheet would compute is made a text, and quotes are doubled.
  EXPECT_NE(csv.find("\"'=cmd,\"\"x\"\"\",3,"), std::string::npos) << csv;
  EXPECT_NE(csv.find(",1500,,60000,"), std::string::npos) << csv;
}

TEST(ReportPlot, LabelsFitTheLengthOfThePeriod) {
  const Time from{1'764'150'000'000'000'000};  // 2025-11-26T09:40:00Z
  using std::chrono::hours;
  EXPECT_EQ(time_labels(from, from + hours(1), 2), (std::vector<std::string>{"09:40", "10:40"}));
  EXPECT_EQ(time_labels(from, from + hours(48), 2), (std::vector<std::string>{"Nov 26 09:40", "Nov 28 09:40"}));
  EXPECT_EQ(time_labels(from, from + hours(240), 2), (std::vector<std::string>{"Nov 26", "Dec 06"}));
}

}  // namespace
}  // namespace sublet::cli
