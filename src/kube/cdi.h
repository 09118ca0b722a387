// SPDX-License-Identifier: Apache-2.0
// Files of the Container Device Interface, by which the container runtime gives a container what its claim hands out.
#pragma once

#include "kube/handout.h"

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

namespace sublet::kube {

// The id of the claim's device for the runtime: "vram.sublet.dev/claim=UID".
std::string cdi_id(const std::string& claim_uid);
std::string cdi_file(const std::string& cdi_dir, const std::string& claim_uid);
// Pure.
nlohmann::json cdi_content(const std::string& claim_uid, const Handout& handout);

// Ids of the vendor's own devices for these cards, if its file is there. They bring the driver's libraries.
std::vector<std::string> vendor_ids(const std::string& cdi_dir, const std::vector<Card>& cards);

}  // namespace sublet::kube
