// SPDX-License-Identifier: Apache-2.0
// Sessions, for people.
#include "cli/render.h"

#include <fmt/format.h>

namespace sublet::cli {

using nlohmann::json;

namespace {

Paint session_state_paint(std::string_view state) {
  if (state == "active") return Paint::green;
  if (state == "queued" || state == "paused" || state == "ending") return Paint::yellow;
  if (state == "starting" || state == "resuming") return Paint::cyan;
  return Paint::dim;
}

std::string until(const json& session, const char* field, const Look& look) {
  const auto time = time_at(session, field);
  return time ? compact(std::max(*time - look.now, Duration::zero())) : "";
}

// "busy", "idle 12m", or "" for a session without a lease.
std::string activity_text(const json& session, const Look& look) {
  const json& activity = member(session, "activity");
  const std::string state = text_at(activity, "state");
  const auto since = time_at(activity, "since");
  if (state != "idle" || !since) return state;
  return fmt::format("idle {}", compact(std::max(look.now - *since, Duration::zero())));
}

std::string devices_text(const json& session, const Look& look) {
  std::string text;
  for (const json& device : list_at(session, "devices"))
    if (device.is_string()) text += (text.empty() ? "" : ",") + device_name(device.get<std::string>(), look);
  return text;
}

Cell left_cell(const json& row, const Look& look) {
  const std::string kept = until(row, "kept_until", look);
  return {!kept.empty() ? kept : until(row, "expires_at", look)};
}

// A session without a tag of its own has its id as tag.
Cell tag_cell(const json& row, const Look&) {
  return text_at(row, "tag") == text_at(row, "id") ? Cell{"-"} : text_cell(row, "tag");
}

constexpr Column session_columns[] = {
    {"id", "ID", true, false, +[](const json& r, const Look&) { return text_cell(r, "id"); }},
    {"tag", "TAG", true, false, tag_cell, Narrow::needless, "-"},
    {"user", "USER", true, false, +[](const json& r, const Look&) { return text_cell(r, "user"); }, Narrow::shorten},
    {"tenant", "TENANT", false, false, +[](const json& r, const Look&) { return text_cell(r, "tenant"); }},
    {"state", "STATE", true, false,
     +[](const json& r, const Look&) {
       const std::string state = text_at(r, "state");
       return Cell{state, session_state_paint(state)};
     }},
    {"activity", "ACTIVITY", true, false,
     +[](const json& r, const Look& look) { return Cell{activity_text(r, look)}; }},
    {"vram", "VRAM", true, true, +[](const json& r, const Look&) { return Cell{size_at_most(r, "vram_bytes")}; }},
    {"gpu", "GPU", true, false, +[](const json& r, const Look& look) { return Cell{devices_text(r, look)}; }},
    {"tier", "TIER", false, false, +[](const json& r, const Look&) { return text_cell(r, "tier"); }},
    {"lease", "LEASE", true, false, +[](const json& r, const Look&) { return text_cell(r, "lease"); }},
    {"pid", "PID", false, true, +[](const json& r, const Look&) { return number_cell(r, "pid"); }},
    {"left", "LEFT", true, true, left_cell},
    {"command", "COMMAND", true, false, +[](const json& r, const Look&) { return text_cell(r, "command"); },
     Narrow::shorten},
    {"why", "WHY", true, false, +[](const json& r, const Look&) { return text_cell(r, "why"); }, Narrow::below},
};

std::string idle_rule_text(const json& idle) {
  std::string text;
  const auto add = [&](const char* verb, const std::string& part) {
    const auto seconds = number_at(idle, part + "_seconds");
    if (!seconds || *seconds == 0) return;
    text += fmt::format("{}{} after {} ({})", text.empty() ? "" : ", ", verb, compact(std::chrono::seconds(*seconds)),
                        text_at(idle, part + "_from"));
  };
  add("warned", "warn");
  add("paused", "pause");
  add("ended", "end");
  return text;
}

std::string checkpoint_text(const json& checkpoint, const Look& look) {
  if (!checkpoint.is_object()) return {};
  if (flag_at(checkpoint, "running")) return "is being made";
  if (const std::string problem = text_at(checkpoint, "problem"); !problem.empty()) return "failed: " + problem;
  const auto at = time_at(checkpoint, "at");
  const std::string locator = text_at(checkpoint, "locator");
  if (!at) return "none yet";
  return fmt::format("{}, {} ago", locator.empty() ? "made" : locator, compact(look.now - *at));
}

}  // namespace

std::span<const Column> session_columns_of() { return session_columns; }

Result<std::string> render_sessions(const json& body, const Common& common, const Look& look) {
  return render_table("session ls", session_columns, list_at(body, "sessions"), common, look);
}

std::string session_phrase(const json& session, const Look& look) {
  const std::string state = text_at(session, "state");
  std::string text = fmt::format("{} is {}", text_at(session, "id"), state);
  if (state == "active") {
    text += fmt::format(": {}, {}", text_at(session, "lease"), size_at_most(session, "vram_bytes"));
    const std::string devices = devices_text(session, look);
    if (!devices.empty()) text += " on " + devices;
    const std::string left = until(session, "expires_at", look);
    if (!left.empty()) text += fmt::format("; its time to live is over in {} without activity", left);
  }
  if (state == "parked") {
    const std::string kept = until(session, "kept_until", look);
    if (!kept.empty()) text += fmt::format(" and kept for {} more", kept);
  }
  if (const std::string why = text_at(session, "why"); !why.empty()) text += ": " + why;
  return text;
}

std::string render_session(const json& session, const Look& look) {
  std::string text = session_phrase(session, look) + "\n";
  const auto line = [&](const char* name, const std::string& value) {
    if (!value.empty() && value != "-") text += fmt::format("  {:<12}{}\n", name, value);
  };
  const std::string tenant = text_at(session, "tenant"), user = text_at(session, "user");
  line("user", tenant == user ? user : fmt::format("{} (tenant {})", user, tenant));
  if (text_at(session, "tag") != text_at(session, "id")) line("tag", text_at(session, "tag"));
  const std::string lease_state = text_at(session, "lease_state");
  line("lease", text_at(session, "lease") + (lease_state.empty() ? "" : fmt::format(" ({})", lease_state)));
  const bool grows = number_at(session, "vram_bytes") != number_at(session, "wanted_vram_bytes");
  line("size", size_at_most(session, "vram_bytes") +
                   (grows ? fmt::format(", wants {}", size_at_most(session, "wanted_vram_bytes")) : ""));
  line("tier", text_at(session, "tier"));
  line("activity", activity_text(session, look));
  line("when idle", idle_rule_text(member(session, "idle")));
  if (const auto ttl = number_at(session, "ttl_seconds")) line("ttl", compact(std::chrono::seconds(*ttl)));
  line("checkpoint", checkpoint_text(member(session, "checkpoint"), look));
  line("ended", text_at(session, "end_reason"));
  line("command", text_at(session, "command"));
  line("output", text_at(session, "log_path"));
  return text;
}

}  // namespace sublet::cli
