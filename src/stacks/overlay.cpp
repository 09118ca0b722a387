// SPDX-License-Identifier: Apache-2.0
#include "stacks/overlay.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace sublet::stacks {

using nlohmann::json;

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
  return json{{"services", std::move(services)}}.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

}  // namespace sublet::stacks
