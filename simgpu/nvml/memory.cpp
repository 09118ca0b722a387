// SPDX-License-Identifier: Apache-2.0
// Memory of a card, and the processes that hold it.
#include "library.h"

#include <algorithm>

namespace {

using namespace simgpu;
using namespace simgpu::nvml;

struct Holder {
  Count pid;
  Wide bytes;
  bool draws;
  Count gpu_instance = no_instance, compute_instance = no_instance;
};

// The places of a card that programs may hold memory of: itself, and its slices.
std::vector<unsigned> places_of(const Card& card) {
  std::vector<unsigned> places{card.index};
  for (const unsigned slice : card.table.slices_of(card.index)) places.push_back(slice);
  return places;
}

// The processes as NVML lists them; with faults the list differs from the truth.
std::vector<Holder> holders(const Card& card) {
  const int device = static_cast<int>(card.index);
  std::vector<Holder> list;
  for (const unsigned place : places_of(card)) {
    for (const auto& process : Library::instance().snapshot(card.table, place).processes) {
      Holder holder{process.pid, process.device.at(place).bytes, process.draws};
      if (place >= max_devices) {
        holder.gpu_instance = static_cast<Count>(card.table.device(place).instance.load());
        holder.compute_instance = 0;
      }
      list.push_back(holder);
    }
  }
  if (card.table.meet(FaultKind::nvml_empty, device)) list.clear();
  if (const auto fault = card.table.meet(FaultKind::nvml_missing_pid, device)) {
    const auto missing = fault->argument == 0 ? list.begin()
                                              : std::find_if(list.begin(), list.end(),
                                                             [&](const auto& h) { return h.pid == fault->argument; });
    if (missing != list.end()) list.erase(missing);
  }
  if (const auto fault = card.table.meet(FaultKind::nvml_wrong_namespace, device)) {
    auto next = static_cast<Count>(fault->argument == 0 ? 2 : fault->argument);
    for (auto& holder : list) holder.pid = next++;
  }
  return list;
}

std::vector<Holder> holders(const Card& card, bool draws) {
  std::vector<Holder> list = holders(card);
  std::erase_if(list, [draws](const Holder& holder) { return holder.draws != draws; });
  return list;
}

void convert(const Holder& holder, ProcessInfoV1& info) { info = {holder.pid, holder.bytes}; }
void convert(const Holder& holder, ProcessInfo& info) {
  info = {holder.pid, holder.bytes, holder.gpu_instance, holder.compute_instance};
}
void convert(const Holder& holder, ProcessDetail& info) {
  info = {holder.pid, holder.bytes, holder.gpu_instance, holder.compute_instance, 0};
}

template <typename Info>
std::vector<Info> converted(const std::vector<Holder>& list) {
  std::vector<Info> infos(list.size());
  for (std::size_t i = 0; i < list.size(); ++i) {
    std::memset(static_cast<void*>(&infos[i]), 0, sizeof(Info));
    convert(list[i], infos[i]);
  }
  return infos;
}

template <typename Info>
Return processes_that(bool draw, const char* name, Handle handle, Count* count, Info* infos) {
  return ask(name, handle,
             [&](const Card& card) { return give_list(count, infos, converted<Info>(holders(card, draw))); });
}

// MPS clients: there are none.
template <typename Info>
Return no_processes(const char* name, Handle handle, Count* count, Info* infos) {
  return ask(name, handle, [&](Card) { return give_list(count, infos, std::vector<Info>()); });
}

Return detail_list(const Card& card, ProcessDetailList* list) {
  enum Mode : Count { compute = 0, graphics = 1, mps = 2, all = 3 };
  if (list == nullptr) return invalid_argument;
  if (!has_version(list, 1)) return argument_version_mismatch;
  if (list->mode > all) return invalid_argument;
  if (list->mode == mps) return give_list(&list->count, list->processes, std::vector<ProcessDetail>());
  return give_list(&list->count, list->processes,
                   converted<ProcessDetail>(list->mode == all ? holders(card) : holders(card, list->mode == graphics)));
}

}  // namespace

// The machine whose memory a card with unified memory uses: 0 and its bytes. No vendor's library has this function. The
// product asks it for simulated cards only, and reads /proc/meminfo otherwise.
SIMGPU_NVML simgpuMachineMemory(Handle handle, Wide* total, Wide* available) {
  return ask(__func__, handle, [&](const Card& card) -> Return {
    if (total == nullptr) return invalid_argument;
    if (!card.table.is_unified(card.index)) return not_supported;
    const DeviceUse use = Library::instance().snapshot(card.table, card.index).use;
    *total = use.total;
    return give(available, use.available());
  });
}

// Version 1 has no field for the driver's reserve: the reserve counts as used.
SIMGPU_NVML nvmlDeviceGetMemoryInfo(Handle handle, Memory* memory) {
  return ask(__func__, handle, [&](const Card& card) -> Return {
    if (memory == nullptr) return invalid_argument;
    if (card.table.is_unified(card.index)) return not_supported;
    const DeviceUse use = Library::instance().snapshot(card.table, card.index).use;
    *memory = {use.total, use.available(), use.total - use.available()};
    return success;
  });
}

SIMGPU_NVML nvmlDeviceGetMemoryInfo_v2(Handle handle, MemoryV2* memory) {
  return ask(__func__, handle, [&](const Card& card) -> Return {
    if (memory == nullptr) return invalid_argument;
    if (!has_version(memory, 2)) return argument_version_mismatch;
    if (card.table.is_unified(card.index)) return not_supported;
    const DeviceUse use = Library::instance().snapshot(card.table, card.index).use;
    *memory = {memory->version, use.total, use.reserve, use.available(), use.capacity() - use.available()};
    return success;
  });
}

// The window through which the host sees the card: the card's size, rounded up, with a little of it in use.
SIMGPU_NVML nvmlDeviceGetBAR1MemoryInfo(Handle handle, Bar1Memory* memory) {
  return ask(__func__, handle, [&](const Card& card) -> Return {
    if (memory == nullptr) return invalid_argument;
    if (card.table.is_unified(card.index)) return not_supported;
    constexpr Wide mib = 1 << 20;
    Wide total = 256 * mib;
    while (total < card.device().total) total *= 2;
    *memory = {total, total - mib, mib};
    return success;
  });
}

SIMGPU_NVML nvmlDeviceGetComputeRunningProcesses(Handle handle, Count* count, ProcessInfoV1* infos) {
  return processes_that(false, __func__, handle, count, infos);
}
SIMGPU_NVML nvmlDeviceGetComputeRunningProcesses_v2(Handle handle, Count* count, ProcessInfo* infos) {
  return processes_that(false, __func__, handle, count, infos);
}
SIMGPU_NVML nvmlDeviceGetComputeRunningProcesses_v3(Handle handle, Count* count, ProcessInfo* infos) {
  return processes_that(false, __func__, handle, count, infos);
}
SIMGPU_NVML nvmlDeviceGetGraphicsRunningProcesses(Handle handle, Count* count, ProcessInfoV1* infos) {
  return processes_that(true, __func__, handle, count, infos);
}
SIMGPU_NVML nvmlDeviceGetGraphicsRunningProcesses_v2(Handle handle, Count* count, ProcessInfo* infos) {
  return processes_that(true, __func__, handle, count, infos);
}
SIMGPU_NVML nvmlDeviceGetGraphicsRunningProcesses_v3(Handle handle, Count* count, ProcessInfo* infos) {
  return processes_that(true, __func__, handle, count, infos);
}
SIMGPU_NVML nvmlDeviceGetMPSComputeRunningProcesses(Handle handle, Count* count, ProcessInfoV1* infos) {
  return no_processes(__func__, handle, count, infos);
}
SIMGPU_NVML nvmlDeviceGetMPSComputeRunningProcesses_v2(Handle handle, Count* count, ProcessInfo* infos) {
  return no_processes(__func__, handle, count, infos);
}
SIMGPU_NVML nvmlDeviceGetMPSComputeRunningProcesses_v3(Handle handle, Count* count, ProcessInfo* infos) {
  return no_processes(__func__, handle, count, infos);
}
SIMGPU_NVML nvmlDeviceGetRunningProcessDetailList(Handle handle, ProcessDetailList* list) {
  return ask(__func__, handle, [&](const Card& card) { return detail_list(card, list); });
}

// Accounting mode is off, as on a card without configuration.
SIMGPU_NVML nvmlDeviceGetAccountingMode(Handle handle, Count* mode) { return constant(__func__, handle, mode, 0); }
SIMGPU_NVML nvmlDeviceGetAccountingBufferSize(Handle handle, Count* size) {
  return constant(__func__, handle, size, 4000);
}
SIMGPU_NVML nvmlDeviceGetAccountingPids(Handle handle, Count* count, Count* pids) {
  return ask(__func__, handle, [&](Card) { return give_list(count, pids, std::vector<Count>()); });
}
SIMGPU_NVML nvmlDeviceGetAccountingStats(Handle handle, Count, void*) {
  return ask(__func__, handle, [](Card) { return not_found; });
}
