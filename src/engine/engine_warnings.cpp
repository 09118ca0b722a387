// SPDX-License-Identifier: Apache-2.0
// All warnings, and the events of their changes.
#include "base/log.h"
#include "engine/engine.h"
#include "state/format.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace sublet::engine {
namespace {

Warning safe_mode_warning(const core::SafeMode& safe, Time now) {
  return {"safe-mode",
          core::safe_mode_text(safe) +
              ". No lease is granted, paused or resumed; running programs continue and can be stopped",
          core::safe_mode_hint(safe), now};
}

void append(std::vector<Warning>& all, std::vector<Warning> more) { std::ranges::move(more, std::back_inserter(all)); }

}  // namespace

// Safe mode ends by itself. Then waiting leases can be granted.
void Engine::watch_safe_mode() {
  const auto& safe = options_.rules.safe_mode;
  if (!safe) return;
  const Warning warning = safe_mode_warning(*safe, now());
  log::error("{} ({})", warning.text, warning.hint);
  safe_mode_alarm_->set(std::max(safe->until - now(), Duration{}), [this] {
    options_.rules.safe_mode.reset();
    log::warn("safe mode is over: leases are granted again");
    tick(core::Tick{});
    observer_.take_snapshot();
    tell_changes();
  });
}

std::vector<Warning> Engine::warnings() {
  std::vector<Warning> all;
  if (options_.rules.safe_mode) all.push_back(safe_mode_warning(*options_.rules.safe_mode, now()));
  append(all, commits_.warnings(now()));
  append(all, observer_.device_warnings(now()));
  append(all, capabilities_.warnings(now()));
  if (const machine::Actor& actor = *machine_.actor; !actor.problem().empty()) {
    // The system's daemon also has its helpers started by the actor.
    const std::string lost = options_.mode == "system"
                                 ? "programs cannot be parked, and programs without a keeper cannot be ended"
                                 : "programs without a keeper cannot be ended";
    all.push_back({"actor", lost + ": the actor does not work: " + actor.problem(), actor.hint(), now()});
  }
  append(all, executor_.ends().warnings(now()));
  append(all, observer_.lease_warnings(now()));
  std::map<std::string, Time> since;
  for (Warning& warning : all) {
    const std::string name = warning.code + " " + warning.text;
    const auto before = warned_since_.find(name);
    if (before != warned_since_.end()) warning.since = before->second;
    since.emplace(name, warning.since);
  }
  warned_since_ = std::move(since);
  return all;
}

// Notes the start of each warning too. Makes no event while it cannot be durable. A change that lasts until the store
// is back gets its event then.
void Engine::tell_changes() {
  hand_over();  // what was decided before comes first
  auto wrong = warnings();
  if (!store_problem().empty()) return;
  commits_.write_events(commits_.log().of_changes(state_, options_.rules, std::move(wrong), now()), now());
}

}  // namespace sublet::engine
