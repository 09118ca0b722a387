// SPDX-License-Identifier: Apache-2.0
// Modes and errors of a data-centre card in its factory state: ECC on, no display.
#include "library.h"

namespace {

using namespace simgpu;
using namespace simgpu::nvml;

enum ErrorType : Count { corrected = 0, uncorrected = 1 };

Return pair_of(const char* name, Handle handle, Count* one, Count* other, Count value) {
  return ask(name, handle, [&](Card) -> Return {
    if (one == nullptr) return invalid_argument;
    *one = value;
    return give(other, value);
  });
}

Return errors(const Card& card, Count type, Wide* count) {
  if (type > uncorrected) return invalid_argument;
  if (type == corrected) return give_figure(count, card, Figure::ecc_corrected, 0);
  return give_figure(count, card, Figure::ecc_uncorrected, card.device().ecc_errors.load());
}

struct EccErrorCounts {
  Wide l1_cache, l2_cache, device_memory, register_file;
};

}  // namespace

SIMGPU_NVML nvmlDeviceGetEccMode(Handle handle, Count* current, Count* pending) {
  return pair_of(__func__, handle, current, pending, 1);
}
SIMGPU_NVML nvmlDeviceGetDefaultEccMode(Handle handle, Count* mode) { return constant(__func__, handle, mode, 1); }
SIMGPU_NVML nvmlDeviceGetTotalEccErrors(Handle handle, Count type, Count, Wide* count) {
  return ask(__func__, handle, [&](const Card& card) { return errors(card, type, count); });
}
SIMGPU_NVML nvmlDeviceGetMemoryErrorCounter(Handle handle, Count type, Count, Count location, Wide* count) {
  return ask(__func__, handle, [&](const Card& card) -> Return {
    constexpr Count device_memory = 2;
    return location == device_memory ? errors(card, type, count) : not_supported;
  });
}
SIMGPU_NVML nvmlDeviceGetDetailedEccErrors(Handle handle, Count type, Count, EccErrorCounts* counts) {
  return ask(__func__, handle, [&](const Card& card) -> Return {
    if (counts == nullptr) return invalid_argument;
    *counts = {};
    return errors(card, type, &counts->device_memory);
  });
}
SIMGPU_NVML nvmlDeviceGetRemappedRows(Handle handle, Count* of_corrected, Count* of_uncorrected, Count* pending,
                                      Count* failed) {
  return ask(__func__, handle, [&](const Card& card) -> Return {
    if (of_corrected == nullptr || of_uncorrected == nullptr || pending == nullptr || failed == nullptr)
      return invalid_argument;
    *of_corrected = *of_uncorrected = 0;
    const Return told = give_figure(pending, card, Figure::remapping_pending, 0);
    return told != success ? told : give_figure(failed, card, Figure::remapping_failed, 0);
  });
}
SIMGPU_NVML nvmlDeviceGetRetiredPagesPendingStatus(Handle handle, Count* pending) {
  return ask(__func__, handle, [&](const Card& card) -> Return {
    const auto told = figure_of(card.device(), Figure::retirement_pending, unsupported);
    if (!told || *told == unsupported) return not_supported;  // a card that remaps rows
    return give(pending, *told);
  });
}
SIMGPU_NVML nvmlDeviceValidateInforom(Handle handle) {
  return ask(__func__, handle, [](Card) { return success; });
}

SIMGPU_NVML nvmlDeviceGetPersistenceMode(Handle handle, Count* mode) { return constant(__func__, handle, mode, 1); }
SIMGPU_NVML nvmlDeviceGetComputeMode(Handle handle, Count* mode) { return constant(__func__, handle, mode, 0); }
SIMGPU_NVML nvmlDeviceGetDisplayMode(Handle handle, Count* mode) { return constant(__func__, handle, mode, 0); }
SIMGPU_NVML nvmlDeviceGetDisplayActive(Handle handle, Count* mode) { return constant(__func__, handle, mode, 0); }
