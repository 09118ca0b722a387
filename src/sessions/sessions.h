// SPDX-License-Identifier: Apache-2.0
// The capability sessions: records of users that have a lease while they are used. Belongs to the loop thread.
#pragma once

#include "engine/capability.h"
#include "engine/engine.h"
#include "engine/reclaimable.h"
#include "engine/records.h"
#include "engine/supervised_run.h"
#include "machine/keepers.h"
#include "sessions/session.h"

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sublet::sessions {

using Activity = engine::LeaseActivity;

struct Options {
  engine::RunOptions runs{};
  std::size_t most_sessions = 100;                        // of one user, that are not closed
  Duration ttl = std::chrono::hours(1);                   // of a session that names none
  Duration max_continuous = std::chrono::minutes(30);     // 0: no limit
  Duration keep_parked = std::chrono::hours(1);           // 0: nothing is parked at an end
  Duration checkpoint_timeout = std::chrono::minutes(5);  // of a session that names none
  std::function<Activity(LeaseId)> activity = {};         // unset: as the engine knows it; tests give another
};

// A request to close a session.
struct Close {
  bool park = true;      // its program may be parked
  bool force = false;    // its program is ended although its checkpoint fails
  std::uint32_t by = 0;  // uid of the caller
};

// The report of a keeper: about a start without a lease, about its log, or about a run of the checkpoint command.
struct Report {
  std::uint64_t start = 0;  // number of the start; 0 with `checkpoint`
  std::string failed{};     // why the program was not started; "": it was not reported
  std::optional<int> exit_status{};
  std::optional<std::string> warning{};       // "": the warning is over
  std::optional<std::uint64_t> checkpoint{};  // number of the run
  std::string locator{};                      // last line of its output
  std::optional<std::int64_t> bytes{};        // of the file or directory that the locator names; unset: not known
  std::optional<std::string> problem{};       // why the run failed; unset: it did not
};

class Sessions final : public engine::Capability {
 public:
  // Keeps references. Call Capabilities::add() with it.
  Sessions(engine::Engine& engine, machine::Keepers& keepers, Options options);

  // --- reading ---
  const Session* find(std::uint64_t number) const;
  const Session* find(LeaseId lease) const;  // the session with this lease; null: none
  // The user's newest session with this tag, one that is not closed first; nullptr: there is none.
  const Session* find_tag(std::uint32_t uid, std::string_view tag) const;
  std::vector<const Session*> all() const;  // by number
  const Options& options() const { return options_; }
  std::string log_path(const Session& session) const;
  std::string warning(const Session& session) const;          // of its keeper, for example about its log; "": none
  const core::Lease* lease_of(const Session& session) const;  // null: it has none, or its end is history
  Activity activity(const Session& session) const;
  // Bytes on each device of a lease on whole devices: on the device that the request names, or on the largest.
  // Unavailable: they were not read yet. BadRequest: they differ in size.
  Result<Bytes> whole_devices(const Request& request) const;

  // --- requests; the caller stores the rows (Engine::store_rows) ---
  // The number of the next session. Quota: the user has as many sessions as allowed.
  Result<std::uint64_t> next_number(std::uint32_t uid, const std::string& user) const;
  // Adds a session, whose number is that of next_number(). With a command, its first start begins.
  const Session& add(Session session);
  Status touch(const Session& session);
  Status checkpoint(const Session& session);  // runs the checkpoint command
  // Ends the session.
  Status close(const Session& session, const Close& how);
  // Whether a session that is closed can be resumed by a lease that the caller submits. Good: it can.
  Status may_submit_again(const Session& session) const;
  // Resumes a session: its paused lease, or its command from its checkpoint.
  Status resume(const Session& session);
  Status report(const Session& session, const Report& report);
  // True: the session of this lease rests, or waits for its memory again. No idle rule ends or pauses it.
  bool rests(LeaseId lease) const;
  // The idle rule ends the lease. False: the lease is no session's. The end may be left to the next call.
  bool end_idle(LeaseId lease, const std::string& why);
  // The time of the checkpoint command of the lease's session; unset: it has none, or its end is in progress.
  std::optional<Duration> checkpoint_time(LeaseId lease) const;
  // A device of the lease is drained: the session saves its work and ends. It has a checkpoint_time().
  void end_drained(LeaseId lease, const std::string& why);
  // True if its program uses no GPU, so that it may rest_idle().
  bool may_rest(LeaseId lease) const;
  // The idle rule would pause the lease. True: its program uses no GPU, and its memory is given back instead, now or by
  // the next call.
  bool rest_idle(LeaseId lease, const std::string& why);

  // --- the lease of a start ---
  // Whether this start may ask for its lease now. Stale: there is a newer start, or it has its lease.
  Status may_submit(std::uint32_t uid, std::uint64_t number, std::uint64_t start) const;
  // The session has got this lease. Call it before the lease is stored.
  void submitted(std::uint64_t number, const core::Lease& lease);
  // The lease of the start was refused.
  void refused(std::uint64_t number, const Error& error);

  // --- Capability ---
  void loaded(const store::Loaded& rows, Time now) override;
  void happened(const core::Plan& plan, Time now) override;
  Time due(Time now) override;
  // "session": its id, if the lease is of a session.
  std::string lease_field(std::string_view name, const core::Lease& lease) const override;

 private:
  struct Entry {
    Session session;
    engine::KeeperOrdering keeper{};       // of the newest start
    engine::KeeperOrdering hook{};         // of the newest run of the checkpoint command
    Time hook_lost_at{};                   // when the keeper of that run was seen to be gone
    bool pause_ordered = false;            // by the present step
    bool release_ordered = false;          // by the present step
    Time grow_at{};                        // when its lease may ask for its wanted size again
    bool rest_is_due = false;              // its time is over, and it could not rest yet
    Time ask_notice_at{};                  // spot: when the core is asked for time to save the work
    bool noticed = false;                  // spot: this time has begun
    std::uint64_t notice_run = 0;          // number of the run of the checkpoint command in it; 0: none yet
    std::string pause_problem{};           // why its last pause failed
    std::string warning{};                 // of its keeper
    std::pair<State, std::string> told{};  // state and text of its last event
  };

  Entry& entry_of(const Session& session) { return entries_.at(session.number); }
  void changed(Entry& entry);
  void tell(const Entry& entry, std::optional<std::int64_t> checkpoint_bytes = {});
  void move(Entry& entry, State state, std::string why, Time now);
  void begin_start(Entry& entry, Time now);
  void prune(std::uint32_t uid, Time now);
  void erase(std::uint64_t number);

  void follow(Entry& entry, const core::Lease& lease, const core::Plan& plan, Time now);
  void follow_end(Entry& entry, const core::Lease& lease, const core::Plan& plan, Time now);
  void became_active(Entry& entry, const core::Lease& lease, Time now);
  Time drive(Entry& entry, Time now);
  Time start_keeper(Entry& entry, Time now);
  Time check_waiting(Entry& entry, Time now);
  Time look(Entry& entry, Time now);
  Time renew(Entry& entry, const core::Lease& lease, Time now);
  Time keep_alive(const Session& session, const core::Lease& lease, Time now);
  Time grow(Entry& entry, const core::Lease& lease, Time now);

  // The limit of continuous activity.
  void note_break(Entry& entry, const Activity& seen, Time now) const;
  bool is_over_cap(const Entry& entry, Time now) const;
  Time cap(Entry& entry, const core::Lease& lease, const Activity& seen, Time now);
  void keep_memory(const Entry& entry);
  Time heed_notice(Entry& entry, const core::Lease& lease, Time now);

  // Programs that use no GPU.
  bool uses_gpu(const core::Lease& lease) const;
  bool rests(const Session& session) const;
  bool may_rest(const Session& session) const;
  enum class Rest { no, yes, later };
  Rest rest(Entry& entry, const std::string& why, Time now);
  void want_back(Entry& entry, std::string why, Time now);
  Time look_at_resting(Entry& entry, Time now);
  Time wait_for_size(Entry& entry, const core::Lease& lease, Time now);

  // The end.
  void forgive(Duration gap, Time now);
  Status call_back(Entry& entry);
  void cancel_end(Entry& entry, const core::Lease& lease, Time now);
  void unpark(Entry& entry);
  bool goes_on_without(Entry& entry, const core::Lease& lease) const;
  void end(Entry& entry, End why, bool park, std::string text, Time now);
  void go_on(Entry& entry, Step step);
  Time drive_end(Entry& entry, Time now);
  Time park(Entry& entry, const core::Lease& lease, Time now);
  Time bring_back(Entry& entry, const core::Lease& lease, Time now);
  Time save(Entry& entry, const core::Lease& lease, Time now);
  bool hangs(const core::Lease& lease, Time now) const;
  Time release(Entry& entry, const core::Lease& lease, Time now);
  Time keep(Entry& entry, Time now);
  void close_now(Entry& entry, Time now);

  // The checkpoint command.
  void begin_checkpoint(Entry& entry, Time now);
  Time drive_checkpoint(Entry& entry, Time now);
  void finish_checkpoint(Entry& entry, const Report& report, Time now);
  Time next_checkpoint(const Session& session) const;
  Time checkpoint_deadline(const Session& session) const;
  engine::Run run_of(const Session& session) const;
  nlohmann::json start_document(const Session& session) const;
  nlohmann::json hook_document(const Session& session, const core::Lease& lease) const;

  engine::Engine& engine_;
  Options options_;
  engine::SupervisedRuns runs_;
  std::map<std::uint64_t, Entry> entries_;     // by number
  std::map<LeaseId, std::uint64_t> by_lease_;  // of sessions that are not closed
  engine::Records<std::uint64_t> rows_;
  std::set<std::uint32_t> to_prune_;  // users with a session that was closed
  engine::Reclaimable reclaimable_;   // leases over sessions.max_continuous
  Duration forgiven_{};               // of the engine's lost time
};

}  // namespace sublet::sessions
