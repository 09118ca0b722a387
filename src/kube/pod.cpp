// SPDX-License-Identifier: Apache-2.0
#include "kube/pod.h"

#include "base/text.h"
#include "kube/quantity.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace sublet::kube {
namespace {

using nlohmann::json;

constexpr std::array<std::string_view, 5> tiers{"critical", "interactive", "standard", "batch", "spot"};
constexpr std::array<std::string_view, 4> pausables{"auto", "driver", "cooperative", "no"};
constexpr std::array<std::string_view, 2> annotations{"tier", "pausable"};
constexpr std::int64_t critical_from = 1'000'000'000, interactive_from = 1'000;
constexpr std::size_t longest_label = 64;

std::string annotation(const json& object, const char* name) {
  return text_at(object, {"metadata", "annotations", name});
}

std::int64_t number_in(const json& object, const char* name, std::int64_t otherwise) {
  const json& found = member_at(object, {name});
  return found.is_number_integer() ? found.get<std::int64_t>() : otherwise;
}

// The kubelet names a static pod by a hash of 32 hexadecimal digits. The uid of any other pod has dashes.
bool is_static_uid(const std::string& uid) {
  constexpr std::size_t digits = 32;
  return uid.size() == digits && uid.find_first_not_of("0123456789abcdef") == std::string::npos;
}

// The name of what made the pod. A ReplicaSet of a Deployment has the Deployment's name and a hash.
std::string owner_of(const json& object, const std::string& pod) {
  const json& owners = list_at(object, {"metadata", "ownerReferences"});
  if (owners.empty()) return pod;
  std::string name = text_at(owners.front(), {"name"});
  const std::string hash = text_at(object, {"metadata", "labels", "pod-template-hash"});
  if (!hash.empty() && name.ends_with("-" + hash)) name.resize(name.size() - hash.size() - 1);
  return name.empty() ? pod : name;
}

// The probes of a paused container fail. `sublet-probe` as the program of a probe answers for a paused lease.
std::optional<Duration> patience_of(const json& probe) {
  constexpr std::int64_t usual_period = 10, usual_failures = 3;
  if (!probe.is_object()) return std::nullopt;
  const json& command = list_at(probe, {"exec", "command"});
  if (!command.empty() && command.front().is_string() && command.front().get<std::string>().ends_with("sublet-probe"))
    return std::nullopt;
  const std::int64_t period = std::clamp<std::int64_t>(number_in(probe, "periodSeconds", usual_period), 1, 86'400);
  const std::int64_t most = std::clamp<std::int64_t>(number_in(probe, "failureThreshold", usual_failures), 1, 86'400);
  return std::chrono::seconds(period * most);
}

std::map<std::string, std::int64_t> init_amounts_of(const json& spec) {
  std::map<std::string, std::int64_t> most;
  for (const json& container : list_at(spec, {"initContainers"}))
    if (const json& limits = member_at(container, {"resources", "limits"}); limits.is_object())
      for (const auto& [name, amount] : limits.items())
        if (name.starts_with("sublet.dev/")) {
          const auto count = parse_quantity(amount.is_string() ? amount.get<std::string>() : amount.dump());
          if (count) most[name] = std::max(most[name], count->count);
        }
  return most;
}

}  // namespace

const json& member_at(const json& object, std::initializer_list<const char*> path) {
  static const json none;
  const json* at = &object;
  for (const char* name : path) {
    if (!at->is_object()) return none;
    const auto found = at->find(name);
    if (found == at->end()) return none;
    at = &*found;
  }
  return *at;
}

const json& list_at(const json& object, std::initializer_list<const char*> path) {
  static const json none = json::array();
  const json& found = member_at(object, path);
  return found.is_array() ? found : none;
}

std::string text_at(const json& object, std::initializer_list<const char*> path) {
  const json& found = member_at(object, path);
  return found.is_string() ? found.get<std::string>() : std::string();
}

std::string to_text(const PodName& pod) { return pod.space + "/" + pod.name; }

Result<Pod> parse_pod(const json& object) {
  Pod pod;
  pod.name = {text_at(object, {"metadata", "namespace"}), text_at(object, {"metadata", "name"})};
  pod.uid = text_at(object, {"metadata", "uid"});
  if (pod.name.space.empty() || pod.name.name.empty() || pod.uid.empty())
    return bad_request("the API server's answer is no pod");
  const std::string mirror = annotation(object, "kubernetes.io/config.mirror");
  pod.group_uid = is_static_uid(mirror) ? mirror : pod.uid;
  pod.node = text_at(object, {"spec", "nodeName"});
  pod.owner = owner_of(object, pod.name.name);
  const json& spec = member_at(object, {"spec"});
  pod.priority_class = text_at(spec, {"priorityClassName"});
  pod.priority = number_in(spec, "priority", 0);
  pod.tier = annotation(object, "sublet.dev/tier");
  if (!pod.tier.empty() && std::ranges::count(tiers, pod.tier) == 0)
    return bad_request(fmt::format("pod {} has the annotation sublet.dev/tier={}{}", to_text(pod.name),
                                   printable(pod.tier), did_you_mean(pod.tier, tiers)),
                       fmt::format("one of {}", fmt::join(tiers, ", ")));
  pod.pausable = annotation(object, "sublet.dev/pausable");
  if (pod.pausable.empty()) pod.pausable = "auto";
  if (std::ranges::count(pausables, pod.pausable) == 0)
    return bad_request(fmt::format("pod {} has the annotation sublet.dev/pausable={}{}", to_text(pod.name),
                                   printable(pod.pausable), did_you_mean(pod.pausable, pausables)),
                       fmt::format("one of {}", fmt::join(pausables, ", ")));
  for (const char* list : {"containers", "initContainers"})  // sidecars are among the latter
    for (const json& container : list_at(spec, {list}))
      for (const char* probe : {"livenessProbe", "startupProbe"})
        if (const auto patience = patience_of(member_at(container, {probe}))) {
          if (!pod.patience) pod.guard = fmt::format("{} of {}", probe, printable(text_at(container, {"name"})));
          pod.patience = std::min(*patience, pod.patience.value_or(*patience));
        }
  // Its probe would end a paused container, and how long a pause lasts is not known before.
  if (pod.patience && pod.pausable == "auto") pod.pausable = "no";
  else pod.guard.clear();
  pod.init_amounts = init_amounts_of(spec);
  const std::string phase = text_at(object, {"status", "phase"});
  pod.ended = phase == "Succeeded" || phase == "Failed";
  return pod;
}

Status check_annotations(const json& object) {
  constexpr std::string_view prefix = "sublet.dev/";
  const json& given = member_at(object, {"metadata", "annotations"});
  if (!given.is_object()) return {};
  for (const auto& [name, value] : given.items()) {
    if (!name.starts_with(prefix)) continue;
    const std::string word = name.substr(prefix.size());
    if (std::ranges::count(annotations, word) == 0)
      return bad_request(
          fmt::format("pod {}/{} has the annotation {}, which is unknown{}", text_at(object, {"metadata", "namespace"}),
                      text_at(object, {"metadata", "name"}), printable(name), did_you_mean(word, annotations)),
          fmt::format("sublet.dev/{}", fmt::join(annotations, " or sublet.dev/")));
  }
  return {};
}

std::string tier_of_class(const std::string& annotation, std::int64_t priority) {
  if (std::ranges::count(tiers, annotation) > 0) return annotation;
  if (priority >= critical_from) return "critical";
  if (priority >= interactive_from) return "interactive";
  return priority < 0 ? "batch" : "standard";
}

bool is_tier(const std::string& word) { return std::ranges::count(tiers, word) > 0; }

std::string tier_of(const Pod& pod, const std::string& of_class) {
  const auto place = [](const std::string& tier) { return std::ranges::find(tiers, tier) - tiers.begin(); };
  std::string tier = of_class;
  for (const std::string& wish : {pod.highest_tier, pod.tier})
    if (!wish.empty() && place(wish) > place(tier)) tier = wish;
  return tier;
}

std::string tag_of(const PodName& pod) {
  constexpr std::uint32_t start = 2'166'136'261, factor = 16'777'619;
  std::string tag = pod.space + "." + pod.name;
  if (tag.size() <= longest_label) return tag;
  std::uint32_t hash = start;
  for (const unsigned char c : tag) hash = (hash ^ c) * factor;
  return fmt::format("{}-{:08x}", tag.substr(0, longest_label - 9), hash);
}

}  // namespace sublet::kube
