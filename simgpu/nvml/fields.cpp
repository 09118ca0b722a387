// SPDX-License-Identifier: Apache-2.0
// Field values: many answers in one call, each with a result of its own.
#include "condition.h"
#include "library.h"

#include <ctime>
#include <optional>

namespace {

using namespace simgpu;
using namespace simgpu::nvml;

std::optional<Wide> value_of(const Card& card, Count field) {
  switch (field) {
    case 1:  // ECC mode, current
    case 2:  // and pending
      return 1;
    case 3:  // single bit errors, volatile
    case 5:  // and aggregate
      return figure_of(card.device(), Figure::ecc_corrected, 0);
    case 94:   // PCIe replays
    case 142:  // rows remapped after corrected errors
    case 143:  // after uncorrected ones
      return 0;
    case 144: return figure_of(card.device(), Figure::remapping_pending, 0);
    case 145: return figure_of(card.device(), Figure::remapping_failed, 0);
    case 4:  // double bit errors, volatile
    case 6:  // and aggregate
      return card.device().ecc_errors.load();
    case 83: return energy_millijoules(card);
    case 185:  // power, average
    case 186:  // and now
      return figure_of(card.device(), Figure::power, condition(card).milliwatts);
    case 187: return min_limit_milliwatts;
    case 188:  // power limit: highest,
    case 189:  // default,
    case 190:  // current,
    case 192:  // requested
      return limit_milliwatts;
    case 197: return card.device().link_bytes[1].load();  // sent by the card
    case 198: return card.device().link_bytes[0].load();
    default: return std::nullopt;
  }
}

}  // namespace

SIMGPU_NVML nvmlDeviceGetFieldValues(Handle handle, int count, FieldValue* values) {
  return ask(__func__, handle, [&](const Card& card) -> Return {
    if (count < 0 || values == nullptr) return invalid_argument;
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    for (int i = 0; i < count; ++i) {
      FieldValue& value = values[i];
      const auto answer = value_of(card, value.field);
      value.timestamp_us = now.tv_sec * 1'000'000LL + now.tv_nsec / 1000;
      value.latency_us = 0;
      value.result = answer ? success : not_supported;
      value.value_type = 3;
      value.value.ull = answer.value_or(0);
    }
    return success;
  });
}
