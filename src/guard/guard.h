// SPDX-License-Identifier: Apache-2.0
// The capability guard: supervised programs, and ceilings of leases. Belongs to the loop thread.
#pragma once

#include "engine/capability.h"
#include "engine/engine.h"
#include "engine/records.h"
#include "engine/supervised_run.h"
#include "guard/ceilings.h"
#include "guard/forgotten_logs.h"
#include "guard/program.h"
#include "guard/shortage.h"
#include "guard/supervise.h"
#include "machine/keepers.h"

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace sublet::guard {

struct Options {
  engine::RunOptions runs{};
  int soft_cpu = 0;                 // guard.soft_cpu: percent of one processor above the soft limit; 0: not limited
  bool ceiling_for_all = false;     // guard.ceiling = "lease": a lease without a ceiling has its size as ceiling
  std::size_t most_programs = 200;  // of one user
  Bytes most_manifests = 16 * MiB;  // of all programs of one user: the daemon keeps them in memory and in its store
};

// Changes of `sublet update`. An unset field stays as it is; a limit of 0 is removed.
struct Update {
  std::optional<Bytes> vram{};
  std::optional<Bytes> ceiling{};
  std::optional<Bytes> soft_limit{};
  std::optional<Restart> restart{};
  std::optional<core::Tier> tier{};
  std::optional<int> priority{};
};

// A keeper's report about a start without a lease, or about its log.
struct Report {
  std::uint64_t number = 0;  // Program::number
  std::uint64_t start = 0;
  std::string failed{};  // why the program was not started; "": it was not reported
  std::optional<int> exit_status{};
  std::optional<std::string> warning{};  // "": the warning is over
};

class Guard final : public engine::Capability {
 public:
  // Keeps references. Call Capabilities::add() with it.
  Guard(engine::Engine& engine, machine::Keepers& keepers, Options options);

  // --- reading ---
  const Program* find(std::uint32_t uid, std::string_view tag) const;
  const Program* find_user(std::string_view user, std::string_view tag) const;
  // By uid and tag.
  const std::map<std::pair<std::uint32_t, std::string>, Program>& programs() const { return programs_; }
  std::string log_path(const Program& program) const;
  // The problems of the program now, as sentences; "": none is known.
  std::string warning(const Program& program) const;
  const Options& options() const { return options_; }

  // --- requests; the caller stores the rows (Engine::store_rows) ---
  // Adds the program and begins its first start. InUse: the user has a program or a live lease with this tag.
  Result<const Program*> add(Program program);
  Status stop(const Program& program, bool force, std::uint32_t asked_by);
  Status restart(const Program& program, std::uint32_t asked_by);
  // Begins a start of a program that is not up. A program that is being stopped starts again after its end.
  Status start(const Program& program);
  // As restart(), with this manifest from now on. The log and the tag stay.
  Status replace(const Program& program, Manifest manifest, std::uint32_t asked_by);
  // Without `keep_running`, the program is ended first. With it, the program and its lease stay.
  Status remove(const Program& program, bool keep_running, std::uint32_t asked_by);
  Status update(const Program& program, const Update& changes);
  // The program's request for a lease after these changes.
  nlohmann::json changed_request(const Program& program, const Update& changes) const;
  Status report(const Program& program, const Report& report);
  // The end of this lease was requested after the lease had ended. The program whose processes still live stays
  // stopped.
  void stop_after_end(LeaseId lease);

  // --- the lease of a start ---
  // Whether this start may ask for its lease now. Stale: there is a newer start or another program, or it has its
  // lease.
  Status may_submit(std::uint32_t uid, const StartName& name) const;
  // The lease whose memory may be kept for the next start; none if there is none.
  LeaseId predecessor(std::uint32_t uid, std::string_view tag) const;
  // The start has got this lease. Call it before the lease is stored.
  void submitted(std::uint32_t uid, std::string_view tag, const core::Lease& lease);
  // The lease of the start was refused.
  void refused(std::uint32_t uid, std::string_view tag, const Error& error);

  // --- Capability ---
  void loaded(const store::Loaded& rows, Time now) override;
  void happened(const core::Plan& plan, Time now) override;
  void measured(Time now) override;
  void keeper_lost(LeaseId lease) override;
  Time due(Time now) override;
  Time due_without_store(Time now) override { return ceilings_.due(now); }

 private:
  using Key = std::pair<std::uint32_t, std::string>;

  static Error stale(const StartName& name, const Program& now);
  static Status check_stays(const Program& program);
  Status check_size(const Key& key, const std::string& user, const Manifest& manifest) const;
  Program* mutable_program(const Program& program);
  void changed(const Program& program);
  void wake_starts();
  void count_starts(Time now);
  void ended(Program& program, const Ended& end, Time now);
  void erase(const Key& key);
  Time remove_logs(Time now);
  // Ends the program that is up. `wish` replaces an earlier wish.
  Status end_for(Program& mine, Wish wish, bool force, std::uint32_t asked_by);
  Status end_lease(Program& mine, bool force, std::uint32_t asked_by);
  Time supervise(Program& program, Time now);
  Time start_keeper(Program& program, Time now);
  bool keep_memory(const Program& program);
  Time check_lease(Program& program, Time now);
  bool lives_on(const core::Lease& lease) const;
  engine::Run run_of(const Program& program) const;
  nlohmann::json document(const Program& program) const;

  engine::Engine& engine_;
  Options options_;
  engine::SupervisedRuns runs_;
  std::map<Key, Program> programs_;
  std::map<LeaseId, Key> by_lease_;                  // the newest lease of each program that is up
  std::size_t starts_ = 0;                           // that are under way now
  std::map<std::uint32_t, std::size_t> starts_of_;   // the same, by uid
  std::map<Key, engine::KeeperOrdering> orderings_;  // starts until their leases are there; forgotten at a restart
  LogNumbers removed_logs_;                          // of programs that were removed, and may have a keeper
  bool all_known_ = false;         // no stored program was unreadable: each other log is of a removed program
  Time logs_due_ = Time::never();  // when the logs of removed programs are looked for
  engine::Records<Key> rows_;
  std::uint64_t last_number_ = 0;
  Ceilings ceilings_;
  Shortages shortages_;
  std::vector<core::Remark> remarks_;  // to be decided
};

}  // namespace sublet::guard
