// SPDX-License-Identifier: Apache-2.0
// Temperature, power, clocks and the link. They are made up from the card's load, so that a monitor has values to show
// and the same load gives the same values.
#include "condition.h"

#include "library.h"

#include <algorithm>
#include <array>

namespace simgpu::nvml {

Condition condition(const Card& card) {
  const unsigned busy = Library::instance().activity(card.table, card.index).percent;
  return {.celsius = 30 + busy * 2 / 5,
          .milliwatts = idle_milliwatts + (limit_milliwatts - idle_milliwatts) / 100 * busy,
          .graphics_mhz = busy == 0 ? idle_mhz : max_graphics_mhz,
          .performance_state = busy == 0 ? 8U : 0U,
          .idle = busy == 0};
}

Wide energy_millijoules(const Card& card) {
  const Wide up_ms = static_cast<Wide>(
      std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now().time_since_epoch())
          .count());
  const Wide busy_ms = card.device().busy_ns.load() / 1'000'000;
  return (up_ms * idle_milliwatts + busy_ms * (limit_milliwatts - idle_milliwatts)) / 1000;
}

}  // namespace simgpu::nvml

namespace {

using namespace simgpu;
using namespace simgpu::nvml;

// The slowest PCIe link that reaches the card's configured bandwidth: a generation's rate of a lane, and the number of
// lanes.
struct Link {
  Count generation, lanes, mbyte_per_s;
};
constexpr std::array<Count, 5> lane_mbyte_per_s{250, 500, 985, 1969, 3938};
constexpr Link fastest{5, 16, 63015};

Link link_of(const Card& card) {
  const std::uint64_t wanted = card.table.get(Setting::link_bandwidth) / 1'000'000;
  Link slowest = fastest;
  if (wanted == 0) return slowest;
  for (Count i = 0; i < lane_mbyte_per_s.size(); ++i)
    for (const Count lanes : {1U, 2U, 4U, 8U, 16U})
      if (const Count its = lane_mbyte_per_s[i] * lanes; its >= wanted && its < slowest.mbyte_per_s)
        slowest = {i + 1, lanes, its};
  return slowest;
}

Return link(const char* name, Handle handle, Count Link::*figure, Count* out) {
  return ask(name, handle, [&](const Card& card) { return give(out, link_of(card).*figure); });
}

enum ClockType : Count { graphics = 0, sm = 1, memory = 2, video = 3 };

Return clock(Count type, Count graphics_mhz, Count* mhz) {
  if (type > video) return invalid_argument;
  return give(mhz, type == memory ? memory_mhz : graphics_mhz);
}

Return current_clock(const char* name, Handle handle, Count type, Count* mhz) {
  return ask(name, handle, [&](const Card& card) -> Return {
    if (type > video) return invalid_argument;
    if (type == memory) return give_figure(mhz, card, Figure::memory_clock, memory_mhz);
    return give_figure(mhz, card, Figure::sm_clock, condition(card).graphics_mhz);
  });
}

Return top_clock(const char* name, Handle handle, Count type, Count* mhz) {
  return ask(name, handle, [&](const Card&) { return clock(type, max_graphics_mhz, mhz); });
}

Return performance_state(const char* name, Handle handle, Count* state) {
  return ask(name, handle, [&](const Card& card) { return give(state, condition(card).performance_state); });
}

constexpr Wide reason_idle = 1;

Return event_reasons(const char* name, Handle handle, Wide* reasons) {
  return ask(name, handle, [&](const Card& card) { return give(reasons, condition(card).idle ? reason_idle : 0); });
}

}  // namespace

SIMGPU_NVML nvmlDeviceGetTemperature(Handle handle, Count sensor, Count* celsius) {
  return ask(__func__, handle, [&](const Card& card) -> Return {
    if (sensor != 0) return invalid_argument;
    return give_figure(celsius, card, Figure::temperature, condition(card).celsius);
  });
}
SIMGPU_NVML nvmlDeviceGetTemperatureV(Handle handle, TemperatureV1* temperature) {
  return ask(__func__, handle, [&](const Card& card) -> Return {
    if (temperature == nullptr) return invalid_argument;
    if (!has_version(temperature, 1)) return argument_version_mismatch;
    if (temperature->sensor != 0) return invalid_argument;
    return give_figure(&temperature->celsius, card, Figure::temperature, condition(card).celsius);
  });
}
SIMGPU_NVML nvmlDeviceGetTemperatureThreshold(Handle handle, Count kind, Count* celsius) {
  return ask(__func__, handle, [&](Card) -> Return {
    switch (kind) {
      case 0: return give(celsius, 95);  // shutdown
      case 1: return give(celsius, 90);  // slowdown
      case 3: return give(celsius, 87);  // highest for work
      default: return not_supported;
    }
  });
}

SIMGPU_NVML nvmlDeviceGetPowerUsage(Handle handle, Count* milliwatts) {
  return ask(__func__, handle, [&](const Card& card) {
    return give_figure(milliwatts, card, Figure::power, condition(card).milliwatts);
  });
}
SIMGPU_NVML nvmlDeviceGetPowerManagementMode(Handle handle, Count* mode) { return constant(__func__, handle, mode, 1); }
SIMGPU_NVML nvmlDeviceGetPowerManagementLimit(Handle handle, Count* milliwatts) {
  return constant(__func__, handle, milliwatts, limit_milliwatts);
}
SIMGPU_NVML nvmlDeviceGetPowerManagementDefaultLimit(Handle handle, Count* milliwatts) {
  return constant(__func__, handle, milliwatts, limit_milliwatts);
}
SIMGPU_NVML nvmlDeviceGetEnforcedPowerLimit(Handle handle, Count* milliwatts) {
  return constant(__func__, handle, milliwatts, limit_milliwatts);
}
SIMGPU_NVML nvmlDeviceGetPowerManagementLimitConstraints(Handle handle, Count* low, Count* high) {
  return ask(__func__, handle, [&](Card) -> Return {
    if (low == nullptr) return invalid_argument;
    *low = min_limit_milliwatts;
    return give(high, limit_milliwatts);
  });
}
SIMGPU_NVML nvmlDeviceGetTotalEnergyConsumption(Handle handle, Wide* millijoules) {
  return ask(__func__, handle, [&](const Card& card) { return give(millijoules, energy_millijoules(card)); });
}

SIMGPU_NVML nvmlDeviceGetClockInfo(Handle handle, Count type, Count* mhz) {
  return current_clock(__func__, handle, type, mhz);
}
SIMGPU_NVML nvmlDeviceGetMaxClockInfo(Handle handle, Count type, Count* mhz) {
  return top_clock(__func__, handle, type, mhz);
}
SIMGPU_NVML nvmlDeviceGetMaxCustomerBoostClock(Handle handle, Count type, Count* mhz) {
  return top_clock(__func__, handle, type, mhz);
}
SIMGPU_NVML nvmlDeviceGetApplicationsClock(Handle handle, Count type, Count* mhz) {
  return top_clock(__func__, handle, type, mhz);
}
SIMGPU_NVML nvmlDeviceGetDefaultApplicationsClock(Handle handle, Count type, Count* mhz) {
  return top_clock(__func__, handle, type, mhz);
}
SIMGPU_NVML nvmlDeviceGetClock(Handle handle, Count type, Count id, Count* mhz) {
  return id == 0 ? current_clock(__func__, handle, type, mhz) : top_clock(__func__, handle, type, mhz);
}
SIMGPU_NVML nvmlDeviceGetPerformanceState(Handle handle, Count* state) {
  return performance_state(__func__, handle, state);
}
SIMGPU_NVML nvmlDeviceGetPowerState(Handle handle, Count* state) { return performance_state(__func__, handle, state); }
SIMGPU_NVML nvmlDeviceGetCurrentClocksThrottleReasons(Handle handle, Wide* reasons) {
  return event_reasons(__func__, handle, reasons);
}
SIMGPU_NVML nvmlDeviceGetCurrentClocksEventReasons(Handle handle, Wide* reasons) {
  return event_reasons(__func__, handle, reasons);
}
SIMGPU_NVML nvmlDeviceGetSupportedClocksThrottleReasons(Handle handle, Wide* reasons) {
  return constant(__func__, handle, reasons, reason_idle);
}
SIMGPU_NVML nvmlDeviceGetSupportedClocksEventReasons(Handle handle, Wide* reasons) {
  return constant(__func__, handle, reasons, reason_idle);
}

SIMGPU_NVML nvmlDeviceGetMaxPcieLinkGeneration(Handle handle, Count* out) {
  return link(__func__, handle, &Link::generation, out);
}
SIMGPU_NVML nvmlDeviceGetGpuMaxPcieLinkGeneration(Handle handle, Count* out) {
  return link(__func__, handle, &Link::generation, out);
}
SIMGPU_NVML nvmlDeviceGetCurrPcieLinkGeneration(Handle handle, Count* out) {
  return ask(__func__, handle, [&](const Card& card) {
    // A card at rest slows its link.
    const Count usual = condition(card).idle ? 1 : link_of(card).generation;
    return give_figure(out, card, Figure::pcie_generation, usual);
  });
}
SIMGPU_NVML nvmlDeviceGetMaxPcieLinkWidth(Handle handle, Count* out) {
  return link(__func__, handle, &Link::lanes, out);
}
SIMGPU_NVML nvmlDeviceGetCurrPcieLinkWidth(Handle handle, Count* out) {
  return ask(__func__, handle,
             [&](const Card& card) { return give_figure(out, card, Figure::pcie_lanes, link_of(card).lanes); });
}
// The links up to the number that is set are up. A card on which nobody set it has one to each card of its group.
SIMGPU_NVML nvmlDeviceGetNvLinkState(Handle handle, Count number, Count* is_up) {
  return ask(__func__, handle, [&](const Card& card) -> Return {
    constexpr Count links = 18;
    const Count up = nvlinks_up(card);
    const bool is_set = figure_of(card.device(), Figure::nvlinks, unsupported).value_or(unsupported) != unsupported;
    if (up == 0 && !is_set) return not_supported;
    if (number >= links) return invalid_argument;
    return give(is_up, number < up ? 1 : 0);
  });
}
SIMGPU_NVML nvmlDeviceGetPcieSpeed(Handle handle, Count* out) {
  return link(__func__, handle, &Link::mbyte_per_s, out);
}
SIMGPU_NVML nvmlDeviceGetPcieReplayCounter(Handle handle, Count* out) { return constant(__func__, handle, out, 0); }
SIMGPU_NVML nvmlDeviceGetPcieThroughput(Handle handle, Count counter, Count* kbyte_per_s) {
  return ask(__func__, handle, [&](const Card& card) -> Return {
    enum : Count { sent = 0, received = 1 };  // by the card
    if (counter > received) return invalid_argument;
    const auto rate = Library::instance().link_rate(card.table, card.index, counter == received ? 0 : 1);
    return give(kbyte_per_s, std::min<std::uint64_t>(rate / 1000, 0xffffffff));
  });
}
