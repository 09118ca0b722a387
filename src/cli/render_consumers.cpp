// SPDX-License-Identifier: Apache-2.0
// `report --consumers`: what is remembered of consumers, and how long their pauses take.
#include "cli/render.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string>

namespace sublet::cli {

using nlohmann::json;

namespace {

// "0.8s + 2.0 GiB/s": a fixed part, and so many bytes in a second beside it.
Cell move_cell(const json& row, const char* key) {
  const json& move = member(row, key);
  if (!move.is_object()) return {"-"};
  std::string out = about(std::chrono::milliseconds(number_at(move, "fixed_ms").value_or(0)));
  if (number_at(move, "bytes_per_second")) out += fmt::format(" + {}/s", size_at(move, "bytes_per_second"));
  return {out};
}

Cell median_cell(const json& row, const Look&) {
  const auto seconds = number_at(row, "median_run_seconds");
  return {seconds ? compact(std::chrono::seconds(*seconds)) : "-"};
}

Cell pauses_cell(const json& row, const Look&) {
  return {member(row, "pause").is_object() ? number_cell(member(row, "pause"), "samples") : Cell{"-"}};
}

// How far the pauses were from what was expected of them.
Cell spread_cell(const json& row, const Look&) {
  const json& spread = member(member(row, "pause"), "spread_ratio");
  return {spread.is_number() ? fmt::format("{:.0f} %", 100 * spread.get<double>()) : "-"};
}

Cell failed_cell(const json& row, const Look&) {
  const auto tried = number_at(row, "tried");
  return {tried ? fmt::format("{} of {}", number_at(row, "failed").value_or(0), *tried) : "-"};
}

Cell penalty_cell(const json& row, const Look&) {
  const auto penalty = number_at(row, "penalty_ms");
  return {penalty ? about(std::chrono::milliseconds(*penalty)) : "-"};
}

Cell reliability_cell(const json& row, const Look&) {
  const json& ratio = member(row, "reliability_ratio");
  return {ratio.is_number() ? fmt::format("{:.0f} %", 100 * ratio.get<double>()) : "-"};
}

constexpr Column consumer_columns[] = {
    {"consumer", "CONSUMER", true, false, +[](const json& r, const Look&) { return text_cell(r, "consumer"); }},
    {"user", "USER", false, false, +[](const json& r, const Look&) { return text_cell(r, "user"); }},
    {"runs", "RUNS", true, true, +[](const json& r, const Look&) { return number_cell(r, "runs"); }},
    {"median", "MEDIAN", true, true, median_cell},
    {"peak", "PEAK", true, true, +[](const json& r, const Look&) { return size_cell(r, "peak_used_bytes"); }},
    {"method", "METHOD", true, false, +[](const json& r, const Look&) { return text_cell(r, "method"); }},
    {"pauses", "PAUSES", true, true, pauses_cell},
    {"pause", "PAUSE", true, false, +[](const json& r, const Look&) { return move_cell(r, "pause"); }},
    {"settle", "SETTLE", true, false, +[](const json& r, const Look&) { return move_cell(r, "settle"); }},
    {"resume", "RESUME", true, false, +[](const json& r, const Look&) { return move_cell(r, "resume"); }},
    {"spread", "SPREAD", true, true, spread_cell},
    {"failed", "FAILED", false, true, failed_cell},
    {"penalty", "PENALTY", false, true, penalty_cell},
    {"reliability", "RELIABILITY", false, true, reliability_cell},
};

// A row for each method by which a pause was tried; one without any for a consumer that was never asked to yield.
void add_rows(json& rows, const json& consumer, const json& moves) {
  std::map<std::string, json> by_method;
  for (const auto& move : moves) by_method[text_at(move, "method")][text_at(move, "move")] = move;
  for (const auto& tries : list_at(consumer, "pauses"))
    if (tries.is_object()) by_method[text_at(tries, "method")].update(tries);
  if (by_method.empty()) rows.push_back(consumer);
  for (const auto& [method, its] : by_method) {
    json row = consumer;
    row["method"] = method;
    row.update(its);
    rows.push_back(std::move(row));
  }
}

}  // namespace

Result<std::string> render_consumers(const json& reply, const Common& common, const Look& look) {
  json rows = json::array();
  for (const auto& consumer : list_at(reply, "consumers")) {
    if (consumer.is_object()) add_rows(rows, consumer, list_at(consumer, "moves"));
  }
  for (const auto& device : list_at(reply, "devices")) {
    const std::string id = text_at(device, "id");
    add_rows(rows, json{{"consumer", fmt::format("(all on {})", id.empty() ? text_at(device, "uuid") : id)}},
             list_at(device, "moves"));
  }
  if (!list_at(reply, "moves").empty()) add_rows(rows, json{{"consumer", "(all)"}}, list_at(reply, "moves"));
  // The USER column is shown if several users have consumers, the columns of failures if a pause failed.
  std::set<std::string> users;
  for (const auto& consumer : list_at(reply, "consumers")) users.insert(text_at(consumer, "user"));
  auto columns = std::to_array(consumer_columns);
  columns[1].usual = users.size() > 1;
  const auto failed = [](const json& row) { return number_at(row, "failed").value_or(0) > 0; };
  if (std::any_of(rows.begin(), rows.end(), failed))
    for (Column& column : columns) column.usual |= column.name == "failed" || column.name == "penalty";
  return render_table("report --consumers", columns, rows, common, look);
}

}  // namespace sublet::cli
