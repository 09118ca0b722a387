// SPDX-License-Identifier: Apache-2.0
#include "keep/environment.h"

#include <fmt/format.h>
#include <map>

namespace sublet::keep {

std::vector<std::string> program_environment(const char* const* ours, const client::Endpoint& endpoint,
                                             const client::Lease& lease, const nlohmann::json& program_env) {
  std::map<std::string, std::string> set{
      {"CUDA_DEVICE_ORDER", "PCI_BUS_ID"},
      {"CUDA_VISIBLE_DEVICES", fmt::format("{}", fmt::join(lease.devices, ","))},
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
