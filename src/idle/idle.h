// SPDX-License-Identifier: Apache-2.0
// The capability idle: leases whose programs do nothing are told, paused or ended by rules. Belongs to the loop thread.
#pragma once

#include "engine/capability.h"
#include "engine/engine.h"
#include "engine/reclaimable.h"
#include "engine/records.h"
#include "idle/rule.h"

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>

namespace sublet::idle {

struct Options {
  Rules rules;
  bool always = false;  // idle.when = "always": idle leases are paused although nobody waits
  // Ends the session of this lease, with the reason as a sentence. False: the lease is of no session.
  std::function<bool(LeaseId, std::string)> end_session = {};
  // Gives the memory of this session back, instead of a pause. False: its program uses the memory.
  std::function<bool(LeaseId, std::string)> rest_session = {};
  // Whether it would do that.
  std::function<bool(LeaseId)> may_rest = {};
  // Whether the session of this lease rests, or waits for its memory again: its idle rule does nothing meanwhile.
  std::function<bool(LeaseId)> is_resting = {};
};

class Idle final : public engine::Capability {
 public:
  // Keeps a reference. Call Capabilities::add() with it.
  Idle(engine::Engine& engine, Options options);

  // The daemon connects the sessions, which are made later.
  using ForSession = std::function<bool(LeaseId, std::string)>;
  void set_sessions(ForSession end, ForSession rest, std::function<bool(LeaseId)> may_rest,
                    std::function<bool(LeaseId)> is_resting) {
    options_.end_session = std::move(end);
    options_.rest_session = std::move(rest);
    options_.may_rest = std::move(may_rest);
    options_.is_resting = std::move(is_resting);
  }

  // A new lease has this rule of its own. Call it before the lease is stored.
  void submitted(const core::Lease& lease, const Rule& own, bool session);

  InForce rule_of(const core::Lease& lease) const;
  // True if an idle rule has paused it: a touch by its owner brings it back.
  static bool has_paused(const core::Lease& lease);

  // --- Capability ---
  void loaded(const store::Loaded& rows, Time now) override;
  void happened(const core::Plan& plan, Time now) override;
  void measured(Time) override { fresh_ = true; }
  Time due(Time now) override;
  // "idle": the rule in force as a JSON object; "null" if there is none.
  std::string lease_field(std::string_view name, const core::Lease& lease) const override;

 private:
  // A lease that does nothing now.
  struct Quiet {
    const core::Lease& lease;
    InForce rule;
    Time last;        // when it last did something
    Duration idle{};  // for how long it has done nothing
  };
  std::optional<Quiet> quiet(const core::Lease& lease, Time now) const;
  void look(Time now);
  void note_next(const Quiet& quiet);
  void warn(const Quiet& quiet);
  void end(const Quiet& quiet);
  void declare(const Quiet& quiet);
  void pause_alone(const Quiet& quiet, Time now);
  bool is_waited_for(const core::Lease& lease) const;
  bool cause_is_over(const core::Lease& lease) const;
  void bring_back(LeaseId id);

  engine::Engine& engine_;
  Options options_;
  std::map<LeaseId, OwnRule> own_;
  engine::Records<LeaseId> rows_;  // of own rules
  engine::Reclaimable reclaimable_;
  std::map<LeaseId, Time> warned_;          // by lease: the last activity before the warning
  std::map<LeaseId, Time> ending_;          // by lease: the last activity before its end was ordered
  std::map<LeaseId, Time> tried_;           // idle.when = "always": when its pause was last ordered, until it is paused
  std::map<LeaseId, std::string> why_not_;  // why its pause was refused
  bool fresh_ = false;                      // there is a reading that was not looked at
  Time next_ = Time::never();               // when the next part of a rule is due
};

}  // namespace sublet::idle
