// SPDX-License-Identifier: Apache-2.0
// Verdicts, approvals, policies and the preview of enforcement, for people.
#include "cli/render.h"

#include <fmt/format.h>

#include <algorithm>

namespace sublet::cli {

using nlohmann::json;

namespace {

std::string id_of(const json& row) { return fmt::format("{}", number_at(row, "id").value_or(0)); }

Cell stage_cell(const json& row, const Look&) {
  const std::string stage = text_at(row, "stage");
  if (stage == "closed") return {text_at(row, "outcome"), Paint::dim};
  return {stage, stage == "seen" ? Paint::yellow : Paint::red};
}

Cell opened_cell(const json& row, const Look& look) {
  const auto since = time_at(row, "opened_at");
  return {since ? compact(look.now - *since) : "-"};
}

constexpr Column verdict_columns[] = {
    {"id", "ID", true, true, +[](const json& r, const Look&) { return Cell{id_of(r)}; }},
    {"pid", "PID", true, true, +[](const json& r, const Look&) { return number_cell(r, "pid"); }},
    {"user", "USER", true, false, +[](const json& r, const Look&) { return text_cell(r, "user"); }, Narrow::shorten},
    {"name", "NAME", true, false, +[](const json& r, const Look&) { return text_cell(r, "name"); }, Narrow::shorten},
    {"used", "USED", true, true, +[](const json& r, const Look&) { return size_cell(r, "used_bytes"); }},
    {"age", "AGE", true, true, opened_cell},
    {"policy", "POLICY", true, false, +[](const json& r, const Look&) { return text_cell(r, "policy"); }},
    {"stage", "STAGE", true, false, stage_cell},
    {"unit", "UNIT", false, false, +[](const json& r, const Look&) { return text_cell(r, "unit"); }},
    {"container", "CONTAINER", false, false, +[](const json& r, const Look&) { return text_cell(r, "container"); }},
    {"cgroup", "CGROUP", false, false, +[](const json& r, const Look&) { return text_cell(r, "cgroup"); }},
    {"exe", "EXE", false, false, +[](const json& r, const Look&) { return text_cell(r, "exe"); }},
    {"command", "COMMAND", false, false, +[](const json& r, const Look&) { return text_cell(r, "command"); }},
    {"opened", "OPENED", false, false, +[](const json& r, const Look&) { return text_cell(r, "opened_at"); }},
    {"closed", "CLOSED", false, false, +[](const json& r, const Look&) { return text_cell(r, "closed_at"); }},
};

constexpr Column approval_columns[] = {
    {"id", "ID", true, true, +[](const json& r, const Look&) { return Cell{id_of(r)}; }},
    {"subject", "SUBJECT", true, false, +[](const json& r, const Look&) { return text_cell(r, "subject"); }},
    {"until", "UNTIL", true, false, +[](const json& r, const Look&) { return text_cell(r, "until"); }},
    {"by", "BY", true, false, +[](const json& r, const Look&) { return text_cell(r, "by"); }},
    {"reason", "REASON", true, false, +[](const json& r, const Look&) { return text_cell(r, "reason"); },
     Narrow::shorten},
};

constexpr Column policy_columns[] = {
    {"id", "ID", true, true, +[](const json& r, const Look&) { return Cell{id_of(r)}; }},
    {"subject", "SUBJECT", true, false, +[](const json& r, const Look&) { return text_cell(r, "subject"); }},
    {"policy", "POLICY", true, false, +[](const json& r, const Look&) { return text_cell(r, "policy"); }},
    {"graphics", "GRAPHICS", true, false,
     +[](const json& r, const Look&) { return Cell{flag_at(r, "graphics") ? "yes" : "-"}; }},
    {"by", "BY", true, false, +[](const json& r, const Look&) { return text_cell(r, "by"); }},
};

// "ends", "has ended", "holds no memory", or why it is spared.
Cell now_cell(const json& row, const Look&) {
  if (const std::string why = text_at(row, "spared_because"); !why.empty()) return {"spared: " + why};
  if (flag_at(row, "would_end_now")) return {"ends", Paint::red};
  return {text_at(row, "outcome") == "ended" ? "has ended" : "holds no memory", Paint::dim};
}

constexpr Column preview_columns[] = {
    {"id", "ID", true, true, +[](const json& r, const Look&) { return Cell{id_of(r)}; }},
    {"user", "USER", true, false, +[](const json& r, const Look&) { return text_cell(r, "user"); }, Narrow::shorten},
    {"pid", "PID", true, true, +[](const json& r, const Look&) { return number_cell(r, "pid"); }},
    {"name", "NAME", true, false, +[](const json& r, const Look&) { return text_cell(r, "name"); }, Narrow::shorten},
    {"used", "USED", true, true, +[](const json& r, const Look&) { return size_cell(r, "used_bytes"); }},
    {"sigterm", "SIGTERM", true, false,
     +[](const json& r, const Look&) { return text_cell(r, "would_get_sigterm_at"); }},
    {"sigkill", "SIGKILL", true, false,
     +[](const json& r, const Look&) { return text_cell(r, "would_get_sigkill_at"); }},
    {"now", "NOW", true, false, now_cell, Narrow::shorten},
    {"command", "COMMAND", false, false, +[](const json& r, const Look&) { return text_cell(r, "command"); }},
};

// "bash (4000)", "sh (4711, ended, by connector)". Parents that live are shown by the process table.
std::string ancestor(const json& row) {
  const std::string name = text_at(row, "name"), ended = text_at(row, "ended_at"), source = text_at(row, "source");
  std::string text = fmt::format("{} ({}", name.empty() ? "?" : visible(name), number_at(row, "pid").value_or(0));
  if (flag_at(row, "ended")) text += ended.empty() ? ", ended" : fmt::format(", ended {}", ended);
  if (source != "proc") text += fmt::format(", {}by {}", flag_at(row, "certain") ? "" : "likely, ", source);
  return text + ")";
}

std::string list_of_ancestors(const json& verdict) {
  std::string text;
  for (const json& each : list_at(verdict, "ancestry")) text += (text.empty() ? "" : " < ") + ancestor(each);
  return text;
}

}  // namespace

std::span<const Column> verdict_columns_of() { return verdict_columns; }

Result<std::string> render_verdicts(const json& body, const Common& common, const Look& look) {
  return render_table("verdicts", verdict_columns, list_at(body, "verdicts"), common, look);
}

Result<std::string> render_approvals(const json& body, const Common& common, const Look& look) {
  return render_table("approve", approval_columns, list_at(body, "approvals"), common, look);
}

Result<std::string> render_policies(const json& body, const Common& common, const Look& look) {
  auto table = render_table("enforce ls", policy_columns, list_at(body, "policies"), common, look);
  if (!table) return table;
  return fmt::format("default: {}\n{}", text_at(body, "policy"),
                     list_at(body, "policies").empty() ? std::string() : *table);
}

Result<std::string> render_enforcement_preview(const json& body, const Common& common, const Look& look) {
  json rows = list_at(body, "would_end");
  for (const json& row : list_at(body, "spared")) rows.push_back(row);
  std::stable_sort(rows.begin(), rows.end(), [](const json& one, const json& other) {
    return flag_at(one, "would_end_now") && !flag_at(other, "would_end_now");
  });
  return render_table("enforce", preview_columns, rows, common, look);
}

std::string render_verdict(const json& verdict, const Look&) {
  std::string text = fmt::format("verdict {}: {}\n", id_of(verdict), visible(text_at(verdict, "summary")));
  const auto line = [&](const char* name, const std::string& value) {
    if (!value.empty()) text += fmt::format("  {:<11}{}\n", name, visible(value));
  };
  line("command", text_at(verdict, "command"));
  line("executable", text_at(verdict, "exe"));
  line("user", fmt::format("{} ({})", text_at(verdict, "user"), number_at(verdict, "uid").value_or(0)));
  line("cgroup", text_at(verdict, "cgroup"));
  line("unit", text_at(verdict, "unit"));
  line("container", text_at(verdict, "container"));
  line("parents", list_of_ancestors(verdict));
  line("missing", text_at(verdict, "missing_record"));
  const json& evidence = member(verdict, "evidence");
  std::string seen_by = "the driver's list";
  if (flag_at(evidence, "device_file")) seen_by += ", an open device file";
  if (flag_at(evidence, "mapping")) seen_by += ", mapped memory";
  line("evidence", seen_by);
  line("spared", text_at(verdict, "spared_because"));
  for (const json& step : list_at(verdict, "steps"))
    text += fmt::format("  {}  {}{}\n", text_at(step, "time"), visible(text_at(step, "what")),
                        text_at(step, "result").empty() ? "" : ": " + visible(text_at(step, "result")));
  return text;
}

}  // namespace sublet::cli
