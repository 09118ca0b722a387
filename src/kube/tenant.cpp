// SPDX-License-Identifier: Apache-2.0
#include "kube/tenant.h"

#include "base/log.h"
#include "base/text.h"
#include "client/http.h"
#include "kube/pod_event.h"
#include "kube/quantity.h"
#include "kube/state_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

namespace sublet::kube {
namespace {

using nlohmann::json;

constexpr std::string_view prefix = "sublet.dev/";
constexpr std::array<std::string_view, 4> known{"quota", "limit", "weight", "tier"};

std::optional<double> parse_weight(const std::string& text) {
  constexpr double least = 0.001, most = 1'000'000;
  double weight = 0;
  const char* end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, weight);
  if (read.ec != std::errc() || read.ptr != end || !(weight >= least && weight <= most)) return std::nullopt;
  return weight;
}

// "": the value is right.
std::string take_label(std::string_view name, const std::string& value, SpaceLabels& into) {
  if (name == "tier") {
    into.tier = value;
    return is_tier(value) ? "" : "critical, interactive, standard, batch or spot";
  }
  if (name == "weight") {
    const auto weight = parse_weight(value);
    if (weight) into.fields["weight"] = *weight;
    return weight ? "" : "a number from 0.001 to 1000000";
  }
  const auto size = parse_quantity(value);
  // A number without a unit is bytes, as in all of Kubernetes: quota=8 is a mistake.
  if (!size || (size->count > 0 && *size < MiB)) return "a size such as 8Gi, at least 1Mi, or 0";
  into.fields[fmt::format("{}_bytes", name)] = size->count;
  return "";
}

}  // namespace

Result<SpaceLabels> parse_space(const json& object) {
  SpaceLabels space;
  const json& labels = member_at(object, {"metadata", "labels"});
  if (!labels.is_object()) return space;
  for (const auto& [label, value] : labels.items()) {
    if (!label.starts_with(prefix)) continue;
    const std::string name = label.substr(prefix.size());
    const std::string space_name = text_at(object, {"metadata", "name"});
    if (std::ranges::count(known, name) == 0)
      return bad_request(fmt::format("namespace {} has the label {}, which is unknown{}", space_name, printable(label),
                                     did_you_mean(name, known)),
                         fmt::format("one of {}", fmt::join(known, ", ")));
    const std::string text = value.is_string() ? value.get<std::string>() : std::string();
    if (const std::string wanted = take_label(name, text, space); !wanted.empty())
      return bad_request(fmt::format("namespace {} has the label {}={}", space_name, label, printable(text)), wanted);
  }
  return space;
}

json tenant_change(const json& wanted, const json& told, const json& entry) {
  json change = json::object();
  for (const auto& [field, value] : wanted.items())
    if (!entry.contains(field) || entry[field] != value) change[field] = value;
  if (told.is_object())
    for (const auto& [field, value] : told.items())
      if (!wanted.contains(field)) change[field] = nullptr;
  return change;
}

Status Tenants::join(Pod& pod) const {
  const auto object = api_.get("/api/v1/namespaces/" + client::encode(pod.name.space));
  // Without the right to read it, a namespace has no labels.
  if (!object && object.error().code == Code::Unavailable) return object.error();
  auto labels = object ? parse_space(*object) : Result<SpaceLabels>(SpaceLabels());
  if (!labels) return labels.error();
  pod.highest_tier = labels->tier;
  const std::scoped_lock lock(changing_);
  if (!object && object.error().code != Code::NotFound) {
    warn(pod, object.error());
    return {};
  }
  const Status kept = keep(pod.name.space, labels->fields);
  if (kept) complained_.erase(pod.name.space);
  else if (kept.error().code == Code::Unavailable) return kept;
  else warn(pod, kept.error());
  return {};
}

Status Tenants::keep(const std::string& space, const json& wanted) const {
  const std::string directory = settings_.state_dir + "/tenants", path = fmt::format("{}/{}.json", directory, space);
  const json told = read_json_file(path);
  if (wanted.empty() && !told.is_object()) return {};
  const auto entry = daemon_.tenant(space);
  if (!entry) return entry.error();
  const json change = tenant_change(wanted, told, *entry);
  if (change.empty()) return {};
  // Before the change, so that a label that goes away later is taken back after a crash too.
  if (auto made = make_directory(directory); !made) return made;
  json noted = told.is_object() ? told : json::object();
  noted.update(wanted);
  if (auto written = write_file(path, noted.dump()); !written) return written;
  if (auto changed = daemon_.change_tenant(space, change); !changed) return changed;
  log::info("tenant {}: {}", space, change.dump());
  if (!wanted.empty()) return write_file(path, wanted.dump());
  ::unlink(path.c_str());
  return {};
}

void Tenants::warn(const Pod& pod, const Error& problem) const {
  const std::string text = problem.hint.empty() ? problem.detail : fmt::format("{}; {}", problem.detail, problem.hint);
  if (std::exchange(complained_[pod.name.space], text) == text) return;
  log::warn("the labels of namespace {} are not in force: {}", pod.name.space, text);
  const PodEvent event{
      pod.name, pod.uid, "TenantNotSet",
      fmt::format("the labels of namespace {} are not in force on {}: {}", pod.name.space, settings_.node, text), true};
  if (auto told = write_event(api_, settings_.node, event); !told) log::debug("{}", told.error().detail);
}

}  // namespace sublet::kube
