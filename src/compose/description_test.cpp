// SPDX-License-Identifier: Apache-2.0
#include "compose/description.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace sublet::compose {
namespace {

TEST(StackName, HasLettersDigitsAndThreeSigns) {
  for (const char* good :
       {"a", "0", "ComfyUI", "a-b_c.d", "x23456789012345678901234567890123456789012345678901234567890123"}) {
    EXPECT_TRUE(is_stack_name(good)) << good;
  }
  for (const char* bad : {"", "-a", ".a", "a b", "a/b", "a\n", "..", "ä",
                          "x234567890123456789012345678901234567890123456789012345678901234"}) {
    EXPECT_FALSE(is_stack_name(bad)) << bad;
  }
  EXPECT_FALSE(is_project_name("a.b"));
  EXPECT_FALSE(is_project_name("A"));
}

TEST(ProjectName, IsMadeAsComposeMakesIt) {
  EXPECT_EQ(project_of("ComfyUI"), "comfyui");
  EXPECT_EQ(project_of("a.b c"), "abc");
  EXPECT_EQ(project_of("--a-b_"), "a-b_");
  EXPECT_EQ(project_of("..."), "");
}

Description undescribed() {
  Description stack;
  stack.name = stack.project = "one";
  stack.file = "/s/one/compose.yml";
  return stack;
}

Description described(const std::string& resolved, const std::string& raw = "") {
  Description stack = undescribed();
  const auto read = read_resolved(resolved, raw, stack);
  EXPECT_TRUE(read) << read.error().detail;
  return stack;
}

TEST(Resolved, ServicesHaveLabelsHealthchecksAndReplicas) {
  const Description stack = described(R"(
name: other
services:
  list:
    labels: [gpu.healthcheck-master=true, bare, "a=b=c"]
    healthcheck: {test: ["CMD", "true"]}
    deploy: {replicas: 3}
  map:
    labels: {gpu.healthcheck-master: "true", number: 1, flag: false}
    healthcheck: {disable: true}
    scale: 2
  none:
    healthcheck: {test: ["NONE"]}
  plain:
)");
  EXPECT_EQ(stack.project, "other");
  ASSERT_EQ(stack.services.size(), 4u);
  using Labels = std::map<std::string, std::string>;
  EXPECT_EQ(stack.services[0].labels, (Labels{{"gpu.healthcheck-master", "true"}, {"bare", ""}, {"a", "b=c"}}));
  EXPECT_EQ(stack.services[1].labels, (Labels{{"gpu.healthcheck-master", "true"}, {"number", "1"}, {"flag", "false"}}));
  const bool checks[] = {true, false, false, false};
  const int replicas[] = {3, 2, 1, 1};
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(stack.services[i].healthcheck, checks[i]) << stack.services[i].name;
    EXPECT_EQ(stack.services[i].replicas, replicas[i]) << stack.services[i].name;
  }
}

TEST(Resolved, TheExtensionComesFromTheFileIfComposeLeftItOut) {
  const std::string services = "services: {a: {image: b}}\n";
  EXPECT_EQ(described(services + "x-sublet: {vram: 16GiB}").extension, R"({"vram":"16GiB"})");
  EXPECT_EQ(described(services, services + "x-sublet: {tier: spot, exclusive: true}").extension,
            R"({"exclusive":true,"tier":"spot"})");
  EXPECT_EQ(described(services, services).extension, "");
}

TEST(Resolved, WithoutServicesOrALegalProjectItIsRefused) {
  Description stack = undescribed();
  for (const char* text : {"services: {}", "a: b", "[]", "", "name: A/B\nservices: {a: {image: b}}", "services: ["}) {
    const auto read = read_resolved(text, "", stack);
    ASSERT_FALSE(read) << text;
    EXPECT_NE(read.error().detail.find("/s/one/compose.yml"), std::string::npos) << read.error().detail;
    stack.project = "one";
  }
}

constexpr const char* base = "version: '3.9'\nservices: {web: {image: a}, db: {image: b}}";

TEST(Overlay, SetsEnvironmentLabelsAndDevicesOfKnownServices) {
  const auto checked = checked_overlay(R"(
services:
  web:
    environment: {CUDA_VISIBLE_DEVICES: "0"}
    labels: {sublet.stack: one}
    deploy: {resources: {reservations: {devices: [{driver: nvidia, device_ids: ["0"], capabilities: [gpu]}]}}}
)",
                                       base);
  ASSERT_TRUE(checked) << checked.error().detail;
  const auto whole = nlohmann::json::parse(*checked);
  EXPECT_EQ(whole["version"], "3.9");
  EXPECT_EQ(whole["services"]["web"]["environment"]["CUDA_VISIBLE_DEVICES"], "0");
}

TEST(Overlay, NothingElseIsLetThrough) {
  for (const char* text :
       {"services: {web: {privileged: true}}", "services: {other: {labels: {a: b}}}",
        "services: {web: {volumes: ['/:/host']}}", "services: {web: {environment: {A: 1}}}",
        "services: {web: {environment: [A=1]}}", "services: {web: {deploy: {resources: {limits: {memory: 1g}}}}}",
        "services: {web: {deploy: {replicas: 2, resources: {reservations: {devices: []}}}}}",
        "services: {web: [privileged]}", "volumes: {a: {}}", "include: [/etc/other.yml]", "services: []", "[]", ""}) {
    const auto checked = checked_overlay(text, base);
    ASSERT_FALSE(checked) << text;
    EXPECT_EQ(checked.error().code, Code::Denied) << text;
  }
}

const Interposed mounted{{"web"}, {{"/usr/lib/sublet/libsublet-cuda.so", "/run/sublet/libsublet-cuda.so"}}};

TEST(Overlay, TheWorkerAddsItsOwnMounts) {
  const auto checked = checked_overlay("services: {web: {labels: {a: b}}}", base, mounted);
  ASSERT_TRUE(checked) << checked.error().detail;
  const auto services = nlohmann::json::parse(*checked).at("services");
  EXPECT_EQ(services.at("web").at("volumes"),
            nlohmann::json::array({"/usr/lib/sublet/libsublet-cuda.so:/run/sublet/libsublet-cuda.so:ro"}));
  EXPECT_FALSE(services.contains("db"));
}

TEST(Overlay, AMountOfTheDaemonIsRefusedWithTheInterposerToo) {
  for (const char* text : {"services: {web: {volumes: ['/:/host:ro']}}", "services: {web: {tmpfs: [/run]}}"}) {
    const auto checked = checked_overlay(text, base, mounted);
    ASSERT_FALSE(checked) << text;
    EXPECT_EQ(checked.error().code, Code::Denied) << text;
  }
  const auto unknown = checked_overlay("services: {}", base, {{"other"}, mounted.mounts});
  EXPECT_EQ(unknown ? "" : unknown.error().detail,
            "the overlay sets the unknown service 'other': only environment, labels and devices of services may be "
            "set");
}

TEST(Resolved, AServiceThatMountsThePlacesOfTheInterposerIsRefused) {
  const auto problem = [](const std::string& service, const std::string& interposer = "true") {
    Description stack = undescribed();
    const auto read = read_resolved(
        "services: {web: " + service + ", db: {image: b}}\nx-sublet: {interposer: " + interposer + "}\n", "", stack);
    return read ? std::string() : read.error().detail;
  };
  const std::string wrong =
      "service web mounts /etc/ld.so.preload itself, where the interposer needs /etc/ld.so.preload";
  EXPECT_EQ(problem("{volumes: ['/a:/etc/ld.so.preload:ro']}"), wrong);
  EXPECT_EQ(problem("{volumes: [{type: bind, source: /a, target: /etc/ld.so.preload}]}"), wrong);
  EXPECT_EQ(problem("{configs: [{source: a, target: /etc/ld.so.preload}]}"), wrong);
  EXPECT_NE(problem("{volumes: ['/etc:/etc/']}"), "");
  EXPECT_NE(problem("{volumes: ['a:/run/sublet']}"), "");
  EXPECT_NE(problem("{tmpfs: /run/sublet/credit}"), "");
  EXPECT_EQ(problem("{tmpfs: ['/run:size=1m'], volumes: ['/a:/etc/other', /data]}"), "");
  EXPECT_EQ(problem("{volumes: ['/a:/etc/ld.so.preload']}", "false"), "");
  EXPECT_EQ(problem("{volumes: ['/a:/etc/ld.so.preload']}, gpu: {gpus: all}"), "") << "web gets no GPU";
}

}  // namespace
}  // namespace sublet::compose
