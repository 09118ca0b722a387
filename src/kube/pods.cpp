// SPDX-License-Identifier: Apache-2.0
#include "kube/pods.h"

#include "base/log.h"
#include "base/text.h"
#include "client/http.h"
#include "kube/groups.h"
#include "kube/pod_event.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

namespace sublet::kube {

Result<std::vector<PodUnits>> Pods::listed() const {
  return list_pods(settings_.kubelet_dir, resource_name(settings_.rules.unit));
}

Result<nlohmann::json> Pods::object_of(const PodName& name) const {
  return api_.get(fmt::format("/api/v1/namespaces/{}/pods/{}", client::encode(name.space), client::encode(name.name)));
}

Result<PodUnits> Pods::having(const std::vector<std::string>& units) const {
  auto pods = listed();
  if (!pods) return pods.error();
  const std::set<std::string> wanted(units.begin(), units.end());
  for (PodUnits& pod : *pods)
    for (const auto& container : pod.containers)
      if (std::ranges::any_of(container, [&wanted](const std::string& id) { return wanted.contains(id); }))
        return std::move(pod);
  return with_init_units(units.size(), *pods);
}

// The kubelet lists no init containers. The pod is known if one pod alone can be meant.
Result<PodUnits> Pods::with_init_units(std::size_t count, const std::vector<PodUnits>& listed) const {
  const auto objects = on_node();
  if (!objects) return objects.error();
  std::vector<PodUnits> fitting;
  for (const auto& object : *objects) {
    const auto pod = parse_pod(object);
    if (!pod || text_at(object, {"status", "phase"}) != "Pending") continue;
    const auto asked = pod->init_amounts.find(resource_name(settings_.rules.unit));
    if (asked == pod->init_amounts.end() || std::cmp_less(asked->second, count)) continue;
    const auto is_other = [&](const PodUnits& one) { return one.containers.empty() || one.name != pod->name; };
    if (std::ranges::all_of(listed, is_other)) fitting.push_back({pod->name, {}});
  }
  if (fitting.size() == 1) return std::move(fitting.front());
  return not_found("the kubelet lists no pod with these units yet", "the kubelet asks again");
}

Result<nlohmann::json> Pods::on_node() const {
  const auto pods = listed();
  if (!pods) return pods.error();
  nlohmann::json objects = nlohmann::json::array();
  for (const PodUnits& pod : *pods) {
    auto object = object_of(pod.name);
    if (object) objects.push_back(std::move(*object));
    else if (object.error().code != Code::NotFound) return object.error();
  }
  return Result<nlohmann::json>(boost::system::in_place_value, std::move(objects));
}

Result<Pod> Pods::read(const PodName& name) const {
  auto object = object_of(name);
  if (!object) return object.error();
  if (auto known = check_annotations(*object); !known) return known.error();
  auto pod = parse_pod(*object);
  if (pod && pod->node != settings_.node)
    return bad_request(
        fmt::format("pod {} is on node '{}' and not on {}", to_text(name), printable(pod->node), settings_.node),
        "check --node-name");
  return pod;
}

void Pods::tell_guard(const Pod& pod) const {
  if (pod.guard.empty()) return;
  const std::string text = fmt::format(
      "the pod is never paused, because the {} would end it; a probe by sublet-probe allows pauses", pod.guard);
  log::info("pod {}: {}", to_text(pod.name), text);
  const PodEvent event{pod.name, pod.uid, "NotPausable", text, false};
  if (auto told = write_event(api_, settings_.node, event); !told) log::debug("{}", told.error().detail);
}

Result<std::string> Pods::tier(const Pod& pod) const {
  std::string annotation;
  if (!pod.priority_class.empty()) {
    const auto object = api_.get("/apis/scheduling.k8s.io/v1/priorityclasses/" + client::encode(pod.priority_class));
    // A class may be deleted while its pods live; without the right to read it, its value alone counts.
    if (!object && object.error().code == Code::Unavailable) return object.error();
    if (object) annotation = text_at(*object, {"metadata", "annotations", "sublet.dev/tier"});
  }
  return tier_of(pod, tier_of_class(annotation, pod.priority));
}

Result<std::string> Pods::group(const Pod& pod) const {
  const auto root = proc::ProcRoot::open();
  if (!root) return root.error();
  const auto hierarchies = proc::find_hierarchies(*root);
  if (!hierarchies) return hierarchies.error();
  return find_group(*hierarchies, settings_.cgroup_root, pod.group_uid);
}

Result<Need> Pods::need(const Pod& pod, const PodUnits& units, const std::vector<std::string>& starting) const {
  const auto init = pod.init_amounts.find(resource_name(settings_.rules.unit));
  auto found = need_of_units(units.containers, starting, init == pod.init_amounts.end() ? 0 : init->second);
  if (found.cards.empty()) return bad_request(fmt::format("pod {} has no units", to_text(pod.name)));
  Need need;
  need.cards = std::move(found.cards);
  need.vram = found.count * settings_.rules.unit;
  auto group = this->group(pod);
  if (!group) return group.error();
  need.group = std::move(*group);
  auto tier = this->tier(pod);
  if (!tier) return tier.error();
  need.tier = std::move(*tier);
  need.pausable = pod.pausable;
  return need;
}

}  // namespace sublet::kube
