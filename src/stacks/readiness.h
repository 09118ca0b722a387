// SPDX-License-Identifier: Apache-2.0
// Whether a stack is ready, by what the engine shows of its containers. Pure functions.
#pragma once

#include "base/error.h"
#include "compose/worker.h"

#include <string>
#include <string_view>

namespace sublet::stacks {

// The label that names the one service whose health is that of the stack.
struct Label {
  std::string key = "gpu.healthcheck-master";
  std::string value = "true";
};

enum class Rule {
  label,       // the container with the label is healthy
  containers,  // each container is healthy, or runs without a healthcheck; one that exited with 0 is excused
};
std::string_view to_string(Rule rule);

enum class Health {
  absent,  // no container is there
  starting,
  ready,
  unhealthy,
  exited,          // a container has ended that should run
  no_label,        // no container has the label
  many_labels,     // several containers have the label
  no_healthcheck,  // the container with the label has no healthcheck
};
std::string_view to_string(Health health);

struct Readiness {
  Health health = Health::absent;
  std::string text;      // one sentence about the containers
  std::string beside{};  // ready: one sentence about another container that has died; "": none has
  bool operator==(const Readiness&) const = default;
};

// The rule of the stack. An error: the stack must not be started.
Result<Rule> rule_of(const compose::Description& stack, const Label& label);

Readiness judge(Rule rule, const compose::Observation& seen, const Label& label);

bool is_final(Health health);  // a start with this health has failed

}  // namespace sublet::stacks
