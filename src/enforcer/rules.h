// SPDX-License-Identifier: Apache-2.0
// Rules of administrators for processes without a lease: approvals of some, and a policy for the rest. Plain data
// and pure functions.
#pragma once

#include "base/error.h"
#include "base/units.h"
#include "proc/process_record.h"
#include "store/store.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sublet::enforcer {

// observe: a record. warn: also a notice to the owner. adopt: the notice tells how the process gets a lease. enforce:
// the process is ended.
enum class Policy { observe, warn, adopt, enforce };
std::string_view to_string(Policy policy);
std::optional<Policy> parse_policy(std::string_view text);

// The processes that a rule is about, by facts that a process cannot choose itself. Its program's path or name is none.
struct Subject {
  enum class Kind { user, cgroup, unit, container };
  Kind kind = Kind::user;
  std::string value;  // an account's name or uid; a path; a unit of the system; a container's id or name
  bool operator==(const Subject&) const = default;
};
std::string to_string(const Subject& subject);  // "unit:ollama.service"
// "KIND:VALUE". A unit without a suffix is a service.
Result<Subject> parse_subject(std::string_view text);

// A process as the rules see it.
struct Suspect {
  const proc::ProcessRecord& record;
  const std::string& user;  // account name
  bool draws = false;       // the driver lists it among graphics programs, and nowhere else
};
bool matches(const Subject& subject, const Suspect& suspect);

struct Rule {
  enum class Kind { approval, policy };
  Kind kind = Kind::approval;
  std::uint64_t id = 0;  // never used again
  Subject subject{};
  Policy policy = Policy::observe;  // of a policy
  bool graphics = false;            // of a policy: it holds for processes that only draw too
  std::optional<Time> until{};      // of an approval; unset: without end
  std::string reason{};             // of an approval; free text
  std::string by{};                 // account name of who made it
  Time at{};
};

store::CapabilityRow to_row(const Rule& rule);
Result<Rule> rule_from_row(const store::CapabilityRow& row);

// The approval that covers the process now; null: none.
const Rule* approval_of(const std::vector<Rule>& rules, const Suspect& suspect, Time now);
// The policy rule that applies: the one with the longest control group, else the one of the user; null: the default.
const Rule* policy_of(const std::vector<Rule>& rules, const Suspect& suspect);
// The policy by the rules, or `standard`. A process that only draws is observed, unless its rule names such processes.
Policy policy_for(const std::vector<Rule>& rules, const Suspect& suspect, Policy standard);

}  // namespace sublet::enforcer
