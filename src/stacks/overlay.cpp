// SPDX-License-Identifier: Apache-2.0
#include "stacks/overlay.h"

#include "base/in_container.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <set>

namespace sublet::stacks {

namespace {

using nlohmann::json;

// For the lease's devices, in the way in which the file asked, and with the capabilities and options that it asked for.
json device_request(const compose::Service& service, std::vector<std::string> devices) {
  const bool cdi = service.gpu == compose::GpuRequest::cdi;
  if (cdi)
    for (std::string& device : devices) device = "nvidia.com/gpu=" + device;
  std::set<std::string> capabilities(service.gpu_capabilities.begin(), service.gpu_capabilities.end());
  capabilities.insert("gpu");
  json request{{"driver", cdi ? "cdi" : "nvidia"}, {"device_ids", devices}, {"capabilities", capabilities}};
  if (!service.gpu_options.empty()) request["options"] = service.gpu_options;
  return request;
}

}  // namespace

std::string make_overlay(const compose::Description& stack, const Grant& grant) {
  const std::string devices = fmt::format("{}", fmt::join(grant.devices, ","));
  json environment(grant.environment);
  environment["CUDA_VISIBLE_DEVICES"] = environment["NVIDIA_VISIBLE_DEVICES"] = devices;
  environment["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID";
  environment["SUBLET_LEASE"] = to_string(grant.lease);
  const json common{
      {"environment", std::move(environment)},
      {"labels",
       {{"sublet.lease", to_string(grant.lease)}, {"sublet.stack", grant.stack}, {"sublet.file", stack.file}}}};
  json services = json::object();
  for (const compose::Service& one : stack.services) {
    json& service = services[one.name] = common;
    if (std::ranges::count(grant.interposed, one.name) > 0)
      service["environment"]["SUBLET_CREDIT"] = in_container::credit_socket;
    if (one.gpu == compose::GpuRequest::none && !grant.gpu_runtime) continue;
    service["deploy"]["resources"]["reservations"]["devices"] = json::array({device_request(one, grant.devices)});
  }
  return json{{"services", std::move(services)}}.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

}  // namespace sublet::stacks
