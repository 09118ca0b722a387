// SPDX-License-Identifier: Apache-2.0
#include "stacks/readiness.h"

#include <gtest/gtest.h>

namespace sublet::stacks {
namespace {

using compose::Container;
using compose::Origin;

const Label label;
const std::map<std::string, std::string> labelled{{"gpu.healthcheck-master", "true"}};

Container one(std::string status, std::string health = {}, bool master = false, int code = 0) {
  Container container;
  container.service = master ? "api" : "worker";
  container.name = "chat-" + container.service + "-1";
  if (master) container.labels = labelled;
  container.status = std::move(status);
  container.health = std::move(health);
  container.exit_code = code;
  return container;
}

TEST(Readiness, TheContainerWithTheLabelDecides) {
  const struct {
    const char* name;
    std::vector<Container> containers;
    Health health;
    const char* text;
  } rows[] = {
      {"nothing", {}, Health::absent, "it has no containers"},
      {"healthy", {one("running", "healthy", true)}, Health::ready, "container chat-api-1 of service api is healthy"},
      {"starting",
       {one("running", "starting", true)},
       Health::starting,
       "container chat-api-1 of service api runs, and its health is starting"},
      {"created",
       {one("created", "starting", true)},
       Health::starting,
       "container chat-api-1 of service api is created"},
      {"restarting",
       {one("restarting", "starting", true)},
       Health::starting,
       "container chat-api-1 of service api is restarting"},
      {"paused", {one("paused", "healthy", true)}, Health::starting, "container chat-api-1 of service api is paused"},
      {"unhealthy",
       {one("running", "unhealthy", true)},
       Health::unhealthy,
       "container chat-api-1 of service api is unhealthy"},
      {"exited",
       {one("exited", "unhealthy", true, 3)},
       Health::exited,
       "container chat-api-1 of service api is exited with exit code 3"},
      {"exited with 0",
       {one("exited", "", true)},
       Health::exited,
       "container chat-api-1 of service api is exited with exit code 0"},
      {"dead",
       {one("dead", "", true, 137)},
       Health::exited,
       "container chat-api-1 of service api is dead with exit code 137"},
      {"no healthcheck",
       {one("running", "", true)},
       Health::no_healthcheck,
       "container chat-api-1 of service api has the label and no healthcheck"},
      {"no label",
       {one("running", "healthy")},
       Health::no_label,
       "no container has the label gpu.healthcheck-master=true"},
      {"two labels",
       {one("running", "healthy", true), one("running", "healthy", true)},
       Health::many_labels,
       "2 containers have the label gpu.healthcheck-master=true"},
      {"others do not matter",
       {one("exited", "", false, 1), one("running", "healthy", true)},
       Health::ready,
       "container chat-api-1 of service api is healthy"},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.name);
    const Readiness found = judge(Rule::label, {"chat", row.containers}, label);
    EXPECT_EQ(to_string(found.health), to_string(row.health));
    EXPECT_EQ(found.text, row.text);
  }
}

TEST(Readiness, WithoutALabelEachContainerCounts) {
  const struct {
    const char* name;
    std::vector<Container> containers;
    Health health;
    const char* text;
  } rows[] = {
      {"nothing", {}, Health::absent, "it has no containers"},
      {"runs without a healthcheck", {one("running")}, Health::ready, "1 of 1 containers run"},
      {"healthy", {one("running", "healthy"), one("running")}, Health::ready, "2 of 2 containers run"},
      {"one is starting",
       {one("running", "starting"), one("running")},
       Health::starting,
       "container chat-worker-1 of service worker runs, and its health is starting"},
      {"a helper that has done its work", {one("exited"), one("running")}, Health::ready, "1 of 2 containers run"},
      {"only helpers", {one("exited"), one("exited")}, Health::exited, "all its containers have exited"},
      {"a helper that failed",
       {one("running"), one("exited", "", false, 2)},
       Health::exited,
       "container chat-worker-1 of service worker is exited with exit code 2"},
      {"unhealthy beside starting",
       {one("created"), one("running", "unhealthy")},
       Health::unhealthy,
       "container chat-worker-1 of service worker is unhealthy"},
      {"exited beside unhealthy",
       {one("running", "unhealthy"), one("exited", "", false, 1)},
       Health::exited,
       "container chat-worker-1 of service worker is exited with exit code 1"},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.name);
    const Readiness found = judge(Rule::containers, {"chat", row.containers}, label);
    EXPECT_EQ(to_string(found.health), to_string(row.health));
    EXPECT_EQ(found.text, row.text);
  }
}

compose::Description described(Origin origin, std::vector<compose::Service> services) {
  compose::Description stack;
  stack.name = "chat";
  stack.origin = origin;
  stack.services = std::move(services);
  return stack;
}

TEST(Readiness, TheFileTellsTheRule) {
  const compose::Service plain{"worker", {}, false, 1}, master{"api", labelled, true, 1},
      second{"web", labelled, true, 1}, scaled{"api", labelled, true, 3},
      other{"api", {{"gpu.healthcheck-master", "false"}}, true, 1};
  const struct {
    const char* name;
    compose::Description stack;
    std::string rule_or_error;
  } rows[] = {
      {"one label", described(Origin::directory, {plain, master}), "label"},
      {"one label, adopted", described(Origin::adopted, {master}), "label"},
      {"none, adopted", described(Origin::adopted, {plain}), "containers"},
      {"none, configured", described(Origin::config, {plain}), "containers"},
      {"none", described(Origin::directory, {plain}),
       "stack chat has no service with the label gpu.healthcheck-master=true"},
      {"another value", described(Origin::directory, {other}),
       "stack chat has no service with the label gpu.healthcheck-master=true"},
      {"two", described(Origin::directory, {master, second}),
       "stack chat has 2 services with the label gpu.healthcheck-master=true: api, web"},
      {"scaled", described(Origin::adopted, {scaled}),
       "service api of stack chat has the label gpu.healthcheck-master=true and 3 replicas"},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.name);
    const auto rule = rule_of(row.stack, label);
    EXPECT_EQ(rule ? std::string(to_string(*rule)) : rule.error().detail, row.rule_or_error);
    EXPECT_TRUE(rule || !rule.error().hint.empty());
  }
}

}  // namespace
}  // namespace sublet::stacks
