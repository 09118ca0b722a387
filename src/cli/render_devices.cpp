// SPDX-License-Identifier: Apache-2.0
// The tables of devices and processes: `gpus` and `proclist`.
#include "cli/render.h"

#include <fmt/format.h>

#include <algorithm>

namespace sublet::cli {

using nlohmann::json;

std::string service_text(const json& device) {
  const json& service = member(device, "service");
  if (!service.is_object()) return {};
  const std::string reason = text_at(service, "reason"), deadline = text_at(service, "deadline");
  return fmt::format("{} since {} by {}{}{}", text_at(service, "state"), text_at(service, "since"),
                     text_at(service, "by"), deadline.empty() ? "" : ", deadline " + deadline,
                     reason.empty() ? "" : ": " + reason);
}

namespace {

Cell age_cell(const json& row, const Look&) {
  if (text_at(row, "state") == "mig") return {};
  const auto age = number_at(row, "snapshot_age_ms");
  if (!age) return {"never", Paint::red};
  return {*age < 1000 ? fmt::format("{}ms", *age) : compact(std::chrono::milliseconds(*age)), Paint::none};
}

Cell device_state_cell(const json& row, const Look&) {
  const std::string state = text_at(row, "state"), service = text_at(member(row, "service"), "state");
  if (state == "ok" && !service.empty()) return {service, Paint::yellow};
  if (state == "mig") return {state, Paint::dim};
  if (state == "ok" && flag_at(row, "unified")) return {"unified", Paint::green};
  return {state, state == "ok" ? Paint::green : Paint::red};
}

// An unknown size is not printed as zero.
Cell known_size(const json& row, const char* key) {
  return text_at(row, "state") == "ok" ? size_cell(row, key) : Cell{};
}

// The utilisation; nothing if the driver does not tell.
Cell percent_cell(const json& row) {
  const auto percent = number_at(row, "busy_percent");
  return percent ? Cell{fmt::format("{} %", *percent)} : Cell{};
}

// A figure of the condition with its unit; nothing if the driver does not tell.
std::string figure_text(const json& row, const char* key, std::string_view unit, std::int64_t divisor = 1) {
  const auto figure = number_at(member(row, "condition"), key);
  return figure ? fmt::format("{}{}", (*figure + divisor / 2) / divisor, unit) : std::string();
}

// "180/600 W".
std::string power_text(const json& row) {
  const std::string limit = figure_text(row, "power_limit_milliwatts", " W", 1000);
  const std::string now = figure_text(row, "power_milliwatts", limit.empty() ? " W" : "", 1000);
  return now.empty() || limit.empty() ? now : now + "/" + limit;
}

// "PCIe 4 x16", "PCIe 4 x8 of x16", "PCIe 5 x16, 4 NVLinks".
std::string link_text(const json& row) {
  const json& condition = member(row, "condition");
  const auto lanes = number_at(condition, "pcie_lanes"), most = number_at(condition, "pcie_max_lanes");
  const auto nvlinks = number_at(condition, "nvlinks");
  std::string text;
  if (lanes) {
    const auto generation = number_at(condition, "pcie_max_generation");
    text = fmt::format("PCIe{} x{}", generation ? fmt::format(" {}", *generation) : "", *lanes);
    if (most && *most > *lanes) text += fmt::format(" of x{}", *most);
  }
  if (nvlinks.value_or(0) > 0)
    text += fmt::format("{}{} NVLink{}", text.empty() ? "" : ", ", *nvlinks, *nvlinks == 1 ? "" : "s");
  return text;
}

// The devices that are linked with it in that way: "gpu1,gpu2".
Cell linked_cell(const json& row, const char* way) {
  std::string text;
  for (const json& id : list_at(member(row, "links"), way))
    if (id.is_string()) text += (text.empty() ? "" : ",") + id.get<std::string>();
  return {text};
}

Cell link_cell(const json& row, const Look&) {
  const std::string text = link_text(row);
  return {text, text.find(" of x") == std::string::npos ? Paint::none : Paint::yellow};
}

// "2 (9 corrected)": double-bit errors first.
Cell ecc_cell(const json& row, const Look&) {
  const json& condition = member(row, "condition");
  const auto uncorrected = number_at(condition, "ecc_uncorrected"), corrected = number_at(condition, "ecc_corrected");
  if (!uncorrected) return {};
  std::string text = std::to_string(*uncorrected);
  if (corrected.value_or(0) > 0) text += fmt::format(" ({} corrected)", *corrected);
  return {text, *uncorrected > 0 ? Paint::red : Paint::none};
}

// Never more than can be had: it is what people ask for next.
Cell free_cell(const json& row, const Look&) {
  return text_at(row, "state") == "ok" ? Cell{size_at_most(row, "effective_free_bytes")} : Cell{};
}

// The devices, and each card in MIG mode before its slices.
json device_tree(const json& reply) {
  json rows = list_at(reply, "devices");
  for (json card : list_at(reply, "mig_cards")) {
    const std::string uuid = text_at(card, "uuid");
    const auto own = [&](const json& row) { return text_at(row, "uuid") == uuid; };
    if (std::ranges::any_of(rows, own)) continue;  // leases from before are still there
    const auto after = std::ranges::find_if(rows, [&](const json& row) {
      return text_at(row, "parent") == uuid || number_at(row, "index") > number_at(card, "index");
    });
    card["state"] = "mig";
    rows.insert(after, std::move(card));
  }
  return rows;
}

constexpr Column device_columns[] = {
    {"gpu", "GPU", true, false, +[](const json& r, const Look&) { return text_cell(r, "id"); }},
    {"name", "NAME", true, false, +[](const json& r, const Look&) { return text_cell(r, "name"); }, Narrow::shorten},
    {"index", "INDEX", false, true, +[](const json& r, const Look&) { return number_cell(r, "index"); }},
    {"uuid", "UUID", false, false, +[](const json& r, const Look&) { return text_cell(r, "uuid"); }},
    {"pci", "PCI", false, false, +[](const json& r, const Look&) { return text_cell(r, "pci_bus_id"); }},
    {"total", "TOTAL", true, true, +[](const json& r, const Look&) { return size_cell(r, "total_bytes"); }},
    {"driver", "DRIVER", false, true,
     +[](const json& r, const Look&) { return size_cell(r, "driver_reserved_bytes"); }},
    {"used", "USED", true, true, +[](const json& r, const Look&) { return known_size(r, "used_bytes"); }},
    {"busy", "BUSY", false, true, +[](const json& r, const Look&) { return percent_cell(r); }},
    {"leased", "LEASED", true, true, +[](const json& r, const Look&) { return Cell{leased_size(r)}; }},
    {"residue", "RESIDUE", false, true, +[](const json& r, const Look&) { return size_cell(r, "residue_bytes"); }},
    {"other", "OTHER", true, true, +[](const json& r, const Look&) { return known_size(r, "other_bytes"); }},
    {"free", "FREE", true, true, free_cell},
    {"state", "STATE", true, false, device_state_cell},
    {"seen", "SEEN", true, true, age_cell},
    {"cc", "CC", false, false,
     +[](const json& r, const Look&) { return text_cell(member(r, "condition"), "compute_capability"); }},
    {"temp", "TEMP", false, true,
     +[](const json& r, const Look&) { return Cell{figure_text(r, "temperature_celsius", " °C")}; }},
    {"power", "POWER", false, true, +[](const json& r, const Look&) { return Cell{power_text(r)}; }},
    {"clock", "CLOCK", false, true,
     +[](const json& r, const Look&) { return Cell{figure_text(r, "sm_clock_mhz", " MHz")}; }},
    {"memclock", "MEMCLOCK", false, true,
     +[](const json& r, const Look&) { return Cell{figure_text(r, "memory_clock_mhz", " MHz")}; }},
    {"link", "LINK", false, false, link_cell},
    {"nvlink", "NVLINK", false, false, +[](const json& r, const Look&) { return linked_cell(r, "nvlink"); }},
    {"switch", "SWITCH", false, false, +[](const json& r, const Look&) { return linked_cell(r, "pcie_switch"); }},
    {"numa", "NUMA", false, false, +[](const json& r, const Look&) { return linked_cell(r, "numa"); }},
    {"ecc", "ECC", false, false, ecc_cell},
    {"xid", "XID", false, true,
     +[](const json& r, const Look&) { return number_cell(member(r, "condition"), "last_xid"); }},
    {"simulated", "SIMULATED", false, false,
     +[](const json& r, const Look&) { return Cell{flag_at(r, "simulated") ? "yes" : "no"}; }},
    {"problem", "PROBLEM", true, false,
     +[](const json& r, const Look&) {
       const std::string problem = text_at(r, "problem"), service = service_text(r);
       return problem.empty() ? Cell{service, Paint::yellow} : Cell{problem, Paint::red};
     },
     Narrow::below},
};

Cell lease_cell(const json& row, const Look&) {
  const std::string lease = text_at(row, "lease");
  if (lease.empty()) return {"none", Paint::yellow};
  return flag_at(row, "lease_ended") ? Cell{lease + " (ended)", Paint::yellow} : Cell{lease};
}

Cell gpu_cell(const json& row, const Look& look) {
  const auto& uuid = member(row, "device");
  return {uuid.is_string() ? device_name(uuid.get<std::string>(), look) : "", Paint::none};
}

constexpr Column process_columns[] = {
    {"pid", "PID", true, true, +[](const json& r, const Look&) { return number_cell(r, "pid"); }},
    {"user", "USER", true, false, +[](const json& r, const Look&) { return text_cell(r, "user"); }, Narrow::shorten},
    {"uid", "UID", false, true, +[](const json& r, const Look&) { return number_cell(r, "uid"); }},
    {"gpu", "GPU", true, false, gpu_cell},
    {"uuid", "UUID", false, false, +[](const json& r, const Look&) { return text_cell(r, "device"); }},
    {"used", "USED", true, true, +[](const json& r, const Look&) { return size_cell(r, "used_bytes"); }},
    {"busy", "BUSY", false, true, +[](const json& r, const Look&) { return percent_cell(r); }},
    {"lease", "LEASE", true, false, lease_cell},
    {"link", "LINK", true, false, +[](const json& r, const Look&) { return text_cell(r, "link"); }},
    {"container", "CONTAINER", true, false, +[](const json& r, const Look&) { return text_cell(r, "container"); },
     Narrow::needless, "-"},
    {"start", "START", false, true, +[](const json& r, const Look&) { return number_cell(r, "start_ticks"); }},
    {"command", "COMMAND", true, false, +[](const json& r, const Look&) { return text_cell(r, "command"); },
     Narrow::below},
};

}  // namespace

std::string condition_text(const json& device) {
  std::string text;
  const auto add = [&](const std::string& part) {
    if (!part.empty()) text += (text.empty() ? "" : " · ") + part;
  };
  if (const auto busy = number_at(device, "busy_percent")) add(fmt::format("{} % busy", *busy));
  add(figure_text(device, "temperature_celsius", " °C"));
  add(power_text(device));
  add(figure_text(device, "sm_clock_mhz", " MHz"));
  if (number_at(member(device, "condition"), "ecc_uncorrected").value_or(0) > 0)
    add(figure_text(device, "ecc_uncorrected", " double-bit errors"));
  return text;
}

std::span<const Column> columns_of(std::string_view verb) {
  if (verb == "ps") return ps_columns();
  if (verb == "queue") return queue_columns();
  if (verb == "gpus") return device_columns;
  if (verb == "proclist") return process_columns;
  if (verb == "stack ls") return stack_columns_of();
  if (verb == "session ls") return session_columns_of();
  if (verb == "programs") return program_columns_of();
  if (verb == "tenant ls") return tenant_columns_of();
  if (verb == "report") return report_columns_of();
  if (verb == "verdicts") return verdict_columns_of();
  return {};
}

Result<std::string> render_devices(const json& devices, const Common& common, const Look& look) {
  return render_table("gpus", device_columns, device_tree(devices), common, look);
}

Result<std::string> render_processes(const json& processes, const Common& common, const Look& look) {
  return render_table("proclist", process_columns, list_at(processes, "processes"), common, look);
}

}  // namespace sublet::cli
