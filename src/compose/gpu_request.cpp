// SPDX-License-Identifier: Apache-2.0
#include "compose/gpu_request.h"

#include "compose/yaml.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <set>
#include <string>

namespace sublet::compose {
namespace {

using nlohmann::json;

constexpr std::string_view vendor = "nvidia.com/";
constexpr std::string_view device_mounts = "/var/run/nvidia-container-devices";

// "nvidia.com/gpu=all", "management.nvidia.com/gpu=all", "nvidia.com/mig=..."
bool is_cdi_device(std::string_view text) {
  const auto kind = text.substr(0, text.find('='));
  const auto at = kind.find(vendor);
  return kind.size() < text.size() && at != kind.npos && kind.find('/') == at + vendor.size() - 1 &&
         (at == 0 || kind[at - 1] == '.');
}

json* find(json& from, std::initializer_list<const char*> path) {
  json* at = &from;
  for (const char* key : path) {
    const auto found = at->is_object() ? at->find(key) : at->end();
    if (!at->is_object() || found == at->end()) return nullptr;
    at = &*found;
  }
  return at;
}

std::string field(const json& entry, const char* key) {
  return entry.is_object() && entry.contains(key) ? scalar_text(entry[key]) : std::string();
}

bool names_gpu(const json& list) {
  return list.is_array() && std::ranges::any_of(list, [](const json& each) {
           return scalar_text(each) == "gpu" || names_gpu(each) || is_cdi_device(scalar_text(each));
         });
}

// One entry of `devices` below `deploy`, or of `gpus`.
GpuRequest kind_of(const json& entry) {
  const std::string driver = field(entry, "driver");
  const bool gpu = entry.is_object() && ((entry.contains("capabilities") && names_gpu(entry["capabilities"])) ||
                                         (entry.contains("device_ids") && names_gpu(entry["device_ids"])));
  if (driver == "cdi") return gpu ? GpuRequest::cdi : GpuRequest::none;
  return gpu || driver == "nvidia" ? GpuRequest::nvidia : GpuRequest::none;
}

void note(GpuRequest& all, GpuRequest one) {
  if (one == GpuRequest::nvidia || all == GpuRequest::none) all = one;
}

void add_capabilities(const json& list, std::set<std::string>& into) {
  for (const json& each : list) {
    if (each.is_array()) add_capabilities(each, into);
    else into.insert(scalar_text(each));
  }
}

// Capabilities and options of a request stay. Options are a mapping, or a list of "key=value".
void keep_rest(const json& entry, Service& into) {
  if (!entry.is_object()) return;
  std::set<std::string> capabilities(into.gpu_capabilities.begin(), into.gpu_capabilities.end());
  if (entry.contains("capabilities")) add_capabilities(entry["capabilities"], capabilities);
  into.gpu_capabilities.assign(capabilities.begin(), capabilities.end());
  if (!entry.contains("options")) return;
  for (const auto& [key, value] : entry["options"].items()) {
    const std::string text = scalar_text(value);
    const auto equals = std::min(text.find('='), text.size());
    if (entry["options"].is_object()) into.gpu_options[key] = text;
    else into.gpu_options[text.substr(0, equals)] = equals < text.size() ? text.substr(equals + 1) : "";
  }
}

GpuRequest take_entries(json& list, Service& into) {
  GpuRequest taken = GpuRequest::none;
  json rest = json::array();
  for (json& entry : list) {
    const GpuRequest kind = kind_of(entry);
    if (kind == GpuRequest::none) {
      rest.push_back(std::move(entry));
      continue;
    }
    note(taken, kind);
    keep_rest(entry, into);
  }
  list = std::move(rest);
  return taken;
}

// Devices of the service itself: texts, or mappings with a source.
GpuRequest take_cdi_devices(json& list) {
  json rest = json::array();
  for (json& entry : list) {
    const std::string source = entry.is_object() ? field(entry, "source") : scalar_text(entry);
    if (!is_cdi_device(source)) rest.push_back(std::move(entry));
  }
  const bool any = rest.size() < list.size();
  list = std::move(rest);
  return any ? GpuRequest::cdi : GpuRequest::none;
}

// Mounts whose names the NVIDIA runtime reads as devices.
GpuRequest take_device_mounts(json& list) {
  json rest = json::array();
  for (json& entry : list) {
    const std::string where = entry.is_object() ? field(entry, "target") : scalar_text(entry);
    const bool is_device = entry.is_object() ? where.starts_with(device_mounts)
                                             : where.find(fmt::format(":{}", device_mounts)) != where.npos;
    if (!is_device) rest.push_back(std::move(entry));
  }
  const bool any = rest.size() < list.size();
  list = std::move(rest);
  return any ? GpuRequest::nvidia : GpuRequest::none;
}

}  // namespace

void take_gpu_request(json& service, Service& into) {
  GpuRequest& taken = into.gpu = GpuRequest::none;
  if (!service.is_object()) return;
  if (json* list = find(service, {"deploy", "resources", "reservations", "devices"}); list != nullptr) {
    if (list->is_array()) note(taken, take_entries(*list, into));
    if (list->empty()) find(service, {"deploy", "resources", "reservations"})->erase("devices");
  }
  if (json* gpus = find(service, {"gpus"}); gpus != nullptr) {
    if (!gpus->is_null()) note(taken, GpuRequest::nvidia);
    if (gpus->is_array())
      for (const json& entry : *gpus) keep_rest(entry, into);
    service.erase("gpus");
  }
  if (json* list = find(service, {"devices"}); list != nullptr && list->is_array()) {
    note(taken, take_cdi_devices(*list));
    if (list->empty()) service.erase("devices");
  }
  if (json* list = find(service, {"volumes"}); list != nullptr && list->is_array()) {
    note(taken, take_device_mounts(*list));
    if (list->empty()) service.erase("volumes");
  }
  if (field(service, "runtime") == "nvidia") {
    note(taken, GpuRequest::nvidia);
    service.erase("runtime");
  }
}

}  // namespace sublet::compose
