// SPDX-License-Identifier: Apache-2.0
#include "kube/pod_event.h"

#include "base/clock.h"
#include "client/http.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace sublet::kube {
namespace {

using nlohmann::json;

constexpr std::size_t longest_name = 200, uid_part = 8, whole_seconds = 19;

bool is_of_node(const PodEvent& event) { return event.pod.space.empty(); }

std::string name_of(const PodEvent& event, const std::string& node) {
  std::string reason = event.reason;
  std::ranges::transform(reason, reason.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (is_of_node(event)) return fmt::format("{}.{}", node.substr(0, longest_name), reason);
  return fmt::format("{}.{}.{}", event.pod.name.substr(0, longest_name), event.uid.substr(0, uid_part), reason);
}

// The kubelet names a node's uid so, too.
json subject_of(const PodEvent& event, const std::string& node) {
  if (is_of_node(event)) return {{"kind", "Node"}, {"name", node}, {"uid", node}};
  return {{"apiVersion", "v1"},
          {"kind", "Pod"},
          {"name", event.pod.name},
          {"namespace", event.pod.space},
          {"uid", event.uid}};
}

}  // namespace

std::string kube_time(Time at) { return format_rfc3339(at).substr(0, whole_seconds) + "Z"; }

Status write_event(const ApiServer& api, const std::string& node, const PodEvent& event) {
  const std::string name = name_of(event, node), at = kube_time(wall_time());
  const std::string space = is_of_node(event) ? "default" : event.pod.space;
  const std::string events = fmt::format("/api/v1/namespaces/{}/events", client::encode(space));
  const json body{{"apiVersion", "v1"},
                  {"kind", "Event"},
                  {"metadata", {{"name", name}, {"namespace", space}}},
                  {"involvedObject", subject_of(event, node)},
                  {"reason", event.reason},
                  {"message", event.message},
                  {"type", event.warning ? "Warning" : "Normal"},
                  {"count", 1},
                  {"firstTimestamp", at},
                  {"lastTimestamp", at},
                  {"source", {{"component", "sublet-kube"}, {"host", node}}}};
  auto made = api.call("POST", events, body);
  if (!made && made.error().code == Code::InUse) {
    const auto old = api.get(fmt::format("{}/{}", events, name));
    const json& count = old ? member_at(*old, {"count"}) : json();
    made = api.patch(fmt::format("{}/{}", events, name),
                     {{"count", (count.is_number_integer() ? count.get<std::int64_t>() : 0) + 1},
                      {"lastTimestamp", at},
                      {"message", event.message}},
                     merge_patch);
  }
  return made ? Status() : Status(made.error());
}

}  // namespace sublet::kube
