// SPDX-License-Identifier: Apache-2.0
// Finds processes that hold GPU memory under no lease, keeps a record about each, and acts on it by the policies of the
// administrator. Belongs to the loop thread.
#pragma once

#include "enforcer/budget.h"
#include "enforcer/ladder.h"
#include "enforcer/rules.h"
#include "enforcer/verdict.h"
#include "engine/capability.h"
#include "engine/engine.h"
#include "engine/records.h"
#include "machine/unleased.h"

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace sublet::enforcer {

struct Options {
  Policy policy = Policy::observe;                  // enforcer.policy: where no rule applies
  Duration interval = std::chrono::seconds(15);     // enforcer.interval: between two passes
  Duration grace = std::chrono::seconds(300);       // enforcer.grace: between SIGTERM and SIGKILL
  Duration start_grace = std::chrono::seconds(30);  // enforcer.start_grace: nothing is ended after a start or a gap
  std::size_t keep = 1000;                          // closed verdicts
  std::string accounting{};                         // enforcer.accounting: path of the accounting file; "": none
};

// The effect that `enforce` would have had on one process, by its record.
struct Preview {
  const Verdict* verdict = nullptr;
  Time term_at;                 // when SIGTERM would have been sent
  std::optional<Time> kill_at;  // when SIGKILL would have followed; unset: it had ended before
  std::string spared;           // why it is not ended now, or would not have been; "": it is
};

class Enforcer final : public engine::Capability {
 public:
  // Keeps references. Call Capabilities::add() with it.
  Enforcer(engine::Engine& engine, machine::Unleased& unleased, Options options);

  // --- reading ---
  const std::map<std::uint64_t, Verdict>& verdicts() const { return verdicts_; }
  const Verdict* verdict_of(std::int32_t pid) const;  // the newest about this pid; null: none
  const std::vector<Rule>& rules() const { return rules_; }
  const Options& options() const { return options_; }
  // The approval that covers a process that is listed now; null: none.
  const Rule* approval_of(ProcessRef process) const;
  // The policy that would hold for this process if it had no lease; unset: it is approved, or has ended.
  std::optional<Policy> policy_towards(ProcessRef process) const;
  // The sources of links between processes, and whether they work.
  const std::vector<machine::LinkSource>& sources() const { return unleased_.sources(); }
  // The processes since that time that this policy would have ended or spared, by their records.
  std::vector<Preview> preview(Time since, const std::optional<Subject>& subject) const;

  // --- requests; the caller stores the rows (Engine::store_rows) ---
  bool replaces(const Rule& rule) const;  // whether add() removes another rule for it
  const Rule& add(Rule rule);             // gives it a number; a policy replaces the one about the same subject
  Status remove(std::uint64_t id, Rule::Kind kind);

  // --- Capability ---
  void loaded(const store::Loaded& rows, Time now) override;
  void measured(Time now) override;
  Time due(Time now) override;
  std::vector<engine::Warning> warnings(Time now) const override;

 private:
  // A process without a lease, by a good reading.
  struct Found {
    std::map<std::string, Bytes> used;  // by device
    bool draws = true;                  // the driver lists it among graphics programs alone, on each device
  };
  using Listed = std::map<ProcessRef, Found>;

  void forget();
  void pass(Time now);
  Listed list(bool& known, std::set<ProcessRef>& leased) const;
  void take_up(std::uint64_t id, Time now);
  void see_ancestry(Verdict& verdict, proc::ProcessRecord& record);
  void traced(std::uint64_t id, const machine::Parents& parents);
  LeaseId link_of(const Verdict& verdict) const;
  bool is_linked(Verdict& verdict, Time now);
  void see(ProcessRef process, const Found& found, Time now);
  void missed(Verdict& verdict, const std::set<ProcessRef>& leased, Time now);
  void act(Verdict& verdict, Time now);
  std::string why_halted() const;
  std::string why_quiet(Time now) const;
  bool is_quiet(const Verdict& verdict, Time now) const;
  std::vector<std::uint64_t> largest_first() const;
  bool must_spare(const Verdict& verdict, ProcessRef process) const;
  std::vector<ProcessRef> spared(const Verdict& verdict) const;
  std::string spared_without_look(const Verdict& verdict) const;
  std::string why_not_ended(const Verdict& verdict, const std::deque<Kill>& kills, Time now) const;
  Circumstances circumstances(Verdict& verdict, Time now, bool evident);
  bool is_another_ended(const Verdict& verdict) const;
  bool is_look_due(const Verdict& verdict, Policy policy, Time now) const;
  void notify(Verdict& verdict, Time now);
  void look(Verdict& verdict, Time now);
  void signal(Verdict& verdict, int signal);
  void looked(std::uint64_t id, const machine::UnleasedResult& result);
  void answered(Verdict& verdict, const machine::UnleasedResult& result, Time now);
  void schedule_look(const Verdict& verdict, const machine::UnleasedResult& result, Time now);
  void condemn(Verdict& verdict, Time now);
  bool say(Verdict& verdict, const char* what, const std::string& why, Time now);
  void signalled(std::uint64_t id, int signal, const machine::UnleasedResult& result);
  void alarm(Verdict& verdict, Time now);
  std::string alarm_about(const Verdict& verdict, Time now) const;
  void enter(Verdict& verdict, Stage stage);
  void close(Verdict& verdict, Outcome outcome, Time now, std::string why = {});
  void changed(const Verdict& verdict, bool tell);
  void prune();
  bool may_miss_rule(const Verdict& verdict) const;
  Policy policy_for(const Verdict& verdict) const;
  bool take_policy(Verdict& verdict, Time now);

  engine::Engine& engine_;
  machine::Unleased& unleased_;
  Options options_;
  std::map<std::uint64_t, Verdict> verdicts_;
  std::map<ProcessRef, std::uint64_t> open_;
  std::map<ProcessRef, std::uint64_t> waiting_;   // of an earlier run, whose process could not be held yet
  std::map<ProcessRef, std::uint64_t> approved_;  // listed now, by an approval
  std::vector<Rule> rules_;
  std::set<std::uint64_t> asked_;  // verdicts with an order at the actor
  // The last look of the actor at a process, and the facts that ask for a new one at once.
  struct Look {
    Time again;            // when the actor may be asked next
    Duration wait{};       // until then; doubles while the answer spares the process
    bool evident = false;  // the answer did not spare it
    std::uint32_t uid = 0;
    std::string name{}, cgroup{};
  };
  std::map<std::uint64_t, Look> looks_;
  Listed listed_;  // by the last good pass
  Time listed_at_;
  Time next_pass_;
  Time last_reading_;
  Time signalled_at_;  // an older reading does not show the effect of the last signal
  Bytes unleased_before_;
  bool drop_ = false;       // the unleased memory has grown since the last pass
  bool news_ = false;       // a reading, a rule, an answer or a verdict has changed: all open verdicts are looked at
  std::deque<Kill> kills_;  // of the last hour
  engine::Records<std::uint64_t> verdict_rows_;
  engine::Records<std::pair<std::string, std::uint64_t>> rule_rows_;  // by kind and number
  std::uint64_t last_verdict_ = 0, last_rule_ = 0;
};

}  // namespace sublet::enforcer
