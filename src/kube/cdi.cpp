// SPDX-License-Identifier: Apache-2.0
#include "kube/cdi.h"

#include "kube/claim.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

namespace sublet::kube {

using nlohmann::json;

std::string cdi_id(const std::string& claim_uid) { return fmt::format("{}/claim={}", driver_name, claim_uid); }

std::string cdi_file(const std::string& cdi_dir, const std::string& claim_uid) {
  return fmt::format("{}/{}-{}.json", cdi_dir, driver_name, claim_uid);
}

json cdi_content(const std::string& claim_uid, const Handout& handout) {
  json environment = json::array(), mounts = json::array(), nodes = json::array();
  for (const auto& [name, value] : handout.environment) environment.push_back(name + "=" + value);
  for (const MountedFile& file : handout.mounts)
    mounts.push_back({{"hostPath", file.host},
                      {"containerPath", file.container},
                      {"options", {file.read_only ? "ro" : "rw", "nosuid", "nodev", "bind"}}});
  for (const std::string& node : handout.devices) nodes.push_back({{"path", node}});
  json edits{{"env", std::move(environment)}, {"mounts", std::move(mounts)}};
  if (!nodes.empty()) edits["deviceNodes"] = std::move(nodes);
  return {{"cdiVersion", "0.6.0"},
          {"kind", fmt::format("{}/claim", driver_name)},
          {"devices", json::array({{{"name", claim_uid}, {"containerEdits", std::move(edits)}}})}};
}

std::vector<std::string> vendor_ids(const std::string& cdi_dir, const std::vector<Card>& cards) {
  std::vector<std::string> ids;
  const std::string files[] = {cdi_dir + "/nvidia.yaml", cdi_dir + "/nvidia.json", "/etc/cdi/nvidia.yaml",
                               "/etc/cdi/nvidia.json"};
  const auto exists = [](const std::string& file) { return ::access(file.c_str(), F_OK) == 0; };
  if (std::ranges::none_of(files, exists)) return ids;
  for (const Card& card : cards)
    if (!card.simulated) ids.push_back("nvidia.com/gpu=" + card.uuid);
  return ids;
}

}  // namespace sublet::kube
