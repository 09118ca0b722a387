// SPDX-License-Identifier: Apache-2.0
#include "simgpu/tools/ctl_cards.h"

#include "base/text.h"
#include "base/units.h"

#include <fmt/format.h>

#include <sys/stat.h>

#include <algorithm>

namespace simgpu::tools {
namespace {

using nlohmann::json;
using sublet::Result;

std::string size(std::uint64_t bytes) { return sublet::format_size({static_cast<std::int64_t>(bytes)}); }

bool same_device(const DeviceSpec& a, const DeviceSpec& b) {
  return a.total == b.total && a.reserve == b.reserve && a.name == b.name && a.unified == b.unified &&
         a.linked == b.linked;
}

bool same_cards(const Table& table, const Spec& wanted) {
  const Spec present = spec_of(table);
  const bool devices = std::equal(present.devices.begin(), present.devices.end(), wanted.devices.begin(),
                                  wanted.devices.end(), same_device);
  return devices && std::all_of(wanted.settings.begin(), wanted.settings.end(),
                                [&](const auto& setting) { return table.get(setting.first) == setting.second; });
}

const SettingInfo& info_of(Setting setting) {
  const auto& all = settings();
  return *std::find_if(all.begin(), all.end(), [&](const auto& info) { return info.setting == setting; });
}

// A default that depends on the card is stored as all ones; the output shows its value for the card.
json setting_value(const Table& table, const SettingInfo& info) {
  if (info.setting == Setting::context_bytes) return table.context_bytes(0);
  return table.get(info.setting);
}

json fault_json(const Fault& fault) {
  return {{"name", faults()[static_cast<unsigned>(fault.kind)].name},
          {"device", fault.device < 0 ? json() : json(fault.device)},
          {"pid", fault.pid == 0 ? json() : json(fault.pid)},
          {"nth", fault.nth == 0 ? json() : json(fault.nth)},
          {"duration_ms", fault.duration_ns == 0 ? json() : json(fault.duration_ns / 1'000'000)},
          {"argument", fault.argument},
          {"after", fault.after < 0 ? json() : json(fault.after)},
          {"hits", fault.hits}};
}

std::string_view state_name(ControlState state) {
  switch (state) {
    case ControlState::running: return "running";
    case ControlState::locked: return "locked";
    case ControlState::checkpointed: return "checkpointed";
    case ControlState::failed: return "failed";
  }
  return "unknown";
}

json process_json(const ProcessUse& process, const std::vector<unsigned>& places) {
  json devices = json::array();
  for (const unsigned d : places) {
    const auto& use = process.device[d];
    if (use.bytes == 0 && use.contexts == 0) continue;
    devices.push_back(
        {{"device", d}, {"bytes", use.bytes}, {"contexts", use.contexts}, {"busy_ms", use.busy_ns / 1'000'000}});
  }
  return {{"pid", process.pid},
          {"start_ticks", process.start_ticks},
          {"state", state_name(process.state)},
          {"devices", devices}};
}

template <typename Counts>
json counts_json(const Counts& counts) {
  json object = json::object();
  for (const auto& count : counts) object[count.name] = count.count;
  return object;
}

}  // namespace

std::string cards_directory(const std::string& dir) { return dir + "/simgpu"; }

Result<std::unique_ptr<Table>> open_cards(const std::string& cards_dir) {
  std::string error;
  auto table = Table::open(cards_dir, &error);
  if (!table)
    return sublet::not_found("no simulated cards: " + error, "simgpu-ctl --dir DIR create 1x24GiB makes some");
  return table;
}

Result<std::unique_ptr<Table>> create_cards(const std::string& cards_dir, std::string_view text) {
  std::string error;
  const auto spec = parse_spec(text, &error);
  if (!spec) return sublet::bad_request(fmt::format("specification '{}': {}", sublet::printable(text), error));
  if (auto made = Table::create(cards_dir, *spec, &error)) return made;
  // Another process may have made the cards, perhaps at this moment: only a mismatch is an error.
  std::string open_error;
  auto present = Table::open(cards_dir, &open_error);
  if (!present) return sublet::unavailable(fmt::format("cannot make cards: {}", error));
  if (same_cards(*present, *spec)) return present;
  return sublet::Error{
      sublet::Code::InUse,
      fmt::format("{} has other cards: {} there, {} wanted", cards_dir, describe(spec_of(*present)), describe(*spec)),
      "use another directory, or remove this one when nothing runs on its cards"};
}

Spec spec_of(const Table& table) {
  Spec spec;
  for (unsigned d = 0; d < table.device_count(); ++d) {
    const auto& device = table.device(d);
    const bool unified = table.is_unified(d), mig = table.in_mig_mode(d);
    DeviceSpec one{device.total, device.reserve, device.name.data(), unified, mig, {}, {}, {}};
    for (std::size_t link = 0; link < link_keys.size(); ++link) one.linked[link] = device.linked[link];
    for (const unsigned slice : table.slices_of(d))
      one.slices.push_back({static_cast<unsigned>(table.device(slice).parts.load()), table.device(slice).total});
    spec.devices.push_back(std::move(one));
  }
  return spec;
}

std::string describe(const Spec& spec) {
  std::string text;
  for (std::size_t i = 0; i < spec.devices.size();) {
    const DeviceSpec& device = spec.devices[i];
    std::size_t end = i;
    while (end < spec.devices.size() && same_device(spec.devices[end], device)) ++end;
    if (!text.empty()) text += '+';
    text += fmt::format("{}x{},{},reserve={}", end - i, format_bytes(device.total), device.name,
                        format_bytes(device.reserve));
    if (device.unified) text += ",unified";
    for (std::size_t link = 0; link < link_keys.size(); ++link)
      if (device.linked[link] > 0) text += fmt::format(",{}={}", link_keys[link], device.linked[link] - 1);
    if (device.mig) text += ",mig=";
    for (const Profile& slice : device.slices)
      text += fmt::format("{}{}", text.ends_with('=') ? "" : "+", format_profile(slice));
    i = end;
  }
  for (const auto& [setting, value] : spec.settings) text += fmt::format(",{}={}", info_of(setting).key, value);
  return text;
}

json cards_json(Table& table) {
  json devices = json::array(), processes = json::array(), values = json::object(), active = json::array();
  const std::vector<unsigned> places = table.places();
  for (const unsigned d : places) {
    const DeviceUse use = table.use(d);
    const auto& device = table.device(d);
    const auto parent = table.parent_of(d);
    devices.push_back({{"index", d},
                       {"parent", parent ? json(*parent) : json()},
                       {"slice", parent ? json(device.slice.load()) : json()},
                       {"mig", table.in_mig_mode(d)},
                       {"unified", table.is_unified(d)},
                       {"uuid", table.uuid_text(d)},
                       {"name", device.name.data()},
                       {"pci_bus_id", table.pci_bus_id(d)},
                       {"total_bytes", use.total},
                       {"driver_reserved_bytes", use.reserve},
                       {"used_bytes", use.used()},
                       {"free_bytes", use.available()},
                       {"busy_ms", device.busy_ns.load() / 1'000'000},
                       {"ecc_errors", device.ecc_errors.load()},
                       {"to_device_bytes", device.link_bytes[0].load()},
                       {"to_host_bytes", device.link_bytes[1].load()}});
  }
  for (const auto& process : table.processes()) processes.push_back(process_json(process, places));
  for (const auto& info : settings()) values[std::string(info.key)] = setting_value(table, info);
  for (const auto& fault : table.active_faults()) active.push_back(fault_json(fault));
  return {{"dir", table.dir()},
          {"devices", devices},
          {"processes", processes},
          {"violations", table.violations()},
          {"violations_by_kind", counts_json(table.violations_by_kind())},
          {"calls", counts_json(table.calls())},
          {"settings", values},
          {"faults", active}};
}

std::string cards_text(Table& table) {
  std::string text;
  for (const unsigned d : table.places()) {
    const DeviceUse use = table.use(d);
    text +=
        fmt::format("{}  {}  {}  {} used, {} free of {} ({} kept by the driver)\n", d, table.device(d).name.data(),
                    table.uuid_text(d), size(use.used()), size(use.available()), size(use.total), size(use.reserve));
  }
  for (const auto& process : table.processes())
    for (const unsigned d : table.places())
      if (const auto& use = process.device[d]; use.bytes != 0 || use.contexts != 0)
        text +=
            fmt::format("process {} holds {} on {} in {} context{}{}\n", process.pid, size(use.bytes), d, use.contexts,
                        use.contexts == 1 ? "" : "s",
                        process.state == ControlState::running ? "" : fmt::format(", {}", state_name(process.state)));
  for (const auto& fault : table.active_faults())
    text += fmt::format("fault {}, met {} times\n", faults()[static_cast<unsigned>(fault.kind)].name, fault.hits);
  for (const auto& kind : table.violations_by_kind())
    text += fmt::format("violation: {} ({} times)\n", kind.name, kind.count);
  std::uint64_t calls = 0;
  for (const auto& call : table.calls()) calls += call.count;
  return text + fmt::format("{} calls, {} violations\n", calls, table.violations());
}

void clear_fault(Table& table, FaultKind kind) {
  for (auto& slot : table.raw().fault) {
    std::uint64_t state = slot.state.load();
    if (state >= 2 && slot.kind.load() == static_cast<std::uint64_t>(kind))
      slot.state.compare_exchange_strong(state, 0);
  }
}

}  // namespace simgpu::tools
