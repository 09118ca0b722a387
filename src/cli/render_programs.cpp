// SPDX-License-Identifier: Apache-2.0
// The table of supervised programs.
#include "cli/render.h"

#include <fmt/format.h>

namespace sublet::cli {

using nlohmann::json;

namespace {

Paint program_state_paint(std::string_view state) {
  if (state == "running") return Paint::green;
  if (state == "failed") return Paint::red;
  if (state == "queued" || state == "backoff") return Paint::yellow;
  return state == "starting" ? Paint::cyan : Paint::dim;
}

Cell size_most_cell(const json& row, const char* key) { return {size_at_most(row, key), Paint::none}; }

Cell since_cell(const json& row, const Look& look) {
  const auto since = time_at(row, "since");
  return {since ? compact(look.now - *since) : "-", Paint::none};
}

Cell why_cell(const json& row, const Look& look) {
  const std::string warning = text_at(row, "warning");
  if (!warning.empty()) return {warning, Paint::red};
  std::string why = text_at(row, "why");
  const auto next = time_at(row, "next_start_at");
  if (next) why += fmt::format("{}next start {}", why.empty() ? "" : "; ", coming(*next - look.now));
  return {why, Paint::none};
}

constexpr Column program_columns[] = {
    {"tag", "TAG", true, false, +[](const json& r, const Look&) { return text_cell(r, "tag"); }, Narrow::shorten},
    {"user", "USER", true, false, +[](const json& r, const Look&) { return text_cell(r, "user"); }, Narrow::shorten},
    {"state", "STATE", true, false, program_state_cell},
    {"since", "SINCE", true, true, since_cell},
    {"restarts", "RESTARTS", true, true, +[](const json& r, const Look&) { return number_cell(r, "restarts"); }},
    {"starts", "STARTS", false, true, +[](const json& r, const Look&) { return number_cell(r, "starts"); }},
    {"policy", "POLICY", false, false, +[](const json& r, const Look&) { return text_cell(r, "restart"); }},
    {"used", "USED", true, true, +[](const json& r, const Look&) { return size_cell(r, "used_bytes"); }},
    {"vram", "VRAM", true, true, +[](const json& r, const Look&) { return size_most_cell(r, "vram_bytes"); }},
    {"ceiling", "CEILING", true, true, +[](const json& r, const Look&) { return size_most_cell(r, "memory_bytes"); },
     Narrow::needless, "-"},
    {"soft", "SOFT", false, true, +[](const json& r, const Look&) { return size_most_cell(r, "soft_bytes"); }},
    {"lease", "LEASE", true, false, +[](const json& r, const Look&) { return text_cell(r, "lease"); }},
    {"pid", "PID", true, true, +[](const json& r, const Look&) { return number_cell(r, "pid"); }},
    {"tier", "TIER", false, false, +[](const json& r, const Look&) { return text_cell(r, "tier"); }},
    {"exit", "EXIT", false, true, +[](const json& r, const Look&) { return number_cell(r, "exit_status"); }},
    {"command", "COMMAND", false, false, +[](const json& r, const Look&) { return text_cell(r, "command"); }},
    {"why", "WHY", true, false, why_cell, Narrow::below},
};

}  // namespace

Cell program_state_cell(const json& row, const Look&) {
  const std::string state = text_at(row, "state");
  if (state != "running") return {state, program_state_paint(state)};
  const std::string lease = text_at(row, "lease_state");
  std::string more = lease == "active" ? "" : lease;
  if (flag_at(row, "stopping")) more += more.empty() ? "stopping" : ", stopping";
  if (more.empty()) return {state, program_state_paint(state)};
  return {fmt::format("{} ({})", state, more), Paint::yellow};
}

std::span<const Column> program_columns_of() { return program_columns; }

Result<std::string> render_programs(const json& programs, const Common& common, const Look& look) {
  return render_table("programs", program_columns, list_at(programs, "programs"), common, look);
}

}  // namespace sublet::cli
