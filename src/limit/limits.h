// SPDX-License-Identifier: Apache-2.0
// The capability limit: the processes of a lease that run behind the interposer share the size of the lease by credit
// (records 0061 and 0070). This part decides which process belongs to which lease, stores each credit before a process
// gets it, and gives the credit of an ended process back once the card shows that its bytes are gone. Belongs to the
// loop thread.
#pragma once

#include "credit/desk.h"
#include "credit/shares.h"
#include "engine/capability.h"
#include "engine/engine.h"
#include "engine/records.h"
#include "limit/context_size.h"
#include "limit/control.h"
#include "limit/questions.h"
#include "limit/rows.h"

#include <boost/asio/io_context.hpp>

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace sublet::limit {

struct Options {
  bool required = false;  // interposer.required
};

class Limits final : public engine::Capability {
 public:
  // Keeps references. Call Capabilities::add() with it. `shares`: null, or the part that knows the shares of leases.
  Limits(boost::asio::io_context& io, engine::Engine& engine, Options options, credit::Shares* shares = nullptr);

  Status start(const std::string& path);  // after the engine's start; the socket of the questions
  void stop() { questions_.stop(); }

  // --- Capability ---
  void loaded(const store::Loaded& rows, Time now) override;
  void happened(const core::Plan& plan, Time now) override;
  void measured(Time now) override;
  Time due(Time now) override;
  Time due_without_store(Time now) override { return refuse_late(now); }
  std::vector<engine::Warning> warnings(Time now) const override;
  // "interposer": the limits in force and the processes that pass them; none without such processes.
  std::string lease_field(std::string_view name, const core::Lease& lease) const override;

  // By tenant and user, what their processes have done since the start of the daemon. The first of them, then "other".
  using Who = std::pair<std::string, std::string>;
  const std::map<Who, credit::Counts>& counts() const { return counts_by_who_; }
  // The counts of all processes of a lease until the newest reading; nullptr: none had a limit.
  const credit::Counts* counts_of(LeaseId lease) const;
  // `told` gets the work of a lease's processes since the last call for it, and no work when a process begins. Work
  // that an earlier daemon may have told is left out.
  using Told = std::function<void(LeaseId, const credit::Counts& grown)>;
  void set_told(Told told) { told_ = std::move(told); }
  // `awaits`: whether a process that belongs to no lease yet may belong to one soon. Its first question waits then.
  using Awaits = std::function<bool(std::int32_t pid)>;
  void set_awaits(Awaits awaits) { awaits_ = std::move(awaits); }

 private:
  // A process of a lease that its limit does not hold, on a device.
  struct Place {
    LeaseId lease;
    std::string uuid;
    ProcessRef process;
    auto operator<=>(const Place&) const = default;
  };
  struct Escaped {
    Escape why = Escape::never_asked;
    std::string name;         // the kernel's short name of its program
    Bytes used;               // by the card
    bool is_certain = false;  // two readings have shown it
  };
  struct Waiting {
    Asked asked;
    Time until;  // is answered at the latest then
  };
  struct LeaseLimit {
    LeaseId lease;
    Who who;
    credit::Desk desk;
    std::vector<std::string> devices;  // uuids, in the order of the desk
    std::set<ProcessRef> members{};
    std::vector<Waiting> waiting{};       // questions
    std::vector<Waiting> granted{};       // questions whose credit is being stored
    std::set<ProcessRef> being_stored{};  // processes whose credit was changed for these
  };
  struct Process {
    LeaseId lease;
    Fd pidfd;
    Time begun{};                              // when it asked first; zero: with an earlier daemon
    std::optional<Time> ended{};               // when its end was seen
    std::optional<Time> unseen{};              // since then the card shows nothing of it, and it was shown before
    std::vector<std::optional<Sight>> last{};  // by device
    std::vector<Bytes> given{};                // by device: charged for a context; empty: not known
    credit::Counts counted{};                  // as its page said last
    bool is_earlier = false;                   // its page may bring along what it did under an earlier daemon
  };

  void on_question(Asked asked);
  void begin(Asked& asked);
  bool is_early(const proc::Peer& sender) const;
  Time begin_early(Time now);  // -> when it is to be called again
  std::size_t processes_of(const Who& who) const;
  int share_page(const LeaseLimit& limit) const;
  const core::Lease* lease_for(const proc::Peer& sender) const;
  LeaseLimit* limit_of(const core::Lease& lease);
  void restore(const StoredCredit& stored);
  // Runs `change`, and stores the credits that it has changed. Returns their processes.
  std::set<ProcessRef> store_changes(LeaseLimit& limit, const std::function<void()>& change);
  store::CapabilityRow row_of(ProcessRef process) const;

  void answer_waiting(LeaseLimit& limit, Time now);
  bool finish_round(LeaseLimit& limit);
  bool waits_for_card(const LeaseLimit& limit) const;
  void refuse_all(LeaseLimit& limit);
  bool has_to_wait(const core::Lease& lease, ProcessRef process) const;
  void answer_late(const Asked& asked, LeaseId lease) const;
  Time refuse_late(Time now);  // -> when the next question is late
  void see_ends(LeaseLimit& limit, Time now);
  void forget_ended(LeaseLimit& limit);
  bool is_gone(const LeaseLimit& limit, ProcessRef process, Time ended) const;
  void take_back_unseen(LeaseLimit& limit, Time now);
  void learn(LeaseLimit& limit);
  void look_for_escapes();
  void look_at(const core::Lease& lease, const core::Device& device, const std::map<Place, Escaped>& before);
  void look_closer(ProcessRef process, Seen& seen, const Escaped* before) const;
  std::optional<Seen> seen_of(const core::Lease& lease, const std::string& uuid, const core::ProcessUse& use) const;
  bool is_others(const core::Lease& lease, ProcessRef process) const;
  void resize(LeaseLimit& limit, Bytes size);
  void drop(LeaseId lease);
  void count(const LeaseLimit& limit, ProcessRef process);
  void count_all();
  void tell_use(LeaseLimit& limit);

  engine::Engine& engine_;
  const Options options_;
  credit::Shares* const shares_;
  Questions questions_;
  std::map<LeaseId, LeaseLimit> limits_;
  std::map<ProcessRef, Process> processes_;
  std::map<std::string, ContextSize> contexts_;  // by uuid
  engine::Records<ProcessRef> rows_;             // of credits
  engine::Records<std::string> context_rows_;
  std::map<Place, Escaped> escaped_;
  std::map<LeaseId, credit::Counts> counts_;  // of living leases, and of the newest that have ended
  std::map<Who, credit::Counts> counts_by_who_;
  Told told_{};
  Awaits awaits_{};
  std::vector<Waiting> early_;  // first questions of processes that belong to no lease yet
  std::set<ProcessRef> stale_;  // stored, and of no lease any more
};

}  // namespace sublet::limit
