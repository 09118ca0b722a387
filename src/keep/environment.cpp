// SPDX-License-Identifier: Apache-2.0
#include "keep/environment.h"

#include "base/number.h"
#include "base/text.h"

#include <fmt/format.h>
#include <algorithm>
#include <map>
#include <optional>

namespace sublet::keep {
namespace {

using nlohmann::json;

std::string value_of(const char* const* ours, std::string_view name) {
  for (const char* const* entry = ours; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    if (text.size() > name.size() && text.starts_with(name) && text[name.size()] == '=')
      return std::string(text.substr(name.size() + 1));
  }
  return {};
}

std::optional<std::int64_t> index_of(const std::string& uuid, const json& status) {
  if (!status.is_object() || !status.contains("devices")) return std::nullopt;
  // A MIG slice has no index that CUDA reads.
  for (const json& device : status.at("devices"))
    if (device.value("slice", json()).is_null() && device.value("uuid", "") == uuid && device.contains("index"))
      return device.at("index").get<std::int64_t>();
  return std::nullopt;
}

// The place of a device in the caller's list, by its index, name or UUID; beyond its end if the list does not name the
// device.
std::size_t place_of(const std::string& uuid, std::string_view visible, const json& status) {
  const auto index = index_of(uuid, status);
  std::size_t place = 0;
  for (std::size_t at = 0; at <= visible.size(); ++place) {
    const auto comma = std::min(visible.find(',', at), visible.size());
    std::string_view entry = visible.substr(at, comma - at);
    while (entry.starts_with(' ')) entry.remove_prefix(1);
    while (entry.ends_with(' ')) entry.remove_suffix(1);
    const auto number = parse_number<std::int64_t>(entry.starts_with("gpu") ? entry.substr(3) : entry);
    if (number ? number == index : !entry.empty() && uuid.starts_with(entry)) return place;
    at = comma + 1;
  }
  return place;
}

}  // namespace

std::vector<std::string> ordered_devices(std::vector<std::string> uuids, std::string_view visible, const json& status) {
  std::ranges::stable_sort(uuids, {}, [&](const std::string& uuid) { return place_of(uuid, visible, status); });
  return uuids;
}

std::string visible_devices(std::vector<std::string> uuids, std::string_view visible, bool by_index,
                            const json& status) {
  uuids = ordered_devices(std::move(uuids), visible, status);
  for (std::string& uuid : uuids)
    if (const auto index = by_index ? index_of(uuid, status) : std::nullopt) uuid = fmt::format("{}", *index);
  return fmt::format("{}", fmt::join(uuids, ","));
}

std::vector<std::string> program_environment(const char* const* ours, const client::Endpoint& endpoint,
                                             const client::Lease& lease, const json& status) {
  const json program_env = status.is_object() ? status.value("program_env", json()) : json();
  std::string names = value_of(ours, "SUBLET_GPU_NAMES");
  if (names.empty() && status.is_object()) names = status.value("gpu_names", "");
  std::map<std::string, std::string> set{
      {"CUDA_DEVICE_ORDER", "PCI_BUS_ID"},
      {"CUDA_VISIBLE_DEVICES",
       visible_devices(lease.devices, value_of(ours, "CUDA_VISIBLE_DEVICES"), names == "index", status)},
      {"SUBLET_HOST", endpoint.url()},
      {"SUBLET_LEASE", lease.id},
      {"SUBLET_LEASE_BYTES", fmt::format("{}", lease.vram.count)},
  };
  std::string library_path;
  if (program_env.is_object()) {
    for (const auto& [name, value] : program_env.items()) {
      if (!value.is_string() || name.empty() || name.find('=') != std::string::npos) continue;
      (name == "LD_LIBRARY_PATH" ? library_path : set[name]) = value.get<std::string>();
    }
  }
  std::vector<std::string> out;
  for (const char* const* entry = ours; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::string name(text.substr(0, text.find('=')));
    if (set.contains(name) || name == "SUBLET_LEASE_TOKEN_FILE") continue;  // a token of another lease is not passed on
    if (name == "LD_LIBRARY_PATH" && !library_path.empty()) {
      const std::string_view rest = text.substr(std::min(name.size() + 1, text.size()));
      if (!rest.empty() && rest != library_path && !rest.starts_with(library_path + ":")) {
        library_path += fmt::format(":{}", rest);
      } else if (!rest.empty()) {
        library_path = rest;
      }
      continue;
    }
    out.emplace_back(text);
  }
  if (!library_path.empty()) set["LD_LIBRARY_PATH"] = library_path;
  for (const auto& [name, value] : set) out.push_back(fmt::format("{}={}", name, value));
  return out;
}

}  // namespace sublet::keep
