// SPDX-License-Identifier: Apache-2.0
// Utilisation of a card, and of its processes.
#include "library.h"

#include <ctime>

namespace {

using namespace simgpu;
using namespace simgpu::nvml;

constexpr Count sampling_us = 166667;  // interval between a driver's samples

Wide now_us() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<Wide>(now.tv_sec) * 1'000'000 + static_cast<Wide>(now.tv_nsec) / 1000;
}

void convert(const Activity::OfProcess& process, Wide now, ProcessUtilizationSample& sample) {
  sample.pid = process.pid;
  sample.timestamp_us = now;
  sample.sm = process.percent;
  sample.memory = process.percent / 2;
}
void convert(const Activity::OfProcess& process, Wide now, ProcessUtilizationInfo& sample) {
  sample.timestamp_us = now;
  sample.pid = process.pid;
  sample.sm = process.percent;
  sample.memory = process.percent / 2;
}

// Whether the card reports utilisation at all.
bool supports_utilization(const Card& card) {
  if (card.table.in_mig_mode(card.index)) return false;
  return !card.table.meet(FaultKind::nvml_no_utilization, static_cast<int>(card.index));
}

// Returns a sample for each busy process that is newer than `last_seen`. Idle processes have no sample, as with real
// drivers; no sample at all is "not found".
template <typename Sample>
Return samples_since(const Card& card, Wide last_seen, Count* count, Sample* out) {
  if (!supports_utilization(card)) return not_supported;
  Activity activity = Library::instance().activity(card.table, card.index);
  std::erase_if(activity.processes, [](const Activity::OfProcess& process) { return process.percent == 0; });
  const Wide now = now_us();
  if (activity.processes.empty() || now <= last_seen) return give(count, 0) == success ? not_found : invalid_argument;
  std::vector<Sample> samples(activity.processes.size());
  for (std::size_t i = 0; i < samples.size(); ++i) convert(activity.processes[i], now, samples[i]);
  if (count != nullptr && out == nullptr) *count = 0;  // clients ask for the number by passing no array
  return give_list(count, out, samples);
}

// Video engines and similar engines, which no simulated program uses.
Return idle_engine(const char* name, Handle handle, Count* percent, Count* period_us) {
  return ask(name, handle, [&](Card) -> Return {
    if (percent == nullptr) return invalid_argument;
    *percent = 0;
    return give(period_us, sampling_us);
  });
}

}  // namespace

SIMGPU_NVML nvmlDeviceGetUtilizationRates(Handle handle, Utilization* out) {
  return ask(__func__, handle, [&](const Card& card) -> Return {
    if (out == nullptr) return invalid_argument;
    if (!supports_utilization(card)) return not_supported;
    const unsigned percent = Library::instance().activity(card.table, card.index).percent;
    *out = {percent, percent / 2};
    return success;
  });
}
SIMGPU_NVML nvmlDeviceGetProcessUtilization(Handle handle, ProcessUtilizationSample* samples, Count* count,
                                            Wide last_seen) {
  return ask(__func__, handle, [&](const Card& card) { return samples_since(card, last_seen, count, samples); });
}
SIMGPU_NVML nvmlDeviceGetProcessesUtilizationInfo(Handle handle, ProcessesUtilization* list) {
  return ask(__func__, handle, [&](const Card& card) -> Return {
    if (list == nullptr) return invalid_argument;
    if (!has_version(list, 1)) return argument_version_mismatch;
    return samples_since(card, list->last_seen_us, &list->count, list->samples);
  });
}

SIMGPU_NVML nvmlDeviceGetEncoderUtilization(Handle handle, Count* percent, Count* period_us) {
  return idle_engine(__func__, handle, percent, period_us);
}
SIMGPU_NVML nvmlDeviceGetDecoderUtilization(Handle handle, Count* percent, Count* period_us) {
  return idle_engine(__func__, handle, percent, period_us);
}
SIMGPU_NVML nvmlDeviceGetJpgUtilization(Handle handle, Count* percent, Count* period_us) {
  return idle_engine(__func__, handle, percent, period_us);
}
SIMGPU_NVML nvmlDeviceGetOfaUtilization(Handle handle, Count* percent, Count* period_us) {
  return idle_engine(__func__, handle, percent, period_us);
}
