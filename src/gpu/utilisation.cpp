// SPDX-License-Identifier: Apache-2.0
#include "gpu/utilisation.h"

#include <algorithm>
#include <vector>

namespace sublet::gpu {
namespace {

// A driver that samples once a second has no new sample earlier, which would look like idleness.
constexpr std::int64_t sampling_ns = 1'000'000'000;
constexpr unsigned most_samples = 4096;
constexpr unsigned most_percent = 100;
constexpr int real_work = 10;  // percent of a device; less may be the drawing of a screen, which has no samples

NvmlCode code_of(int code) { return static_cast<NvmlCode>(code); }

// The answer will stay the same as long as the driver is loaded.
bool is_final(NvmlCode code) {
  return code == NvmlCode::not_supported || code == NvmlCode::function_not_found || code == NvmlCode::no_permission ||
         code == NvmlCode::argument_version_mismatch;
}

// The largest figure that is a percentage. Drivers write other numbers where they have no figure.
std::optional<int> largest(std::initializer_list<unsigned> figures) {
  std::optional<int> most;
  for (const unsigned figure : figures)
    if (figure <= most_percent) most = std::max(most.value_or(0), static_cast<int>(figure));
  return most;
}

}  // namespace

Utilisation::Utilisation(const NvmlApi& api)
    : rates_(reinterpret_cast<decltype(rates_)>(api.find("nvmlDeviceGetUtilizationRates"))),
      samples_(reinterpret_cast<decltype(samples_)>(api.find("nvmlDeviceGetProcessUtilization"))) {}

// The busiest sample of all engines, and the mean of kernels.
void Utilisation::Work::add(const Sample& sample) {
  const auto percent = largest({sample.sm, sample.memory, sample.encoder, sample.decoder}),
             kernels = largest({sample.sm});
  if (!percent || !busy) busy.reset();
  else busy = std::max(*busy, *percent);
  if (!kernels || !computing) return computing.reset();
  sum += *kernels;
  computing = (sum + ++samples / 2) / samples;
}

void Utilisation::ask_device(NvmlDevice handle, Known& known) const {
  known.percent.reset();
  if (rates_ == nullptr || !known.asks_device) return;
  Rates rates{};
  const NvmlCode code = code_of(rates_(handle, &rates));
  if (is_final(code)) known.asks_device = false;
  if (code == NvmlCode::success && rates.gpu <= most_percent) known.percent = largest({rates.gpu, rates.memory});
}

// All samples that the driver has since then. No sample is `not_found`.
NvmlCode Utilisation::ask_samples(NvmlDevice handle, std::uint64_t since_us, std::vector<Sample>& samples) const {
  unsigned count = 128;
  NvmlCode code = NvmlCode::insufficient_size;
  for (int attempt = 0; attempt < 4 && code == NvmlCode::insufficient_size && count <= most_samples; ++attempt) {
    samples.assign(count, {});
    code = code_of(samples_(handle, samples.data(), &count, since_us));
  }
  samples.resize(code == NvmlCode::success ? std::min<std::size_t>(count, samples.size()) : 0);
  return code == NvmlCode::success && samples.empty() ? NvmlCode::not_found : code;
}

// Only samples that were not told before. The driver stamps samples by the wall clock. After this clock was set back,
// no sample is newer than the last one, so that the driver is asked for all samples that it has.
NvmlCode Utilisation::new_samples(NvmlDevice handle, Known& known, std::vector<Sample>& samples) const {
  NvmlCode code = ask_samples(handle, known.last_seen_us, samples);
  const auto key = [](const Sample& sample) { return std::pair(sample.pid, sample.timestamp_us); };
  decltype(known.seen) told;
  const bool from_start = code == NvmlCode::not_found || known.seen.size() > most_samples;
  if (from_start && known.last_seen_us > 0) code = ask_samples(handle, 0, samples);
  for (const Sample& sample : samples) told.insert(key(sample));
  std::erase_if(samples, [&](const Sample& sample) { return known.seen.contains(key(sample)); });
  if (from_start) known.seen = std::move(told);
  else known.seen.merge(told);
  if (!samples.empty()) known.last_seen_us = std::ranges::max(samples, {}, &Sample::timestamp_us).timestamp_us;
  return code;
}

void Utilisation::ask_processes(NvmlDevice handle, const GpuDevice& device, Known& known) const {
  known.of_pid.clear();
  if (samples_ == nullptr || !known.asks_processes) return;
  std::vector<Sample> samples;
  const NvmlCode code = new_samples(handle, known, samples);
  if (is_final(code)) known.asks_processes = false;
  if (code != NvmlCode::success && code != NvmlCode::not_found) return;
  // The device worked, and the driver has no sample of anybody: nobody is known to be idle.
  if (samples.empty() && known.percent.value_or(0) >= real_work) return;
  // The driver has samples of busy processes only: no sample since the last reading means that a process did nothing.
  for (const GpuProcess& process : device.processes) known.of_pid[process.process.pid] = {};
  for (const Sample& sample : samples) {
    const auto listed = known.of_pid.find(static_cast<std::int32_t>(sample.pid));
    if (listed != known.of_pid.end()) listed->second.add(sample);
  }
}

void Utilisation::read(NvmlDevice handle, GpuDevice& device, std::int64_t now_ns) {
  Known& known = known_[device.index];
  if (known.read_ns == 0 || now_ns - known.read_ns >= sampling_ns) {
    ask_device(handle, known);
    ask_processes(handle, device, known);
    known.read_ns = now_ns;
  }
  device.busy_percent = known.percent;
  for (GpuProcess& process : device.processes) {
    const auto found = known.of_pid.find(process.process.pid);
    process.busy_percent = found == known.of_pid.end() ? std::nullopt : found->second.busy;
    process.computing_percent = found == known.of_pid.end() ? std::nullopt : found->second.computing;
  }
}

}  // namespace sublet::gpu
