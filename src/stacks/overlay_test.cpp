// SPDX-License-Identifier: Apache-2.0
#include "stacks/overlay.h"

#include "compose/interposer.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace sublet::stacks {
namespace {

using nlohmann::json;

json overlay(bool gpu_runtime) {
  compose::Description stack;
  stack.file = "/srv/chat/compose.yaml";
  stack.services = {{"api", {}, true, 1}, {"worker", {}, false, 2}};
  return json::parse(
      make_overlay(stack, {"chat", LeaseId{7}, {"GPU-1", "GPU-2"}, {{"SIMGPU_DIR", "/x"}}, gpu_runtime}));
}

TEST(Overlay, EachServiceGetsTheLease) {
  const json made = overlay(false);
  EXPECT_EQ(made.at("services").size(), 2U);
  for (const char* name : {"api", "worker"}) {
    const json expected{
        {"environment",
         {{"CUDA_VISIBLE_DEVICES", "GPU-1,GPU-2"},
          {"NVIDIA_VISIBLE_DEVICES", "GPU-1,GPU-2"},
          {"CUDA_DEVICE_ORDER", "PCI_BUS_ID"},
          {"SUBLET_LEASE", "lease-7"},
          {"SIMGPU_DIR", "/x"}}},
        {"labels", {{"sublet.lease", "lease-7"}, {"sublet.stack", "chat"}, {"sublet.file", "/srv/chat/compose.yaml"}}}};
    EXPECT_EQ(made.at("services").at(name), expected);
  }
}

TEST(Overlay, AnEngineWithGpusGetsADeviceRequest) {
  const json made = overlay(true);
  const json expected = json::parse(R"([{"driver":"nvidia","device_ids":["GPU-1","GPU-2"],"capabilities":["gpu"]}])");
  EXPECT_EQ(made.at("services").at("api").at("deploy").at("resources").at("reservations").at("devices"), expected);
}

TEST(Overlay, OnlyServicesWithTheInterposerKnowTheSocket) {
  compose::Description stack;
  stack.services = {{"api", {}, true, 1, compose::GpuRequest::nvidia}, {"web", {}, false, 1}};
  const Grant grant{"chat", LeaseId{7}, {"GPU-1"}, {}, true, compose::services_with_gpu(stack.services)};
  const json made = json::parse(make_overlay(stack, grant)).at("services");
  EXPECT_EQ(made.at("api").at("environment").value("SUBLET_CREDIT", ""), "/run/sublet/credit/credit.sock");
  EXPECT_FALSE(made.at("web").at("environment").contains("SUBLET_CREDIT"));
  EXPECT_FALSE(made.at("api").contains("volumes")) << "the worker makes the mounts";
}

TEST(Overlay, ARequestOfTheFileIsReplacedInItsOwnWay) {
  compose::Description stack;
  stack.services = {{"api", {}, true, 1, compose::GpuRequest::nvidia},
                    {"cdi", {}, false, 1, compose::GpuRequest::cdi},
                    {"web", {}, false, 1}};
  const json made = json::parse(make_overlay(stack, {"chat", LeaseId{7}, {"GPU-1"}, {}, false})).at("services");
  const json::json_pointer devices("/deploy/resources/reservations/devices/0");
  EXPECT_EQ(made.at("api").at(devices).at("device_ids"), json::array({"GPU-1"}));
  EXPECT_EQ(made.at("cdi").at(devices).at("device_ids"), json::array({"nvidia.com/gpu=GPU-1"}));
  EXPECT_FALSE(made.at("web").contains("deploy"));
  stack.services[0].gpu_capabilities = {"gpu", "video"};
  stack.services[0].gpu_options = {{"k", "v"}};
  const json kept = json::parse(make_overlay(stack, {"chat", LeaseId{7}, {"GPU-1"}, {}, false})).at("services");
  EXPECT_EQ(kept.at("api").at(devices).at("capabilities"), json::array({"gpu", "video"}));
  EXPECT_EQ(kept.at("api").at(devices).at("options"), json({{"k", "v"}}));
}

}  // namespace
}  // namespace sublet::stacks
