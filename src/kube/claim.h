// SPDX-License-Identifier: Apache-2.0
// A ResourceClaim that the scheduler has given cards of this node. Pure functions.
#pragma once

#include "kube/pod.h"
#include "kube/units.h"

#include <map>
#include <string>
#include <vector>

namespace sublet::kube {

inline constexpr const char* driver_name = "vram.sublet.dev";

struct ClaimName {
  std::string space, name, uid;
};

// A device of the claim: a part of a card.
struct ClaimedDevice {
  std::string request, pool, device, share_id;  // share_id: "" without one
  Bytes vram, guaranteed;
};

struct ClaimUser {
  PodName pod;
  std::string uid;
};

struct Claim {
  ClaimName name;
  std::vector<ClaimedDevice> devices;      // of this driver and node
  std::vector<ClaimUser> users;            // pods that may use it
  std::string class_tier, class_pausable;  // of the DeviceClass; "": none
  std::string tier, pausable;              // of the claim; "": none
  int share = 0;                           // smallest percent of a card's computing time; 0: no bound
};

// BadRequest with the reason if the claim has no device here, or if its parameters are wrong. `node`: the pool.
Result<Claim> parse_claim(const nlohmann::json& object, const std::string& node);

// How the lease of the pod may be paused. A probe that would end the paused pod is overruled by the claim's own choice
// only, not by "auto" and not by the DeviceClass.
std::string pausable_of(const Claim& claim, const Pod& pod);

// The name of a card in the slice: "gpu-0".
std::string device_name(const Card& card);

// Bytes of the lease on each card, and its cards by UUID. BadRequest if a card is unknown, if `guaranteed` is another
// part than all of it, or if the devices differ in size.
struct ClaimSize {
  Bytes vram;
  std::vector<std::string> cards;
  bool guaranteed = false;  // it is never paused
};
Result<ClaimSize> size_of(const Claim& claim, const std::vector<Card>& cards);

}  // namespace sublet::kube
