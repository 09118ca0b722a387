// SPDX-License-Identifier: Apache-2.0
#include "stacks/overlay.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <string_view>

namespace sublet::stacks {
namespace {

using nlohmann::json;

// The value of `version`, which older Compose programs want to be the same in all files; "": there is none.
std::string version_of(const std::string& resolved) {
  const json whole = json::parse(resolved, nullptr, false);
  if (whole.is_object()) {
    const auto found = whole.find("version");
    return found != whole.end() && found->is_string() ? found->get<std::string>() : "";
  }
  constexpr std::string_view key = "version:";
  std::size_t at = resolved.starts_with(key) ? 0 : resolved.find("\nversion:");
  if (at == std::string::npos) return "";
  at += (resolved[at] == '\n' ? 1 : 0) + key.size();
  std::string text = resolved.substr(at, resolved.find('\n', at) - at);
  std::erase_if(text, [](char c) { return c == ' ' || c == '\'' || c == '"' || c == '\r'; });
  return text;
}

}  // namespace

std::string make_overlay(const compose::Description& stack, const Grant& grant) {
  json environment(grant.environment);
  environment["CUDA_VISIBLE_DEVICES"] = fmt::format("{}", fmt::join(grant.devices, ","));
  environment["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID";
  environment["SUBLET_LEASE"] = to_string(grant.lease);
  json service{{"environment", std::move(environment)},
               {"labels", {{"sublet.lease", to_string(grant.lease)}, {"sublet.stack", grant.stack}}}};
  if (grant.gpu_runtime) {
    const json request{{"driver", "nvidia"}, {"device_ids", grant.devices}, {"capabilities", json::array({"gpu"})}};
    service["deploy"]["resources"]["reservations"]["devices"] = json::array({request});
  }
  json services = json::object();
  for (const compose::Service& one : stack.services) services[one.name] = service;
  json whole{{"services", std::move(services)}};
  if (const std::string version = version_of(stack.resolved); !version.empty()) whole["version"] = version;
  return whole.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

}  // namespace sublet::stacks
