// SPDX-License-Identifier: Apache-2.0
// `tenant`: the tree of tenants, one tenant, and what a change of the tree changes.
#include "cli/render.h"

#include <fmt/format.h>

#include <map>

namespace sublet::cli {

using nlohmann::json;

namespace {

std::string number_text_at(const json& row, const char* key) {
  const json& value = member(row, key);
  if (!value.is_number()) return {};
  std::string text = fmt::format("{:.2f}", value.get<double>());
  while (text.back() == '0') text.pop_back();
  if (text.back() == '.') text.pop_back();
  return text;
}

// "4.0 GiB", "2 devices", or both; "-": not stated.
std::string tenant_amount(const json& row, const std::string& name) {
  const std::string devices = number_text_at(row, (name + "_devices").c_str());
  std::string text = member(row, name + "_bytes").is_number() ? size_at(row, name + "_bytes") : "";
  if (!devices.empty())
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", devices, devices == "1" ? "device" : "devices");
  return text.empty() ? "-" : text;
}

// Byte-seconds as "1.5 GiB·h".
std::string tenant_use_text(const json& row) {
  const json& value = member(row, "used_byte_seconds");
  if (!value.is_number()) return "-";
  return fmt::format("{:.1f} GiB·h", value.get<double>() / static_cast<double>(GiB.count) / 3600);
}

Cell tenant_name_cell(const json& row, const Look&) {
  const auto depth = static_cast<std::size_t>(number_at(row, "depth").value_or(0));
  return {std::string(2 * depth, ' ') + text_at(row, "name"), flag_at(row, "entry") ? Paint::none : Paint::dim};
}

Cell tenant_borrowed_cell(const json& row, const Look&) {
  const bool some = number_at(row, "borrowed_bytes").value_or(0) > 0;
  return {some ? size_at(row, "borrowed_bytes") : "-", some ? Paint::yellow : Paint::none};
}

constexpr Column tenant_columns[] = {
    {"name", "TENANT", true, false, tenant_name_cell, Narrow::shorten},
    {"quota", "QUOTA", true, true, +[](const json& r, const Look&) { return Cell{tenant_amount(r, "quota")}; }},
    {"limit", "LIMIT", true, true, +[](const json& r, const Look&) { return Cell{tenant_amount(r, "limit")}; }},
    {"weight", "WEIGHT", true, true, +[](const json& r, const Look&) { return Cell{number_text_at(r, "weight")}; }},
    {"held", "HELD", true, true, +[](const json& r, const Look&) { return size_cell(r, "held_bytes"); }},
    {"borrowed", "BORROWED", true, true, tenant_borrowed_cell},
    {"leases", "LEASES", true, true, +[](const json& r, const Look&) { return number_cell(r, "leases"); }},
    {"waiting", "WAITING", true, true, +[](const json& r, const Look&) { return number_cell(r, "waiting"); }},
    {"use", "USE", true, true, +[](const json& r, const Look&) { return Cell{tenant_use_text(r)}; }},
    {"devices", "DEVICES", false, true,
     +[](const json& r, const Look&) { return Cell{number_text_at(r, "held_devices")}; }},
    {"parked", "PARKED", false, true, +[](const json& r, const Look&) { return size_cell(r, "parked_bytes"); }},
    {"parent", "PARENT", false, false, +[](const json& r, const Look&) { return text_cell(r, "parent"); }},
    {"on-limit", "ON-LIMIT", false, false, +[](const json& r, const Look&) { return text_cell(r, "on_limit"); }},
};

std::string tenant_field_text(const json& field) {
  const std::string before = text_at(field, "before"), after = text_at(field, "after");
  if (before.empty()) return fmt::format("{} = {}", text_at(field, "field"), after);
  return fmt::format("{}: {} -> {}", text_at(field, "field"), before, after.empty() ? "none" : after);
}

}  // namespace

Result<std::string> render_tenants(const json& body, const Common& common, const Look& look) {
  std::map<std::string, int> depths;
  json rows = json::array();
  for (json row : list_at(body, "tenants")) {
    const auto parent = depths.find(text_at(row, "parent"));
    row["depth"] = depths[text_at(row, "name")] = parent == depths.end() ? 0 : parent->second + 1;
    rows.push_back(std::move(row));
  }
  return render_table("tenant ls", tenant_columns, rows, common, look);
}

std::span<const Column> tenant_columns_of() { return tenant_columns; }

std::string tenants_phrase(const json& tenants) {
  constexpr int most = 12;
  std::string out;
  int others = 0, shown = 0;
  for (const json& row : list_at(tenants, "tenants")) {
    const std::string quota = tenant_amount(row, "quota");
    if (quota == "-") continue;
    if (shown++ >= most) {
      ++others;
      continue;
    }
    const bool by_devices = !member(row, "quota_bytes").is_number();
    const std::string held = by_devices ? number_text_at(row, "held_devices") : size_at(row, "held_bytes");
    out += fmt::format("{}{} {} of {}", out.empty() ? "" : ", ", text_at(row, "name"), held, quota);
    if (number_at(row, "borrowed_bytes").value_or(0) > 0)
      out += fmt::format(" ({} borrowed)", size_at(row, "borrowed_bytes"));
  }
  if (others > 0) out += fmt::format(", and {} others", others);
  return out.empty() ? out : "tenants (held of quota): " + out;
}

std::string window_phrase(const json& window) {
  const auto span = [&](const char* key) {
    return format_duration(std::chrono::seconds(number_at(window, key).value_or(0)));
  };
  if (number_at(window, "half_life_seconds")) return fmt::format("counted half after {}", span("half_life_seconds"));
  return fmt::format("in the last {}", span("seconds"));
}

// "1 min 30 s of every 4 min 30 s on gpu0 (tier standard, 3 leases)".
static std::string rotation_text(const json& row, const Look& look) {
  const auto span = [&row](const char* key) {
    const json& value = member(row, key);
    const double seconds = value.is_number() ? value.get<double>() : 0;
    return format_duration(Duration(static_cast<std::int64_t>(seconds * 1e9)));
  };
  std::string devices;
  for (const json& uuid : list_at(row, "devices"))
    if (uuid.is_string()) devices += (devices.empty() ? "" : ", ") + device_name(uuid.get<std::string>(), look);
  return fmt::format("{} of every {} on {} (tier {}, {} leases)", span("slice_seconds"), span("period_seconds"),
                     devices, text_at(row, "tier"), number_at(row, "leases").value_or(0));
}

std::string render_tenant(const json& row, const Look& look) {
  std::string out = paint(text_at(row, "name"), Paint::bold, look);
  out += flag_at(row, "entry") ? "\n" : "  (no entry: usual weight, no quota, no limits)\n";
  const auto line = [&out](const char* name, const std::string& text) {
    if (!text.empty() && text != "-") out += fmt::format("  {:<15} {}\n", name, text);
  };
  line("parent", text_at(row, "parent"));
  std::string quota = tenant_amount(row, "quota");
  if (const std::string served = tenant_amount(row, "served_quota"); served != quota)
    quota += fmt::format(" (now {}: a device is lost)", served);
  line("quota", quota);
  line("limit", tenant_amount(row, "limit"));
  constexpr std::pair<const char*, const char*> counts[] = {{"live_leases", "live leases"},
                                                            {"queued_leases", "queued leases"}};
  for (const auto& [key, name] : counts)
    if (const auto most = number_at(row, key)) line(name, fmt::format("at most {}", *most));
  if (const auto longest = number_at(row, "longest_lease_seconds"))
    line("longest lease", format_duration(std::chrono::seconds(*longest)));
  line("over a limit", text_at(row, "on_limit") == "refuse" ? "requests are refused" : "requests wait");
  line("weight", number_text_at(row, "weight"));
  std::string tiers;
  for (const json& tier : list_at(row, "tiers"))
    if (tier.is_string()) tiers += (tiers.empty() ? "" : ", ") + tier.get<std::string>();
  line("tiers", tiers);
  if (const auto highest = number_at(row, "highest_priority")) line("priority", fmt::format("at most {}", *highest));
  if (const json& share = member(row, "park_share"); share.is_number())
    line("park share", fmt::format("{:.0f} % of the park ledger", share.get<double>() * 100));
  std::string held = fmt::format("{}, {} devices", size_at(row, "held_bytes"), number_text_at(row, "held_devices"));
  if (number_at(row, "borrowed_bytes").value_or(0) > 0)
    held += fmt::format(" ({} borrowed)", size_at(row, "borrowed_bytes"));
  line("held", held);
  line("leases", fmt::format("{} with memory, {} waiting", number_at(row, "leases").value_or(0),
                             number_at(row, "waiting").value_or(0)));
  if (number_at(row, "parked_bytes").value_or(0) > 0) line("parked", size_at(row, "parked_bytes"));
  line("use", fmt::format("{} {}", tenant_use_text(row), window_phrase(member(row, "window"))));
  std::string children;
  for (const json& child : list_at(row, "children"))
    if (child.is_string()) children += (children.empty() ? "" : ", ") + visible(child.get<std::string>());
  line("below it", children);
  for (const json& rotation : list_at(row, "rotations")) line("turns", rotation_text(rotation, look));
  return out;
}

std::string render_tenant_changes(const json& reply, const Look& look) {
  std::string out;
  for (const json& change : list_at(reply, "changes")) {
    const std::string kind = text_at(change, "change");
    const auto [sign, color] = kind == "added"     ? std::pair("+", Paint::green)
                               : kind == "removed" ? std::pair("-", Paint::red)
                                                   : std::pair("~", Paint::yellow);
    std::string fields;
    if (kind != "removed")
      for (const json& field : list_at(change, "fields"))
        fields += (fields.empty() ? "" : "; ") + tenant_field_text(field);
    out += fmt::format("{} {}{}{}\n", paint(sign, color, look), text_at(change, "tenant"), fields.empty() ? "" : ": ",
                       fields);
  }
  for (const json& effect : list_at(reply, "effects")) {
    const std::string tag = text_at(effect, "tag");
    std::string kind = text_at(effect, "effect");
    if (kind == "over_limit") kind = "over its limit";
    if (kind == "without_tenant") kind = "without an entry";
    out += fmt::format("! {} ({}{}) is {}: {}\n", text_at(effect, "lease"), tag.empty() ? "" : tag + ", ",
                       text_at(effect, "user"), paint(kind, Paint::yellow, look), text_at(effect, "text"));
  }
  return out;
}

}  // namespace sublet::cli
