// SPDX-License-Identifier: Apache-2.0
// The claims that this node has prepared, as files: they outlive the agent.
#pragma once

#include "kube/claim.h"

#include <optional>
#include <string>
#include <vector>

namespace sublet::kube {

struct Prepared {
  ClaimName claim;
  std::string pod_group_uid;  // of the pod whose lease it is
};

Status remember(const std::string& state_dir, const Prepared& prepared);
std::optional<Prepared> recall(const std::string& state_dir, const std::string& claim_uid);
std::vector<Prepared> all_prepared(const std::string& state_dir);

// Removes the claim's record, its state and its CDI file. Nothing there is no error.
void forget(const std::string& state_dir, const std::string& cdi_dir, const std::string& claim_uid);

// Whether the uid can be a part of a path.
bool is_plain_uid(const std::string& uid);

}  // namespace sublet::kube
