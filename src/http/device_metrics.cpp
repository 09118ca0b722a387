// SPDX-License-Identifier: Apache-2.0
#include "http/metrics_page.h"

#include <unistd.h>

#include <array>
#include <set>
#include <vector>

namespace sublet::http {
namespace {

// Free memory may be negative if more is used than was leased; it is reported as zero.
void memory_metrics(Page& page, const engine::Engine& engine) {
  const core::State& state = engine.state();
  page.metric("sublet_gpu_memory_bytes", "gauge",
              "Memory of a card: leased; unleased (unleased processes); unaccounted (used, but by no listed process); "
              "driver (its own reserve); free (may still be promised)");
  for (const auto& [uuid, device] : state.devices.by_uuid) {
    const auto row = [&, &uuid = uuid](const char* what, Bytes bytes) {
      page.sample(fmt::format("gpu=\"{}\",state=\"{}\"", escaped(uuid), what), count(std::max(bytes, Bytes{})));
    };
    row("leased", device.charged);
    row("unleased", device.unleased);
    row("unaccounted", device.other - device.unleased);
    row("driver", device.reading.driver_reserved);
    row("free", core::free_on(state, device, engine.rules(), engine.now()));
  }
  page.metric("sublet_gpu_memory_total_bytes", "gauge", "Memory of a card as its driver reports it");
  for (const auto& [uuid, device] : state.devices.by_uuid) {
    page.sample(fmt::format("gpu=\"{}\",name=\"{}\"", escaped(uuid), escaped(device.reading.name)),
                count(device.reading.total));
  }
  page.metric("sublet_gpu_memory_used_bytes", "gauge", "Memory of a card in use, by the last reading");
  for (const auto& [uuid, device] : state.devices.by_uuid) {
    if (device.read_at) page.sample(fmt::format("gpu=\"{}\"", escaped(uuid)), count(device.reading.used));
  }
  page.metric("sublet_gpu_utilization_ratio", "gauge",
              "Part of the time in which the card computed, 0 to 1, by the last reading; no sample: not known");
  for (const auto& [uuid, device] : state.devices.by_uuid) {
    if (device.reading.busy_percent)
      page.sample(fmt::format("gpu=\"{}\"", escaped(uuid)), *device.reading.busy_percent / 100.0);
  }
  page.metric("sublet_gpu_known", "gauge",
              "1 while the last reading of the card is good and recent; at 0 no lease is granted on the card");
  for (const auto& [uuid, device] : state.devices.by_uuid) {
    page.sample(fmt::format("gpu=\"{}\"", escaped(uuid)),
                core::is_known(state, device, engine.rules(), engine.now()) ? 1 : 0);
  }
  page.metric("sublet_gpu_reading_age_seconds", "gauge", "Age of the last good reading of the card");
  for (const auto& [uuid, device] : state.devices.by_uuid) {
    if (!device.read_at) continue;
    page.sample(fmt::format("gpu=\"{}\"", escaped(uuid)),
                std::chrono::duration<double>(engine.now() - *device.read_at).count());
  }
}

using Figure = std::optional<std::int64_t> gpu::Facts::*;

// A field of the vendor's exporter that means the same as a figure of ours, in the exporter's unit.
struct Field {
  const char* name;
  const char* type;
  const char* help;
  Figure figure;
  double unit;  // our units in one of the exporter's
};
constexpr double milli = 1000;
constexpr std::array<Field, 16> fields{{
    {"DCGM_FI_DEV_SM_CLOCK", "gauge", "Clock of the multiprocessors, in MHz", &gpu::Facts::sm_mhz, 1},
    {"DCGM_FI_DEV_MEM_CLOCK", "gauge", "Clock of the memory, in MHz", &gpu::Facts::memory_mhz, 1},
    {"DCGM_FI_DEV_GPU_TEMP", "gauge", "Temperature, in degrees Celsius", &gpu::Facts::celsius, 1},
    {"DCGM_FI_DEV_POWER_USAGE", "gauge", "Power, in W", &gpu::Facts::milliwatts, milli},
    {"DCGM_FI_DEV_ENFORCED_POWER_LIMIT", "gauge", "Power limit that holds, in W", &gpu::Facts::limit_milliwatts, milli},
    {"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "counter", "Energy since the driver was loaded, in mJ",
     &gpu::Facts::millijoules, 1},
    {"DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "counter", "Repeated transfers on the PCIe link", &gpu::Facts::link_replays, 1},
    {"DCGM_FI_DEV_PCIE_LINK_GEN", "gauge", "Generation of the PCIe link in use", &gpu::Facts::link_generation, 1},
    {"DCGM_FI_DEV_PCIE_LINK_WIDTH", "gauge", "Lanes of the PCIe link in use", &gpu::Facts::link_lanes, 1},
    {"DCGM_FI_DEV_PCIE_MAX_LINK_GEN", "gauge", "Highest generation of the PCIe link", &gpu::Facts::max_link_generation,
     1},
    {"DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH", "gauge", "Most lanes of the PCIe link", &gpu::Facts::max_link_lanes, 1},
    {"DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", "counter", "Corrected errors of the memory since the driver was loaded",
     &gpu::Facts::corrected_errors, 1},
    {"DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "counter", "Double-bit errors of the memory since the driver was loaded",
     &gpu::Facts::uncorrected_errors, 1},
    {"DCGM_FI_DEV_ROW_REMAP_PENDING", "gauge", "1: rows are remapped at the next reset", &gpu::Facts::remapping_pending,
     1},
    {"DCGM_FI_DEV_ROW_REMAP_FAILURE", "gauge", "1: a row could not be remapped", &gpu::Facts::remapping_failed, 1},
    {"DCGM_FI_DEV_XID_ERRORS", "gauge", "Number of the last critical event (Xid)", &gpu::Facts::last_xid, 1},
}};

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

// Labels as the vendor's exporter has them, so that its boards work here.
std::string exporter_labels(const core::DeviceReading& reading, const std::string& host) {
  return fmt::format(R"(gpu="{0}",UUID="{1}",pci_bus_id="{2}",device="nvidia{0}",modelName="{3}",Hostname="{4}")",
                     reading.index, escaped(reading.uuid), escaped(reading.pci_bus_id), escaped(reading.name),
                     escaped(host));
}

// The cards, whole or in MIG mode: the driver tells their condition once, and not for each slice.
std::vector<core::DeviceReading> cards(const engine::Engine& engine) {
  std::vector<core::DeviceReading> all;
  std::set<std::string> divided;
  for (const gpu::GpuDevice& card : engine.observer().divided()) {
    divided.insert(card.uuid);
    core::DeviceReading& reading = all.emplace_back();
    reading.uuid = card.uuid;
    reading.name = card.name;
    reading.index = card.index;
    reading.pci_bus_id = card.pci_bus_id;
  }
  for (const auto& [uuid, device] : engine.state().devices.by_uuid)
    if (device.reading.slice < 0 && !divided.contains(uuid)) all.push_back(device.reading);
  return all;
}

void exporter_metrics(Page& page, const engine::Engine& engine) {
  const std::string host = host_name();
  const auto each = [&](const char* name, const char* type, const char* help, const auto& figure) {
    page.metric(name, type, help);
    for (const auto& [uuid, device] : engine.state().devices.by_uuid)
      if (const std::optional<double> value = figure(device))
        page.sample(exporter_labels(device.reading, host), *value);
  };
  const std::vector<core::DeviceReading> all = cards(engine);
  for (const Field& field : fields) {
    page.metric(field.name, field.type, field.help);
    for (const core::DeviceReading& card : all) {
      const gpu::Facts* facts = engine.observer().condition(card.uuid);
      const auto figure = facts == nullptr ? std::nullopt : facts->*field.figure;
      if (figure) page.sample(exporter_labels(card, host), static_cast<double>(*figure) / field.unit);
    }
  }
  each("DCGM_FI_DEV_GPU_UTIL", "gauge", "Utilisation, in percent", [](const core::Device& device) {
    const auto& busy = device.reading.busy_percent;
    return busy ? std::optional<double>(*busy) : std::nullopt;
  });
  const auto memory = [&](const char* name, const char* help, Bytes (*of)(const core::DeviceReading&)) {
    each(name, "gauge", help, [&](const core::Device& device) -> std::optional<double> {
      if (!core::is_known(engine.state(), device, engine.rules(), engine.now())) return std::nullopt;
      return count(of(device.reading)) / count(MiB);
    });
  };
  using core::DeviceReading;
  memory("DCGM_FI_DEV_FB_TOTAL", "Memory of the card, in MiB", [](const DeviceReading& r) { return r.total; });
  memory("DCGM_FI_DEV_FB_RESERVED", "Memory that the driver keeps, in MiB",
         [](const DeviceReading& r) { return r.driver_reserved; });
  memory("DCGM_FI_DEV_FB_USED", "Memory in use, in MiB", [](const DeviceReading& r) { return r.used; });
  memory("DCGM_FI_DEV_FB_FREE", "Memory that no program uses, in MiB",
         [](const DeviceReading& r) { return std::max(r.total - r.driver_reserved - r.used, Bytes{}); });
}

}  // namespace

void device_metrics(Page& page, const engine::Engine& engine) {
  memory_metrics(page, engine);
  exporter_metrics(page, engine);
}

}  // namespace sublet::http
