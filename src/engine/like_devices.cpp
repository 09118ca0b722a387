// SPDX-License-Identifier: Apache-2.0
#include "engine/like_devices.h"

#include "base/gpu_spec.h"
#include "base/text.h"
#include "state/format.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace sublet::engine {
namespace {

DescribedGpu described(const core::Device& device, const gpu::Facts* facts) {
  DescribedGpu gpu{device.reading.name, device.reading.total, {}, {}};
  if (facts != nullptr && facts->capability) gpu.capability = static_cast<int>(*facts->capability);
  if (facts != nullptr && facts->nvlinks) gpu.has_nvlink = *facts->nvlinks > 0;
  return gpu;
}

}  // namespace

Result<std::vector<std::string>> like_devices(const Engine& engine, std::string_view text,
                                              const std::vector<std::string>& named, int count) {
  const auto spec = GpuSpec::parse(text);
  if (!spec) return spec.error();
  std::vector<std::string> meet, all;
  for (const auto& [uuid, device] : engine.state().devices.by_uuid) {
    if (!device.read_at) continue;
    const DescribedGpu gpu = described(device, engine.observer().condition(uuid));
    all.push_back(fmt::format("{} ({})", core::name_of(device), describe(gpu)));
    if ((named.empty() || std::ranges::count(named, uuid) > 0) && spec->matches(gpu)) meet.push_back(uuid);
  }
  if (all.empty()) return unavailable("the daemon has not read any GPU yet", "try again in a moment");
  std::ranges::sort(meet);
  if (std::ssize(meet) >= count) return meet;
  const std::string among = named.empty() ? "" : " of the devices that the request names";
  std::ranges::sort(all);
  return not_found(meet.empty() ? fmt::format("no device{} meets gpu_spec '{}'", among, printable(text))
                                : fmt::format("the lease needs {} devices, and {}{} meet{} gpu_spec '{}'", count,
                                              meet.size(), among, meet.size() == 1 ? "s" : "", printable(text)),
                   fmt::format("the devices are: {}", fmt::join(all, "; ")));
}

}  // namespace sublet::engine
