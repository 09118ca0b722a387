// SPDX-License-Identifier: Apache-2.0
// Event sets. Each set that registered gets one Xid for a card that is lost or has a memory error, and those that
// `simgpu-ctl card` makes.
#include "library.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>
#include <thread>

namespace {

using namespace simgpu;
using namespace simgpu::nvml;

constexpr Wide double_bit_error = 2, xid_critical = 8, known_types = double_bit_error | xid_critical;
constexpr Wide xid_memory_error = 48, xid_fallen_off = 79;

struct EventSet {
  struct OfCard {
    Wide types = 0;
    std::uint64_t errors_told = 0;
    std::uint64_t xids_told = 0;
    bool loss_told = false;
  };
  std::array<OfCard, max_devices> cards;
};

struct Event {
  unsigned device;
  Wide type, data;
};

std::optional<Event> next_event(const Table& table, EventSet& set) {
  for (unsigned i = 0; i < table.device_count(); ++i) {
    auto& card = set.cards.at(i);
    if (card.types == 0) continue;
    const bool lost = table.still_set(FaultKind::device_lost, static_cast<int>(i));
    if (!lost) card.loss_told = false;
    if (lost && !card.loss_told && (card.types & xid_critical) != 0) {
      card.loss_told = true;
      return Event{i, xid_critical, xid_fallen_off};
    }
    if (const Xids xids = xids_of(table.device(i)); xids.count > card.xids_told) {
      card.xids_told = xids.count;
      if ((card.types & xid_critical) != 0) return Event{i, xid_critical, xids.last};
    }
    const std::uint64_t errors = table.device(i).ecc_errors.load();
    if (errors > card.errors_told) {
      ++card.errors_told;
      const bool as_xid = (card.types & xid_critical) != 0;
      return Event{i, as_xid ? xid_critical : double_bit_error, as_xid ? xid_memory_error : 0};
    }
  }
  return std::nullopt;
}

template <typename Fill>
Return wait_for(const char* name, EventSet* set, unsigned timeout_ms, Fill fill) {
  return ask(name, [&](Table& table) -> Return {
    using namespace std::chrono;
    if (set == nullptr) return invalid_argument;
    const auto end = steady_clock::now() + milliseconds(timeout_ms);
    for (;;) {
      if (const auto event = next_event(table, *set)) {
        fill(*event);
        return success;
      }
      const auto left = end - steady_clock::now();
      if (left <= steady_clock::duration::zero()) return timeout;
      std::this_thread::sleep_for(std::min<steady_clock::duration>(left, milliseconds(10)));
    }
  });
}

}  // namespace

SIMGPU_NVML nvmlEventSetCreate(EventSet** set) {
  return ask(__func__, [&](Table&) -> Return {
    if (set == nullptr) return invalid_argument;
    *set = new EventSet;
    return success;
  });
}
SIMGPU_NVML nvmlEventSetFree(EventSet* set) {
  return ask(__func__, [&](Table&) -> Return {
    if (set == nullptr) return invalid_argument;
    delete set;
    return success;
  });
}
SIMGPU_NVML nvmlDeviceGetSupportedEventTypes(Handle handle, Wide* types) {
  return constant(__func__, handle, types, known_types);
}
SIMGPU_NVML nvmlDeviceRegisterEvents(Handle handle, Wide types, EventSet* set) {
  return ask(__func__, handle, [&](const Card& card) -> Return {
    if (set == nullptr || types == 0) return invalid_argument;
    if ((types & ~known_types) != 0) return not_supported;
    auto& mine = set->cards.at(card.index);
    if (mine.types == 0) {  // earlier events are not reported
      mine.errors_told = card.device().ecc_errors.load();
      mine.xids_told = xids_of(card.device()).count;
    }
    mine.types |= types;
    return success;
  });
}
SIMGPU_NVML nvmlEventSetWait(EventSet* set, EventDataV1* data, unsigned timeout_ms) {
  if (data == nullptr) return ask(__func__, [](Table&) { return invalid_argument; });
  return wait_for(__func__, set, timeout_ms, [&](const Event& event) {
    *data = {Library::instance().handle_of(event.device), event.type, event.data};
  });
}
SIMGPU_NVML nvmlEventSetWait_v2(EventSet* set, EventData* data, unsigned timeout_ms) {
  if (data == nullptr) return ask(__func__, [](Table&) { return invalid_argument; });
  return wait_for(__func__, set, timeout_ms, [&](const Event& event) {
    *data = {Library::instance().handle_of(event.device), event.type, event.data, no_instance, no_instance};
  });
}
