// SPDX-License-Identifier: Apache-2.0
// Number and identity of the cards.
#include "library.h"

#include <strings.h>
#include <unistd.h>

#include <cstdio>
#include <functional>

namespace {

using namespace simgpu;
using namespace simgpu::nvml;

// Low half: the vendor's id. High half: no real card has this id.
constexpr Count pci_device_id = 0xffff10de;
constexpr Count pci_subsystem_id = 0xffff10de;

enum Topology : int { same_gpu = 0, same_switch = 10, same_node = 40, same_system = 50 };
constexpr int p2p_not_supported = 5;

Return count(const char* name, Count* out) {
  return ask(name, [&](Table& table) { return give(out, table.device_count()); });
}

Return handle_where(const char* name, Handle* out, const std::function<bool(Table&, unsigned)>& wanted) {
  return ask(name, [&](Table& table) -> Return {
    if (out == nullptr) return invalid_argument;
    for (const unsigned i : table.places()) {
      if (!wanted(table, i)) continue;
      if (table.meet(FaultKind::device_lost, static_cast<int>(i))) return gpu_is_lost;
      *out = Library::instance().handle_of(i);
      return success;
    }
    return not_found;
  });
}

Return handle_by_index(const char* name, unsigned index, Handle* out) {
  const Return found = handle_where(name, out, [&](Table&, unsigned i) { return i < max_devices && i == index; });
  return found == not_found ? invalid_argument : found;
}

std::string serial(const Card& card) {
  const auto& uuid = card.device().uuid;
  unsigned long long number = 0;
  for (unsigned i = 0; i < 5; ++i) number = number << 8 | uuid.at(i);
  char text[16];
  std::snprintf(text, sizeof text, "%013llu", number);
  return text;
}

template <std::size_t size>
void bus_id_text(char (&text)[size], const layout::DeviceRecord& device, const char* format) {
  std::snprintf(text, size, format, device.pci_domain, device.pci_bus, device.pci_device);
}

// "0000:17:00.0", "00000000:17:00.0" and, in domain 0, "17:00.0" name the same place.
bool names_place(const char* text, const layout::DeviceRecord& device) {
  char place[32];
  for (const char* format : {"%04X:%02X:%02X.0", "%08X:%02X:%02X.0"}) {
    bus_id_text(place, device, format);
    if (strcasecmp(text, place) == 0) return true;
  }
  const char* without_domain = std::strchr(place, ':') + 1;
  return device.pci_domain == 0 && strcasecmp(text, without_domain) == 0;
}

Return handle_by_bus_id(const char* name, const char* bus_id, Handle* out) {
  if (bus_id == nullptr) return ask(name, [](Table&) { return invalid_argument; });
  return handle_where(
      name, out, [&](Table& table, unsigned i) { return i < max_devices && names_place(bus_id, table.device(i)); });
}

template <typename Info>
void fill_place(Info& info, const layout::DeviceRecord& device) {
  info.domain = device.pci_domain;
  info.bus = device.pci_bus;
  info.device = device.pci_device;
  info.device_id = pci_device_id;
  info.subsystem_id = pci_subsystem_id;
}

Return pci_info_v2(const char* name, Handle handle, PciInfoV2* info) {
  return ask(name, handle, [&](const Card& card) -> Return {
    if (info == nullptr) return invalid_argument;
    *info = {};
    bus_id_text(info->bus_id, card.device(), "%04X:%02X:%02X.0");
    fill_place(*info, card.device());
    return success;
  });
}

Count architecture(const Card& card) {
  switch (const auto capability = card.table.capability(card.index); capability / 10) {
    case 7: return capability >= 75 ? 6 : 5;
    case 8: return capability >= 89 ? 8 : 7;
    case 9: return 9;
    default: return capability >= 100 ? 10 : 0xffffffff;
  }
}

Return cpu_affinity(const char* name, Handle handle, unsigned words, unsigned long* set) {
  return ask(name, handle, [&](Card) -> Return {
    if (set == nullptr || words == 0) return invalid_argument;
    const auto cpus = static_cast<unsigned>(sysconf(_SC_NPROCESSORS_CONF));
    for (unsigned i = 0; i < words; ++i) set[i] = 0;
    for (unsigned cpu = 0; cpu < cpus && cpu / 64 < words; ++cpu) set[cpu / 64] |= 1UL << (cpu % 64);
    return success;
  });
}

// Cards are of one NUMA node unless both have a number of another one.
Topology ancestor(const Card& card, unsigned other) {
  if (other == card.index) return same_gpu;
  if (card.is_linked(LinkWay::pcie_switch, other)) return same_switch;
  const auto node = static_cast<std::size_t>(LinkWay::numa);
  const bool told = card.device().linked[node] > 0 && card.table.device(other).linked[node] > 0;
  return !told || card.is_linked(LinkWay::numa, other) ? same_node : same_system;
}

Return between(const char* name, Handle one, Handle other, int* out, int same, int different) {
  return ask(name, one, [&](const Card& card) -> Return {
    const int index = Library::instance().index_of(other, card.table);
    if (index < 0) return invalid_argument;
    return give(out, static_cast<unsigned>(index) == card.index ? same : different);
  });
}

}  // namespace

SIMGPU_NVML nvmlDeviceGetCount(Count* out) { return count(__func__, out); }
SIMGPU_NVML nvmlDeviceGetCount_v2(Count* out) { return count(__func__, out); }
SIMGPU_NVML nvmlDeviceGetHandleByIndex(unsigned index, Handle* out) { return handle_by_index(__func__, index, out); }
SIMGPU_NVML nvmlDeviceGetHandleByIndex_v2(unsigned index, Handle* out) { return handle_by_index(__func__, index, out); }
SIMGPU_NVML nvmlDeviceGetHandleByUUID(const char* uuid, Handle* out) {
  if (uuid == nullptr) return ask(__func__, [](Table&) { return invalid_argument; });
  return handle_where(__func__, out,
                      [&](Table& table, unsigned i) { return strcasecmp(uuid, table.uuid_text(i).c_str()) == 0; });
}
SIMGPU_NVML nvmlDeviceGetHandleBySerial(const char* number, Handle* out) {
  if (number == nullptr) return ask(__func__, [](Table&) { return invalid_argument; });
  return handle_where(__func__, out, [&](Table& table, unsigned i) {
    return i < max_devices && serial({table, i}) == number;
  });
}
SIMGPU_NVML nvmlDeviceGetHandleByPciBusId(const char* id, Handle* out) { return handle_by_bus_id(__func__, id, out); }
SIMGPU_NVML nvmlDeviceGetHandleByPciBusId_v2(const char* id, Handle* out) {
  return handle_by_bus_id(__func__, id, out);
}

SIMGPU_NVML nvmlDeviceGetName(Handle handle, char* out, unsigned length) {
  return ask(__func__, handle, [&](const Card& card) { return give_text(out, length, card.device().name.data()); });
}
SIMGPU_NVML nvmlDeviceGetUUID(Handle handle, char* out, unsigned length) {
  return ask(__func__, handle,
             [&](const Card& card) { return give_text(out, length, card.table.uuid_text(card.index)); });
}
SIMGPU_NVML nvmlDeviceGetSerial(Handle handle, char* out, unsigned length) {
  return ask(__func__, handle, [&](const Card& card) { return give_text(out, length, serial(card)); });
}
SIMGPU_NVML nvmlDeviceGetBoardPartNumber(Handle handle, char* out, unsigned length) {
  return ask(__func__, handle, [&](const Card&) { return give_text(out, length, "simulated"); });
}
SIMGPU_NVML nvmlDeviceGetVbiosVersion(Handle handle, char* out, unsigned length) {
  return ask(__func__, handle, [&](const Card&) { return give_text(out, length, "00.00.00.00.00"); });
}
SIMGPU_NVML nvmlDeviceGetIndex(Handle handle, Count* out) {
  return ask(__func__, handle,
             [&](const Card& card) { return give(out, card.is_slice() ? card.device().slice.load() : card.index); });
}
SIMGPU_NVML nvmlDeviceGetMinorNumber(Handle handle, Count* out) {
  return ask(__func__, handle, [&](const Card& card) { return give(out, card.index); });
}
SIMGPU_NVML nvmlDeviceGetBoardId(Handle handle, Count* out) {
  return ask(__func__, handle, [&](const Card& card) { return give(out, card.device().pci_bus << 8); });
}
SIMGPU_NVML nvmlDeviceGetBrand(Handle handle, Count* out) { return constant(__func__, handle, out, 0); }
SIMGPU_NVML nvmlDeviceGetMultiGpuBoard(Handle handle, Count* out) { return constant(__func__, handle, out, 0); }
SIMGPU_NVML nvmlDeviceGetBusType(Handle handle, Count* out) { return constant(__func__, handle, out, 2); }
SIMGPU_NVML nvmlDeviceGetVirtualizationMode(Handle handle, Count* out) { return constant(__func__, handle, out, 0); }
SIMGPU_NVML nvmlDeviceGetArchitecture(Handle handle, Count* out) {
  return ask(__func__, handle, [&](const Card& card) { return give(out, architecture(card)); });
}
SIMGPU_NVML nvmlDeviceGetNumGpuCores(Handle handle, Count* out) {
  return ask(__func__, handle,
             [&](const Card& card) { return give(out, card.table.get(Setting::multiprocessors) * 128); });
}
SIMGPU_NVML nvmlDeviceGetCudaComputeCapability(Handle handle, int* major, int* minor) {
  return ask(__func__, handle, [&](const Card& card) -> Return {
    if (!figure_of(card.device(), Figure::cc, 0)) return not_supported;
    const auto capability = static_cast<int>(card.table.capability(card.index));
    if (major == nullptr) return invalid_argument;
    *major = capability / 10;
    return give(minor, capability % 10);
  });
}

SIMGPU_NVML nvmlDeviceGetPciInfo(Handle handle, PciInfoV2* info) { return pci_info_v2(__func__, handle, info); }
SIMGPU_NVML nvmlDeviceGetPciInfo_v2(Handle handle, PciInfoV2* info) { return pci_info_v2(__func__, handle, info); }
SIMGPU_NVML nvmlDeviceGetPciInfo_v3(Handle handle, PciInfo* info) {
  return ask(__func__, handle, [&](const Card& card) -> Return {
    if (info == nullptr) return invalid_argument;
    *info = {};
    bus_id_text(info->bus_id_legacy, card.device(), "%04X:%02X:%02X.0");
    bus_id_text(info->bus_id, card.device(), "%08X:%02X:%02X.0");
    fill_place(*info, card.device());
    return success;
  });
}
SIMGPU_NVML nvmlDeviceGetPciInfoExt(Handle handle, PciInfoExt* info) {
  return ask(__func__, handle, [&](const Card& card) -> Return {
    if (info == nullptr) return invalid_argument;
    if (!has_version(info, 1)) return argument_version_mismatch;
    bus_id_text(info->bus_id, card.device(), "%08X:%02X:%02X.0");
    fill_place(*info, card.device());
    info->base_class = 3;  // a display controller, of the 3D kind
    info->sub_class = 2;
    return success;
  });
}

SIMGPU_NVML nvmlDeviceOnSameBoard(Handle one, Handle other, int* out) {
  return between(__func__, one, other, out, 1, 0);
}
SIMGPU_NVML nvmlDeviceGetTopologyCommonAncestor(Handle one, Handle other, int* out) {
  return ask(__func__, one, [&](const Card& card) -> Return {
    const int index = Library::instance().index_of(other, card.table);
    if (index < 0) return invalid_argument;
    return give(out, ancestor(card, static_cast<unsigned>(index)));
  });
}
SIMGPU_NVML nvmlDeviceGetP2PStatus(Handle one, Handle other, int, int* out) {
  return between(__func__, one, other, out, p2p_not_supported, p2p_not_supported);
}
SIMGPU_NVML nvmlDeviceGetTopologyNearestGpus(Handle handle, int level, Count* count, Handle* handles) {
  return ask(__func__, handle, [&](const Card& card) {
    std::vector<Handle> nearest;
    for (unsigned i = 0; i < card.table.device_count(); ++i)
      if (i != card.index && ancestor(card, i) == level) nearest.push_back(Library::instance().handle_of(i));
    return give_list(count, handles, nearest);
  });
}
// Each link of a card leads to another card of its group, one after the other.
SIMGPU_NVML nvmlDeviceGetNvLinkRemotePciInfo_v2(Handle handle, Count number, PciInfo* info) {
  return ask(__func__, handle, [&](const Card& card) -> Return {
    if (info == nullptr) return invalid_argument;
    const std::vector<unsigned> peers = card.nvlink_peers();
    if (peers.empty()) return not_supported;
    if (number >= nvlinks_up(card)) return invalid_argument;
    *info = {};
    const layout::DeviceRecord& peer = card.table.device(peers[number % peers.size()]);
    bus_id_text(info->bus_id_legacy, peer, "%04X:%02X:%02X.0");
    bus_id_text(info->bus_id, peer, "%08X:%02X:%02X.0");
    fill_place(*info, peer);
    return success;
  });
}
SIMGPU_NVML nvmlDeviceGetCpuAffinity(Handle handle, unsigned words, unsigned long* set) {
  return cpu_affinity(__func__, handle, words, set);
}
SIMGPU_NVML nvmlDeviceGetCpuAffinityWithinScope(Handle handle, unsigned words, unsigned long* set, int) {
  return cpu_affinity(__func__, handle, words, set);
}
SIMGPU_NVML nvmlDeviceGetMemoryAffinity(Handle handle, unsigned words, unsigned long* set, int) {
  return ask(__func__, handle, [&](Card) -> Return {
    if (set == nullptr || words == 0) return invalid_argument;
    for (unsigned i = 0; i < words; ++i) set[i] = i == 0 ? 1 : 0;
    return success;
  });
}
