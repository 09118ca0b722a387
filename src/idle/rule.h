// SPDX-License-Identifier: Apache-2.0
// Idle rules, and the rule in force for a lease. Plain values and pure functions.
#pragma once

#include "base/error.h"
#include "lease/lease.h"
#include "store/store.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sublet::idle {

// The rule of one source. Each part is a time without work: zero is off, and an unset part is left to other sources.
struct Rule {
  std::optional<Duration> warn{}, pause{}, end{};
  bool empty() const { return !warn && !pause && !end; }
  bool is_off() const {
    return warn.value_or(Duration{}) + pause.value_or(Duration{}) + end.value_or(Duration{}) == Duration{};
  }
  bool operator==(const Rule&) const = default;
};

// A rule of the configuration for leases of one tier, tenant or consumer.
struct NamedRule {
  enum class Of { tier, tenant, consumer } of = Of::tier;
  std::string name;  // of the tier, the tenant or the consumer
  Rule rule;
};

// The rule that was given with a lease, and whether the lease is of a session. Stored while the lease lives.
struct OwnRule {
  Rule rule{};
  bool session = false;
  bool operator==(const OwnRule&) const = default;
};

struct Rules {
  Rule standard;  // for all leases
  Rule sessions;  // for leases of sessions
  std::vector<NamedRule> named;
};

// The source of one part: the nearest that sets it.
enum class Source { lease, consumer, tenant, tier, sessions, standard };
std::string_view to_string(Source source);  // "default" of `standard`

struct Part {
  Duration after{};  // zero: off
  Source source = Source::standard;
};
struct InForce {
  Part warn, pause, end;
  // All parts are off, and nobody chose that for this lease.
  bool is_nothing() const;
};

// The rule in force: for each part lease, consumer, tenant, tier, sessions, default, in this order.
InForce resolve(const Rules& rules, const core::Lease& lease, const OwnRule& own);

// "its own rule", "rule of the tier batch", "default rule".
std::string rule_text(Source source, const core::Lease& lease);

// "10m", or "off"; "" is unset. An error without the name of the key.
Result<std::optional<Duration>> parse_part(std::string_view text);

// The row of the lease's own rule. Without one and without a session: the row's removal.
store::CapabilityRow to_row(LeaseId lease, const OwnRule& own);
Result<OwnRule> own_rule_from_row(const store::CapabilityRow& row);
inline constexpr std::string_view row_kind = "idle";

}  // namespace sublet::idle
