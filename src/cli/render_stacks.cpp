// SPDX-License-Identifier: Apache-2.0
// Stacks, for people.
#include "cli/render.h"

#include "base/size_bounds.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <vector>

namespace sublet::cli {

using nlohmann::json;

namespace {

Paint stack_state_paint(std::string_view state) {
  if (state == "ready") return Paint::green;
  if (state == "failed") return Paint::red;
  if (state == "queued" || state == "stopping") return Paint::yellow;
  return state == "creating" || state == "starting" ? Paint::cyan : Paint::dim;
}

Cell stack_state_cell(const json& row, const Look&) {
  const std::string state = text_at(row, "state");
  const std::string lease = text_at(row, "lease_state");
  const bool usual = lease.empty() || lease == "active" || lease == state || lease == "ended";
  return {usual ? state : fmt::format("{} ({})", state, lease), usual ? stack_state_paint(state) : Paint::yellow};
}

std::string time_left(const json& row, const Look& look) {
  const auto until = time_at(row, "expires_at");
  return until ? compact(std::max(*until - look.now, Duration::zero())) : "-";
}

std::string joined_words(const json& words) {
  std::string text;
  for (const json& word : words)
    if (word.is_string()) text += (text.empty() ? "" : ", ") + visible(word.get<std::string>());
  return text;
}

// The size of its lease, or of the next one.
std::string stack_size(const json& row) {
  const auto devices = number_at(row, "devices").value_or(1);
  const bool granted = number_at(row, "granted_bytes").has_value() && text_at(row, "lease_state") != "ended";
  const std::string each = size_at_most(row, granted ? "granted_bytes" : "vram_bytes");
  return devices > 1 ? fmt::format("{} x {}", devices, each) : each;
}

// The lines of a raw text, made visible. The first is the cause, and the others are the output of Compose.
std::vector<std::string> lines_of(const json& object, const char* field) {
  std::vector<std::string> lines;
  const json& text = member(object, field);
  if (!text.is_string()) return lines;
  std::string_view rest = text.get_ref<const std::string&>();
  while (!rest.empty()) {
    const auto end = std::min(rest.find('\n'), rest.size());
    if (end > 0) lines.push_back(visible(rest.substr(0, end)));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return lines;
}

std::string first_line(const json& object, const char* field) {
  const auto lines = lines_of(object, field);
  return lines.empty() ? "" : lines.front();
}

Cell stack_why_cell(const json& row, const Look&) {
  if (const std::string error = first_line(member(row, "error"), "detail"); !error.empty()) return {error, Paint::red};
  const std::string warning = first_line(row, "warning");
  return warning.empty() ? Cell{first_line(row, "why")} : Cell{warning, Paint::red};
}

constexpr Column stack_columns[] = {
    {"name", "NAME", true, false, +[](const json& r, const Look&) { return text_cell(r, "name"); }, Narrow::shorten},
    {"state", "STATE", true, false, stack_state_cell},
    {"user", "USER", true, false, +[](const json& r, const Look&) { return text_cell(r, "user"); }, Narrow::shorten},
    {"owner", "OWNER", false, false, +[](const json& r, const Look&) { return text_cell(r, "owner"); }},
    {"vram", "VRAM", true, true, +[](const json& r, const Look&) { return Cell{stack_size(r)}; }},
    {"from", "FROM", false, false, +[](const json& r, const Look&) { return text_cell(r, "size_from"); }},
    {"tier", "TIER", false, false, +[](const json& r, const Look&) { return text_cell(r, "tier"); }},
    {"on", "ON", true, false, +[](const json& r, const Look&) { return Cell{joined_words(list_at(r, "on"))}; }},
    {"lease", "LEASE", true, false, +[](const json& r, const Look&) { return text_cell(r, "lease"); }},
    {"left", "LEFT", true, true, +[](const json& r, const Look& look) { return Cell{time_left(r, look)}; }},
    {"rule", "RULE", true, false, +[](const json& r, const Look&) { return text_cell(r, "rule"); }},
    {"ports", "PORTS", false, false,
     +[](const json& r, const Look&) { return Cell{joined_words(list_at(r, "ports"))}; }},
    {"file", "FILE", false, false, +[](const json& r, const Look&) { return text_cell(r, "file"); }},
    {"why", "WHY", true, false, stack_why_cell, Narrow::below},
};

std::string container_text(const json& one) {
  std::string state = text_at(one, "status");
  if (const std::string health = text_at(one, "health"); !health.empty()) state += ", " + health;
  if (const auto code = number_at(one, "exit_code")) state += fmt::format(", exit code {}", *code);
  if (const std::string ports = joined_words(list_at(one, "ports")); !ports.empty()) state += ", " + ports;
  return fmt::format("{} ({}): {}", text_at(one, "name"), text_at(one, "service"), state);
}

}  // namespace

std::span<const Column> stack_columns_of() { return stack_columns; }

Result<std::string> render_stacks(const json& body, const Common& common, const Look& look) {
  return render_table("stack ls", stack_columns, list_at(body, "stacks"), common, look);
}

std::string stack_phrase(const json& stack, const Look& look) {
  const std::string state = text_at(stack, "state");
  std::string text = fmt::format("stack {} is {}", text_at(stack, "name"), state);
  const json& queue = member(stack, "queue");
  if (queue.is_object()) return fmt::format("stack {} waits: {}", text_at(stack, "name"), queue_phrase(stack, look));
  if (state == "ready" || state == "released") {
    text += fmt::format(": {}, {} on {}", text_at(stack, "lease"), size_at_most(stack, "granted_bytes"),
                        joined_words(list_at(stack, "on")));
    if (const auto until = time_at(stack, "expires_at"))
      text += fmt::format("; its time to live is over in {}", compact(std::max(*until - look.now, Duration::zero())));
  }
  const std::string lease = text_at(stack, "lease_state");
  if ((state == "ready" || state == "released") && !lease.empty() && lease != "active")
    text += fmt::format("; its lease is {}", lease);
  if (const std::string why = first_line(stack, "why"); !why.empty()) text += ": " + why;
  return text;
}

std::string render_stack(const json& stack, const Look& look) {
  std::string text = stack_phrase(stack, look) + "\n";
  const auto line = [&](const char* name, const std::string& value) {
    if (!value.empty() && value != "-") text += fmt::format("  {:<12}{}\n", name, value);
  };
  const auto lines = [&](const char* name, const std::vector<std::string>& all, std::size_t from) {
    for (std::size_t i = from; i < all.size(); ++i) line(i == from ? name : "", all[i]);
  };
  lines("output", lines_of(stack, "why"), 1);
  lines("warning", lines_of(stack, "warning"), 0);
  lines("error", lines_of(member(stack, "error"), "detail"), 0);
  line("hint", text_at(member(stack, "error"), "hint"));
  const std::string owner = text_at(stack, "owner");
  line("user", text_at(stack, "user") + (owner.empty() ? "" : fmt::format(" ({})", owner)));
  line("lease", text_at(stack, "lease") +
                    (text_at(stack, "lease").empty() ? "" : fmt::format(" ({})", text_at(stack, "lease_state"))));
  line("file", text_at(stack, "file"));
  line("found by", text_at(stack, "origin"));
  line("ready when", text_at(stack, "rule") == "label" ? "the service with the label is healthy"
                     : text_at(stack, "rule") == "containers"
                         ? "each container is healthy, or runs without a healthcheck"
                         : "");
  const std::string from = text_at(stack, "size_from");
  line("size", stack_size(stack) + (from.empty() ? "" : fmt::format(" (from: {})", from)));
  line("tier", text_at(stack, "tier"));
  if (const json& pausable = member(stack, "pausable"); pausable.is_boolean())
    line("paused", pausable.get<bool>() ? "for others, as each lease of its tier" : "never");
  if (const json& limited = member(stack, "interposer"); limited.is_boolean() && limited.get<bool>())
    line("interposer", member(stack, "share").is_number_integer()
                           ? fmt::format("yes, {} % of the computing time", member(stack, "share").get<int>())
                           : "yes");
  for (const json& one : list_at(stack, "containers")) line("container", container_text(one));
  return text;
}

}  // namespace sublet::cli
