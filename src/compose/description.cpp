// SPDX-License-Identifier: Apache-2.0
#include "compose/description.h"

#include "base/text.h"
#include "compose/gpu_request.h"
#include "compose/yaml.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace sublet::compose {
namespace {

using nlohmann::json;

constexpr std::size_t longest_name = 63;
constexpr std::string_view extension_key = "x-sublet";

bool is_name(std::string_view name, std::string_view also) {
  const auto small = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); };
  return !name.empty() && name.size() <= longest_name && small(name[0]) &&
         std::all_of(name.begin(), name.end(), [&](char c) { return small(c) || also.find(c) != also.npos; });
}

const json* find(const json& object, std::string_view key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

// Labels are a mapping, or a list of "key=value".
std::map<std::string, std::string> labels_of(const json& service) {
  std::map<std::string, std::string> labels;
  const json* given = find(service, "labels");
  if (given == nullptr) return labels;
  if (given->is_object()) {
    for (const auto& [key, value] : given->items()) labels[key] = scalar_text(value);
  } else if (given->is_array()) {
    for (const json& entry : *given) {
      const std::string text = scalar_text(entry);
      const auto equals = std::min(text.find('='), text.size());
      labels[text.substr(0, equals)] = equals < text.size() ? text.substr(equals + 1) : "";
    }
  }
  return labels;
}

bool has_healthcheck(const json& service) {
  const json* check = find(service, "healthcheck");
  if (check == nullptr || !check->is_object()) return false;
  const json* disable = find(*check, "disable");
  if (disable != nullptr && scalar_text(*disable) == "true") return false;
  const json* test = find(*check, "test");
  if (test != nullptr && test->is_array() && !test->empty()) return scalar_text(test->front()) != "NONE";
  return test == nullptr || scalar_text(*test) != "NONE";
}

int replicas_of(const json& service) {
  const json* count = find(service, "scale");
  if (count == nullptr) {
    const json* deploy = find(service, "deploy");
    count = deploy != nullptr ? find(*deploy, "replicas") : nullptr;
  }
  constexpr std::int64_t most = 1000;
  return count != nullptr && count->is_number_integer()
             ? static_cast<int>(std::clamp<std::int64_t>(count->get<std::int64_t>(), 0, most))
             : 1;
}

Error not_allowed(std::string_view what) {
  return denied(fmt::format("the overlay sets {}: only environment, labels and devices of services may be set", what));
}

bool are_texts(const json& map) {
  return map.is_object() && std::all_of(map.begin(), map.end(), [](const json& entry) { return entry.is_string(); });
}

// Only deploy.resources.reservations.devices, a list.
bool is_device_request(const json& deploy) {
  const json* at = &deploy;
  for (const char* key : {"resources", "reservations", "devices"}) {
    if (!at->is_object() || at->size() != 1 || !at->contains(key)) return false;
    at = &at->at(key);
  }
  return at->is_array();
}

// The file wants the interposer, and each service that would get it can have it.
Status check_interposer(const json* extension, const json& services, const Description& stack) {
  const json* wanted = extension != nullptr ? find(*extension, "interposer") : nullptr;
  if (wanted == nullptr || !wanted->is_boolean() || !wanted->get<bool>()) return {};
  for (const std::string& name : services_with_gpu(stack.services))
    if (const Status fine = check_places(name, services.at(name)); !fine) return fine;
  return {};
}

Status add_mounts(json& services, const json& known, const Interposed& interposed) {
  for (const std::string& name : interposed.services) {
    if (!known.contains(name)) return not_allowed(fmt::format("the unknown service '{}'", printable(name)));
    if (const Status fine = check_places(name, known.at(name)); !fine) return fine;
    json& volumes = services[name]["volumes"] = json::array();
    for (const auto& [source, target] : interposed.mounts) volumes.push_back(fmt::format("{}:{}:ro", source, target));
  }
  return {};
}

}  // namespace

bool is_stack_name(std::string_view name) {
  std::string small(name);
  std::ranges::transform(small, small.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return is_name(small, "_.-");
}
bool is_project_name(std::string_view name) { return is_name(name, "_-"); }

std::string project_of(std::string_view directory_name) {
  std::string project;
  for (const char c : directory_name) {
    const char small = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    if ((small >= 'a' && small <= 'z') || (small >= '0' && small <= '9') || small == '-' || small == '_')
      project += small;
  }
  return project.substr(std::min(project.find_first_not_of("-_"), project.size()));
}

Status read_resolved(const std::string& resolved, const std::string& raw, Description& into) {
  auto whole = read_yaml(resolved, "the resolved configuration of " + into.file);
  if (!whole) return whole.error();
  json* services = whole->root.is_object() && whole->root.contains("services") ? &whole->root["services"] : nullptr;
  if (services == nullptr || !services->is_object() || services->empty()) {
    return bad_request(fmt::format("{} has no services", into.file), "a stack needs at least one service");
  }
  into.services.clear();
  bool requests = false;
  for (auto& [name, service] : services->items()) {
    Service& one =
        into.services.emplace_back(Service{name, labels_of(service), has_healthcheck(service), replicas_of(service)});
    take_gpu_request(service, one);
    requests = requests || one.gpu != GpuRequest::none;
  }
  if (const json* name = find(whole->root, "name"); name != nullptr && name->is_string()) into.project = *name;
  if (!is_project_name(into.project)) {
    return bad_request(fmt::format("'{}' cannot name a Compose project ({})", printable(into.project), into.file),
                       "rename the directory, or set `name:` in the Compose file (Compose 2)");
  }
  const json* extension = find(whole->root, extension_key);
  const auto original = extension == nullptr ? read_yaml(raw, into.file) : Result<Document>(Document());
  if (!original) return original.error();
  if (extension == nullptr) extension = find(original->root, extension_key);
  if (const Status fine = check_interposer(extension, *services, into); !fine) return fine;
  into.extension = extension == nullptr ? "" : extension->dump(-1, ' ', false, json::error_handler_t::replace);
  into.resolved =
      requests ? whole->root.dump(2, ' ', false, json::error_handler_t::replace) + "\n" : resolved;  // JSON is YAML
  return {};
}

Result<std::string> checked_overlay(const std::string& overlay, const std::string& resolved,
                                    const Interposed& interposed) {
  auto whole = read_yaml(overlay, "the overlay");
  if (!whole) return whole.error();
  const auto base = read_yaml(resolved, "the resolved configuration");
  if (!base) return base.error();
  const json* known = find(base->root, "services");
  if (!whole->root.is_object()) return not_allowed("no services");
  for (const auto& [key, services] : whole->root.items()) {
    if (key != "services" || !services.is_object()) return not_allowed(fmt::format("'{}'", printable(key)));
    for (const auto& [name, service] : services.items()) {
      if (known == nullptr || !known->contains(name) || !service.is_object()) {
        return not_allowed(fmt::format("the unknown service '{}'", printable(name)));
      }
      for (const auto& [field, value] : service.items()) {
        const bool allowed = field == "environment" || field == "labels"
                                 ? are_texts(value)
                                 : field == "deploy" && is_device_request(value);
        if (!allowed) return not_allowed(fmt::format("'{}' of service '{}'", printable(field), printable(name)));
      }
    }
  }
  if (!interposed.services.empty()) {
    if (known == nullptr) return not_allowed("no services");
    if (const Status added = add_mounts(whole->root["services"], *known, interposed); !added) return added.error();
  }
  // Compose v1 refuses files of different versions.
  if (const json* version = find(base->root, "version")) whole->root["version"] = scalar_text(*version);
  return whole->root.dump(2, ' ', true, json::error_handler_t::replace) + "\n";
}

}  // namespace sublet::compose
