// SPDX-License-Identifier: Apache-2.0
#include "stacks/readiness.h"

#include "base/text.h"

#include <fmt/format.h>

#include <vector>

namespace sublet::stacks {
namespace {

using compose::Container;
using Labels = std::map<std::string, std::string>;

bool has_label(const Labels& labels, const Label& label) {
  const auto found = labels.find(label.key);
  return found != labels.end() && found->second == label.value;
}

bool has_ended(const Container& container) { return container.status == "exited" || container.status == "dead"; }

std::string name_of(const Container& container) {
  return fmt::format("container {} of service {}", printable(container.name), printable(container.service));
}

std::string text_of(const Label& label) { return fmt::format("{}={}", printable(label.key), printable(label.value)); }

Readiness ended(const Container& container) {
  return {Health::exited, fmt::format("{} is {} with exit code {}", name_of(container), printable(container.status),
                                      container.exit_code)};
}

// The state of one container that should run.
Readiness judge_one(const Container& container) {
  if (has_ended(container)) return ended(container);
  if (container.health == "unhealthy") return {Health::unhealthy, name_of(container) + " is unhealthy"};
  if (container.status != "running")
    return {Health::starting, name_of(container) + " is " + printable(container.status)};
  if (container.health.empty() || container.health == "healthy") return {Health::ready, ""};
  return {Health::starting,
          fmt::format("{} runs, and its health is {}", name_of(container), printable(container.health))};
}

Readiness judge_label(const compose::Observation& seen, const Label& label) {
  std::vector<const Container*> masters;
  for (const Container& container : seen.containers)
    if (has_label(container.labels, label)) masters.push_back(&container);
  if (masters.empty()) return {Health::no_label, "no container has the label " + text_of(label)};
  if (masters.size() > 1)
    return {Health::many_labels, fmt::format("{} containers have the label {}", masters.size(), text_of(label))};
  const Container& master = *masters[0];
  Readiness found = judge_one(master);
  if (found.health == Health::ready && master.health.empty())
    return {Health::no_healthcheck, name_of(master) + " has the label and no healthcheck"};
  if (found.health != Health::ready) return found;
  found.text = name_of(master) + " is healthy";
  for (const Container& other : seen.containers)
    if (found.beside.empty() && has_ended(other) && other.exit_code != 0) found.beside = ended(other).text;
  return found;
}

// Containers that fail are named before containers that are still starting.
Readiness judge_containers(const compose::Observation& seen) {
  std::size_t running = 0;
  Readiness starting, unhealthy;
  for (const Container& container : seen.containers) {
    if (container.status == "exited" && container.exit_code == 0) continue;
    Readiness one = judge_one(container);
    if (one.health == Health::exited) return one;
    if (one.health == Health::unhealthy && unhealthy.text.empty()) unhealthy = std::move(one);
    else if (one.health == Health::starting && starting.text.empty()) starting = std::move(one);
    else ++running;
  }
  if (!unhealthy.text.empty()) return unhealthy;
  if (!starting.text.empty()) return starting;
  if (running == 0) return {Health::exited, "all its containers have exited"};
  return {Health::ready, fmt::format("{} of {} containers run", running, seen.containers.size())};
}

}  // namespace

std::string_view to_string(Rule rule) { return rule == Rule::label ? "label" : "containers"; }

std::string_view to_string(Health health) {
  switch (health) {
    case Health::absent: return "absent";
    case Health::starting: return "starting";
    case Health::ready: return "ready";
    case Health::unhealthy: return "unhealthy";
    case Health::exited: return "exited";
    case Health::no_label: return "no_label";
    case Health::many_labels: return "many_labels";
    case Health::no_healthcheck: return "no_healthcheck";
  }
  return "";
}

Result<Rule> rule_of(const compose::Description& stack, const Label& label) {
  const std::string name = printable(stack.name);
  std::vector<std::string> labelled;
  int containers = 0;
  for (const compose::Service& service : stack.services) {
    if (!has_label(service.labels, label)) continue;
    labelled.push_back(printable(service.name));
    containers += service.replicas;
  }
  if (labelled.empty()) {
    if (stack.origin != compose::Origin::directory) return Rule::containers;
    return bad_request(fmt::format("stack {} has no service with the label {}", name, text_of(label)),
                       "add the label to one service that has a healthcheck, or let all its containers count: sublet "
                       "stack adopt DIRECTORY");
  }
  if (labelled.size() > 1) {
    return bad_request(fmt::format("stack {} has {} services with the label {}: {}", name, labelled.size(),
                                   text_of(label), fmt::join(labelled, ", ")),
                       "leave the label on one of them");
  }
  if (containers != 1) {
    return bad_request(fmt::format("service {} of stack {} has the label {} and {} replicas", labelled[0], name,
                                   text_of(label), containers),
                       "give the service with the label one replica");
  }
  return Rule::label;
}

Readiness judge(Rule rule, const compose::Observation& seen, const Label& label) {
  if (seen.containers.empty()) return {Health::absent, "it has no containers"};
  return rule == Rule::label ? judge_label(seen, label) : judge_containers(seen);
}

bool is_final(Health health) { return health != Health::starting && health != Health::ready; }

}  // namespace sublet::stacks
