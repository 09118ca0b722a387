// SPDX-License-Identifier: Apache-2.0
#include "gpu/snapshot.h"

#include "gpu/json_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <set>

namespace sublet::gpu {
namespace {

constexpr int format_version = 1;
constexpr std::size_t max_uuid = 80;
constexpr int max_index = 1023;
constexpr int max_slice = 63;

Json to_json(const GpuProcess& process) {
  Json json{{"pid", process.process.pid}, {"start_ticks", process.process.start_ticks}};
  json["used_bytes"] = process.used ? Json(process.used->count) : Json();
  if (process.hidden) json["hidden"] = true;
  if (process.graphics_only) json["graphics_only"] = true;
  if (process.busy_percent) json["busy_percent"] = *process.busy_percent;
  if (process.computing_percent) json["computing_percent"] = *process.computing_percent;
  return json;
}

Json to_json(const GpuDevice& device) {
  Json processes = Json::array();
  for (const GpuProcess& process : device.processes) processes.push_back(to_json(process));
  Json json{{"uuid", fit(device.uuid)},
            {"name", fit(device.name)},
            {"index", device.index},
            {"pci_bus_id", fit(device.pci_bus_id)},
            {"simulated", device.simulated},
            {"mig", device.mig},
            {"link_bytes_per_second", device.link_per_second.count},
            {"total_bytes", device.total.count},
            {"driver_reserved_bytes", device.driver_reserved.count},
            {"used_bytes", device.used.count},
            {"processes", std::move(processes)},
            {"problem", fit(device.problem)}};
  if (device.lost) json["lost"] = true;
  if (device.facts != Facts{}) json["condition"] = to_json(device.facts);
  if (device.unified) json["unified"] = true;
  if (device.links != Links{}) json["links"] = device.links.group;
  if (device.slice >= 0) {
    json["parent"] = fit(device.parent);
    json["slice"] = device.slice;
  }
  if (device.busy_percent) json["busy_percent"] = *device.busy_percent;
  return json;
}

std::optional<int> read_percent(const Json& json, Reader& reader, const char* name) {
  if (!reader.ok() || !json.contains(name)) return std::nullopt;
  return static_cast<int>(reader.integer(name, 0, 100));
}

std::string read_process(const Json& json, GpuProcess& process) {
  Reader reader(json, "a process");
  process.process.pid = static_cast<std::int32_t>(reader.integer("pid", 1, INT32_MAX));
  process.process.start_ticks = reader.natural("start_ticks");
  if (const Json* used = reader.find("used_bytes"); used != nullptr && !used->is_null()) {
    process.used = reader.bytes("used_bytes");
  }
  if (reader.ok() && json.contains("hidden")) process.hidden = reader.boolean("hidden");
  if (reader.ok() && json.contains("graphics_only")) process.graphics_only = reader.boolean("graphics_only");
  process.busy_percent = read_percent(json, reader, "busy_percent");
  process.computing_percent = read_percent(json, reader, "computing_percent");
  return reader.problem();
}

// A group is the index of a device.
void read_groups(const Json& json, Reader& reader, Links& links) {
  if (!reader.ok() || !json.contains("links")) return;
  const Json& groups = json["links"];
  const auto is_group = [](const Json& its) {
    return its.is_number_integer() && its.get<std::int64_t>() >= -1 && its.get<std::int64_t>() <= max_index;
  };
  if (!groups.is_array() || groups.size() != links.group.size() || !std::ranges::all_of(groups, is_group))
    return reader.fail("has no groups of devices for its links");
  for (std::size_t i = 0; i < links.group.size(); ++i) links.group[i] = groups[i].get<int>();
}

bool is_uuid(const std::string& text) {
  return std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isalnum(c) != 0 || c == '-'; });
}

bool is_bus_id(const std::string& text) {
  return std::all_of(text.begin(), text.end(),
                     [](unsigned char c) { return std::isxdigit(c) != 0 || c == ':' || c == '.'; });
}

std::string read_device(const Json& json, GpuDevice& device) {
  Reader reader(json, "a device");
  device.uuid = reader.text("uuid", max_uuid);
  device.name = reader.text("name");
  device.index = static_cast<int>(reader.integer("index", 0, max_index));
  device.pci_bus_id = reader.text("pci_bus_id", 32);
  device.simulated = reader.boolean("simulated");
  device.mig = reader.boolean("mig");
  device.link_per_second = reader.bytes("link_bytes_per_second");
  device.total = reader.bytes("total_bytes");
  device.driver_reserved = reader.bytes("driver_reserved_bytes");
  device.used = reader.bytes("used_bytes");
  device.problem = reader.text("problem");
  if (reader.ok() && json.contains("lost")) device.lost = reader.boolean("lost");
  device.busy_percent = read_percent(json, reader, "busy_percent");
  if (reader.ok() && json.contains("unified")) device.unified = reader.boolean("unified");
  read_groups(json, reader, device.links);
  if (reader.ok() && json.contains("slice")) {
    device.slice = static_cast<int>(reader.integer("slice", 0, max_slice));
    device.parent = reader.text("parent", max_uuid);
    if (!is_uuid(device.parent) || device.parent.empty()) reader.fail("is a slice of a card without a UUID");
    if (device.mig) reader.fail("is a slice in MIG mode");
  }
  if (device.lost && device.problem.empty()) reader.fail("is lost without a problem");
  if (!is_uuid(device.uuid) || (device.uuid.empty() && device.problem.empty())) reader.fail("has no UUID for its uuid");
  if (!is_bus_id(device.pci_bus_id)) reader.fail("has no PCI address for its pci_bus_id");
  if (reader.ok() && json.contains("condition"))
    if (const std::string problem = read_facts(json["condition"], device.facts); !problem.empty()) return problem;
  const Json* processes = reader.array("processes", max_processes);
  if (processes == nullptr) return reader.problem();
  for (const Json& entry : *processes) {
    GpuProcess process;
    if (std::string problem = read_process(entry, process); !problem.empty()) return problem;
    device.processes.push_back(process);
  }
  return reader.problem();
}

Error malformed(std::string_view why) { return bad_request(fmt::format("not a snapshot: {}", why)); }

}  // namespace

bool says_simulated(std::string_view device_name) {
  std::string lower(device_name);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower.find("simulated") != std::string::npos;
}

std::string encode_snapshot(std::uint64_t id, const GpuSnapshot& snapshot) {
  Json devices = Json::array();
  for (const GpuDevice& device : snapshot.devices) devices.push_back(to_json(device));
  const Json json{{"v", format_version},
                  {"id", id},
                  {"began_ns", snapshot.began_ns},
                  {"ended_ns", snapshot.ended_ns},
                  {"driver_version", fit(snapshot.driver_version)},
                  {"library", fit(snapshot.library)},
                  {"devices", std::move(devices)},
                  {"problem", fit(snapshot.problem)}};
  return to_line(json);
}

Result<SnapshotReply> decode_snapshot(std::string_view line) {
  if (line.size() > max_line) return malformed(fmt::format("{} bytes are more than {}", line.size(), max_line));
  const Json json = parse_line(line);
  if (json.is_discarded()) return malformed("no JSON, or nested too deep");
  Reader reader(json, "it");
  if (reader.ok() && reader.integer("v", 0, INT32_MAX) != format_version) {
    reader.fail(fmt::format("is not of version {}", format_version));
  }
  SnapshotReply reply;
  reply.id = reader.natural("id");
  GpuSnapshot& snapshot = reply.snapshot;
  snapshot.began_ns = reader.integer("began_ns", 0, INT64_MAX);
  snapshot.ended_ns = reader.integer("ended_ns", 0, INT64_MAX);
  snapshot.driver_version = reader.text("driver_version");
  snapshot.library = reader.text("library");
  snapshot.problem = reader.text("problem");
  if (snapshot.ended_ns < snapshot.began_ns) reader.fail("ended before it began");
  const Json* devices = reader.array("devices", max_devices);
  if (devices == nullptr) return malformed(reader.problem());
  std::set<std::string> uuids;
  std::set<std::pair<int, int>> indexes;
  for (const Json& entry : *devices) {
    GpuDevice device;
    if (const std::string problem = read_device(entry, device); !problem.empty()) return malformed(problem);
    if (!indexes.emplace(device.index, device.slice).second)
      return malformed(fmt::format("index {} is there twice", device.index));
    if (!device.uuid.empty() && !uuids.insert(device.uuid).second) {
      return malformed(fmt::format("device {} is there twice", device.uuid));
    }
    snapshot.devices.push_back(std::move(device));
  }
  return reply;
}

}  // namespace sublet::gpu
