// SPDX-License-Identifier: Apache-2.0
// A pod as the agent needs it, from the API server's JSON. Pure functions.
#pragma once

#include "base/error.h"
#include "base/units.h"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace sublet::kube {

struct PodName {
  std::string space, name;  // namespace and name
  auto operator<=>(const PodName&) const = default;
};
std::string to_text(const PodName& pod);  // "vision/train-0"

struct Pod {
  PodName name;
  std::string uid;        // that of its object in the API
  std::string group_uid;  // that in the name of its control group: differs for static pods
  std::string node;       // that it was placed on
  std::string owner;      // its Deployment, Job or the like; its own name without one
  std::string priority_class;
  std::int64_t priority = 0;
  std::string tier;                  // wish of its annotation; "": none
  std::string highest_tier;          // of its namespace, set by Tenants::join; "": any
  std::string pausable;              // of its annotation, or "auto"; instead of "auto" "no" if a probe would end it
  std::optional<Duration> patience;  // shortest time after which a probe ends a paused container
  std::string guard;                 // the probe for which it is not paused: "livenessProbe of web"; "": none
  // Largest amount that one init container asks for, by resource. The kubelet does not list their units.
  std::map<std::string, std::int64_t> init_amounts;
  bool ended = false;  // Succeeded, Failed, or being deleted without containers
};

// BadRequest if an annotation has a value that does not exist.
Result<Pod> parse_pod(const nlohmann::json& object);

// BadRequest if an annotation sublet.dev/… of the pod is unknown.
Status check_annotations(const nlohmann::json& object);

// The tier of a priority class: its annotation, or by its value.
std::string tier_of_class(const std::string& annotation, std::int64_t priority);
bool is_tier(const std::string& word);
// The tier of a pod. Its namespace and its own wish may only lower that of its class.
std::string tier_of(const Pod& pod, const std::string& of_class);

// The tag of its lease: "vision.train-0", shortened to 64 characters with a hash.
std::string tag_of(const PodName& pod);

// Text at a path of members; "": there is none.
std::string text_at(const nlohmann::json& object, std::initializer_list<const char*> path);
// The member at a path; null: there is none.
const nlohmann::json& member_at(const nlohmann::json& object, std::initializer_list<const char*> path);
// The array at a path; an empty one: there is none.
const nlohmann::json& list_at(const nlohmann::json& object, std::initializer_list<const char*> path);

}  // namespace sublet::kube
