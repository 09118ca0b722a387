// SPDX-License-Identifier: Apache-2.0
// Cards in MIG mode and their slices: modes, handles, identity.
#include "library.h"

#include <algorithm>
#include <array>

namespace {

using namespace simgpu;
using namespace simgpu::nvml;

constexpr Count most_slices = all_parts;

Return attributes_of(const Card& slice, Attributes* out) {
  if (out == nullptr) return invalid_argument;
  if (!slice.is_slice()) return not_supported;
  const auto parts = static_cast<Count>(slice.device().parts.load());
  *out = {};
  out->multiprocessors = static_cast<Count>(slice.table.get(Setting::multiprocessors)) * parts / most_slices;
  out->copy_engines = parts;
  out->gpu_instance_parts = out->compute_instance_parts = parts;
  out->memory_mib = slice.device().total >> 20;
  return success;
}

}  // namespace

SIMGPU_NVML nvmlDeviceGetMigMode(Handle handle, Count* current, Count* pending) {
  return ask(__func__, handle, [&](const Card& card) -> Return {
    if (current == nullptr || pending == nullptr) return invalid_argument;
    if (card.is_slice() || card.table.is_unified(card.index)) return not_supported;
    *current = *pending = card.table.in_mig_mode(card.index) ? 1 : 0;
    return success;
  });
}

SIMGPU_NVML nvmlDeviceGetMaxMigDeviceCount(Handle handle, Count* count) {
  return ask(__func__, handle, [&](const Card& card) {
    return give(count, !card.is_slice() && card.table.in_mig_mode(card.index) ? most_slices : 0);
  });
}

SIMGPU_NVML nvmlDeviceGetMigDeviceHandleByIndex(Handle handle, Count index, Handle* slice) {
  return ask(__func__, handle, [&](const Card& card) -> Return {
    if (slice == nullptr || card.is_slice()) return invalid_argument;
    if (!card.table.in_mig_mode(card.index)) return not_supported;
    if (index >= most_slices) return invalid_argument;
    for (const unsigned place : card.table.slices_of(card.index))
      if (card.table.device(place).slice.load() == index) return give(slice, Library::instance().handle_of(place));
    return not_found;
  });
}

SIMGPU_NVML nvmlDeviceIsMigDeviceHandle(Handle handle, Count* is) {
  return ask(__func__, handle, [&](const Card& card) { return give(is, card.is_slice() ? 1 : 0); });
}

SIMGPU_NVML nvmlDeviceGetDeviceHandleFromMigDeviceHandle(Handle handle, Handle* card_handle) {
  return ask(__func__, handle, [&](const Card& card) -> Return {
    const auto parent = card.table.parent_of(card.index);
    return parent ? give(card_handle, Library::instance().handle_of(*parent)) : invalid_argument;
  });
}

SIMGPU_NVML nvmlDeviceGetGpuInstanceId(Handle handle, Count* id) {
  return ask(__func__, handle, [&](const Card& card) -> Return {
    return card.is_slice() ? give(id, card.device().instance.load()) : not_supported;
  });
}

SIMGPU_NVML nvmlDeviceGetComputeInstanceId(Handle handle, Count* id) {
  return ask(__func__, handle,
             [&](const Card& card) -> Return { return card.is_slice() ? give(id, 0) : not_supported; });
}

SIMGPU_NVML nvmlDeviceGetAttributes_v2(Handle handle, Attributes* out) {
  return ask(__func__, handle, [&](const Card& card) { return attributes_of(card, out); });
}
SIMGPU_NVML nvmlDeviceGetAttributes(Handle handle, Attributes* out) {
  return ask(__func__, handle, [&](const Card& card) { return attributes_of(card, out); });
}

namespace simgpu::nvml {

bool takes_slices(std::string_view name) {
  static constexpr std::array<std::string_view, 13> names{"nvmlDeviceGetName",
                                                          "nvmlDeviceGetUUID",
                                                          "nvmlDeviceGetIndex",
                                                          "nvmlDeviceGetMigMode",
                                                          "nvmlDeviceGetMaxMigDeviceCount",
                                                          "nvmlDeviceGetMigDeviceHandleByIndex",
                                                          "nvmlDeviceIsMigDeviceHandle",
                                                          "nvmlDeviceGetDeviceHandleFromMigDeviceHandle",
                                                          "nvmlDeviceGetGpuInstanceId",
                                                          "nvmlDeviceGetComputeInstanceId",
                                                          "nvmlDeviceGetRunningProcessDetailList",
                                                          "nvmlDeviceGetAttributes",
                                                          "nvmlDeviceGetAttributes_v2"};
  static constexpr std::array<std::string_view, 4> in_versions{
      "nvmlDeviceGetMemoryInfo", "nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetGraphicsRunningProcesses",
      "nvmlDeviceGetMPSComputeRunningProcesses"};
  return std::ranges::find(names, name) != names.end() ||
         std::ranges::any_of(in_versions, [&](std::string_view begin) { return name.starts_with(begin); });
}

}  // namespace simgpu::nvml
