// SPDX-License-Identifier: Apache-2.0
#include "kube/strays.h"

#include "base/log.h"
#include "kube/claim.h"
#include "kube/groups.h"
#include "kube/pod_event.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

namespace sublet::kube {
namespace {

using nlohmann::json;

// "": it runs outside of all pods. Unset: it has ended.
std::optional<std::string> pod_of_process(std::int32_t pid) {
  const auto root = proc::ProcRoot::open();
  const auto groups = root ? proc::cgroups_of(*root, pid) : Result<proc::ProcessCgroups>(root.error());
  if (!groups) return std::nullopt;
  std::string uid = pod_of_path(groups->v2);
  for (auto at = groups->v1.begin(); uid.empty() && at != groups->v1.end(); ++at) uid = pod_of_path(at->second);
  return uid;
}

// The pods of this node, by the uid in the names of their groups.
Result<std::map<std::string, PodEvent>> pods_here(const Pods& all) {
  const auto objects = all.on_node();
  if (!objects) return objects.error();
  std::map<std::string, PodEvent> pods;
  for (const json& object : *objects)
    if (const auto pod = parse_pod(object)) pods[pod->group_uid] = {pod->name, pod->uid, "VramWithoutLease", {}, true};
  return pods;
}

}  // namespace

std::string pod_of_path(std::string_view path) {
  for (std::size_t at = path.find('/', 1);; at = path.find('/', at + 1)) {
    if (std::string uid = uid_of_group(path.substr(0, at)); !uid.empty()) return uid;
    if (at == std::string_view::npos) return {};
  }
}

Status StrayTeller::look() {
  const auto verdicts = daemon_.verdicts();
  if (!verdicts) return verdicts.error();
  std::map<std::string, const json*> found;  // by the pod's uid; "": of no pod
  std::set<std::int64_t> open;
  for (const json& verdict : *verdicts) {
    const std::int64_t id = verdict.value("id", std::int64_t{0});
    open.insert(id);
    if (told_.contains(id)) continue;
    auto uid = pod_of_process(verdict.value("pid", 0));
    if (uid && (!uid->empty() || !verdict.value("graphics_only", false))) found.emplace(std::move(*uid), &verdict);
    else told_.insert(id);
  }
  std::erase_if(told_, [&open](std::int64_t id) { return !open.contains(id); });
  if (found.empty()) return {};
  auto pods = pods_here(pods_);
  if (!pods) return pods.error();
  pods->insert_or_assign("", PodEvent{{"", settings_.node}, {}, "VramWithoutLease", {}, true});
  Status all_written;
  for (const auto& [uid, verdict] : found) {
    if (const auto place = pods->find(uid); place != pods->end()) {  // else the pod is deleted already
      PodEvent& event = place->second;
      const std::string hint =
          fmt::format("ask for {} or a claim of {}", resource_name(settings_.rules.unit), driver_name);
      event.message =
          fmt::format("{}; {}", text_at(*verdict, {"summary"}), uid.empty() ? "it runs outside of all pods" : hint);
      if (auto written = write_event(pods_.api(), settings_.node, event); !written) {
        all_written = written;  // such as in a namespace that is being deleted; the others are told
        continue;
      }
      log::warn("{} uses a card without a lease: {}", uid.empty() ? "a process" : "pod " + to_text(event.pod),
                event.message);
    }
    told_.insert(verdict->value("id", std::int64_t{0}));
  }
  return all_written;
}

}  // namespace sublet::kube
