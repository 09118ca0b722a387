// SPDX-License-Identifier: Apache-2.0
#include "compose/gpu_request.h"

#include <gtest/gtest.h>

namespace sublet::compose {
namespace {

using nlohmann::json;

TEST(GpuRequest, EachNotationIsTaken) {
  const struct {
    const char* service;
    GpuRequest request;
    const char* rest;
  } cases[] = {
      {R"({"image":"a"})", GpuRequest::none, R"({"image":"a"})"},
      {R"({"deploy":{"resources":{"reservations":{"devices":[
          {"driver":"nvidia","count":-1,"capabilities":["gpu"]}]}}}})",
       GpuRequest::nvidia, R"({"deploy":{"resources":{"reservations":{}}}})"},
      {R"({"deploy":{"replicas":1,"resources":{"reservations":{"devices":[
          {"capabilities":["gpu","utility"],"device_ids":["1"]},{"driver":"tpu","capabilities":["tpu"]}]}}}})",
       GpuRequest::nvidia,
       R"({"deploy":{"replicas":1,"resources":{"reservations":{"devices":[
          {"driver":"tpu","capabilities":["tpu"]}]}}}})"},
      {R"({"deploy":{"resources":{"reservations":{"devices":[{"capabilities":[["gpu"]]}]}}}})", GpuRequest::nvidia,
       R"({"deploy":{"resources":{"reservations":{}}}})"},
      {R"({"gpus":[{"count":-1}]})", GpuRequest::nvidia, "{}"},
      {R"({"gpus":"all"})", GpuRequest::nvidia, "{}"},
      {R"({"runtime":"nvidia"})", GpuRequest::nvidia, "{}"},
      {R"({"runtime":"kata"})", GpuRequest::none, R"({"runtime":"kata"})"},
      {R"({"devices":["nvidia.com/gpu=all","/dev/snd"]})", GpuRequest::cdi, R"({"devices":["/dev/snd"]})"},
      {R"({"devices":[{"source":"nvidia.com/gpu=0","target":"nvidia.com/gpu=0"}]})", GpuRequest::cdi, "{}"},
      {R"({"deploy":{"resources":{"reservations":{"devices":[
          {"driver":"cdi","device_ids":["nvidia.com/gpu=all"]}]}}}})",
       GpuRequest::cdi, R"({"deploy":{"resources":{"reservations":{}}}})"},
      {R"({"deploy":{"resources":{"reservations":{"devices":[
          {"driver":"cdi","device_ids":["vendor.com/nic=0"]}]}}}})",
       GpuRequest::none, R"({"deploy":{"resources":{"reservations":{"devices":[
          {"driver":"cdi","device_ids":["vendor.com/nic=0"]}]}}}})"},
      {R"({"gpus":"all","devices":["nvidia.com/gpu=0"]})", GpuRequest::nvidia, "{}"},
      {R"({"devices":["management.nvidia.com/gpu=all","nvidia.com/mig=0:1"]})", GpuRequest::cdi, "{}"},
      {R"({"devices":["notnvidia.com/gpu=all","/srv/nvidia.com/a=b"]})", GpuRequest::none,
       R"({"devices":["notnvidia.com/gpu=all","/srv/nvidia.com/a=b"]})"},
      {R"({"volumes":["/dev/null:/var/run/nvidia-container-devices/all","/data:/data"]})", GpuRequest::nvidia,
       R"({"volumes":["/data:/data"]})"},
      {R"({"volumes":[{"type":"bind","source":"/dev/null","target":"/var/run/nvidia-container-devices/all"}]})",
       GpuRequest::nvidia, "{}"},
  };
  for (const auto& one : cases) {
    json service = json::parse(one.service);
    Service taken;
    take_gpu_request(service, taken);
    EXPECT_EQ(taken.gpu, one.request) << one.service;
    EXPECT_EQ(service, json::parse(one.rest));
  }
}

TEST(GpuRequest, CapabilitiesAndOptionsStay) {
  for (const char* text :
       {R"({"deploy":{"resources":{"reservations":{"devices":[
           {"driver":"nvidia","count":1,"capabilities":["gpu","video"],"options":{"k":"v"}}]}}}})",
        R"({"deploy":{"resources":{"reservations":{"devices":[
           {"driver":"nvidia","capabilities":[["video","gpu"]],"options":["k=v"]}]}}}})",
        R"({"gpus":[{"count":-1,"capabilities":["gpu"]},{"capabilities":["video"],"options":{"k":"v"}}]})"}) {
    json service = json::parse(text);
    Service taken;
    take_gpu_request(service, taken);
    EXPECT_EQ(taken.gpu_capabilities, (std::vector<std::string>{"gpu", "video"})) << text;
    EXPECT_EQ(taken.gpu_options, (std::map<std::string, std::string>{{"k", "v"}})) << text;
  }
}

}  // namespace
}  // namespace sublet::compose
