// SPDX-License-Identifier: Apache-2.0
// The machine that one life of the engine runs on: its interfaces, answered by the world. Ends with that life; the
// world goes on.
#pragma once

#include "engine/machine.h"
#include "pause/parker.h"
#include "watched_store.h"
#include "world.h"

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>

namespace sublet::sim {

// Data that all parts of one life share. Entries of the agenda outlive a life and ask whether it is still there.
struct Life {
  World& world;
  Agenda& agenda;
  Verdict& verdict;
  const WatchedStore& store;
  Random random;  // chance in this life
  bool faults = true;
  Duration noticed_sleep{};     // the last sleep of the machine that the engine noticed
  std::int64_t woke_at_ns = 0;  // when it was noticed
  bool reconciled = false;      // the store was opened anew; earlier orders may still be in progress
  // Called before a reading is reported.
  std::function<void(const gpu::GpuSnapshot&, std::int64_t asked_ns)> reading;
  // Called before the driver restores a program, with the memory that was made sure of.
  std::function<void(LeaseId, const std::vector<pause::Room>&)> restores;
  // The state by the last decision.
  std::function<std::optional<core::LeaseState>(LeaseId)> state_of;
  // The end of its program was decided, and the disk is slow or full.
  std::function<bool(LeaseId)> has_unstored_end;
  // Called when a program gets a pause order, or when these processes were weighed and may be parked.
  std::function<void(LeaseId, std::span<const ProcessRef> weighed)> parks;
};

// Puts an entry on the agenda that runs only if its life still goes on.
template <typename What>
Agenda::Id later(const std::shared_ptr<Life>& life, Duration from_now, What what) {
  return life->agenda.in(from_now, [weak = std::weak_ptr<Life>(life), what = std::move(what)] {
    if (weak.lock()) what();
  });
}

class SimActor;
class SimProbe;
class SimPrograms;

struct Parts {
  engine::Machine machine;
  SimActor* actor;
  SimProbe* probe;
  SimPrograms* programs;
};

// `wall`: the wall clock at the start of this life.
Parts make_machine(const std::shared_ptr<Life>& life, boost::asio::io_context& io, Time wall);

class SimProbe final : public machine::Probe {
 public:
  explicit SimProbe(std::shared_ptr<Life> life) : life_(std::move(life)) {}
  void start(Events events) override;
  void stop() override { stopped_ = true; }
  void take_now() override;
  void set_busy(bool busy) override;
  const std::string& library() const override { return none_; }
  const std::string& driver_version() const override { return none_; }
  const std::string& problem() const override { return problem_; }

 private:
  void ask_in(Duration from_now);
  void ask();
  void answer(gpu::GpuSnapshot reading, std::int64_t asked_ns);
  void spoil(gpu::GpuSnapshot& reading);

  std::shared_ptr<Life> life_;
  Events events_;
  Agenda::Id next_{};
  Duration slept_{};  // sleep of the machine before the reading was asked
  bool asked_ = false, busy_ = true, wanted_ = false, stopped_ = false;
  std::string none_, problem_;
};

class SimPrograms final : public machine::Programs {
 public:
  // Keeps a reference to `actor`.
  SimPrograms(std::shared_ptr<Life> life, SimActor& actor);
  ~SimPrograms() override;
  Status open(Events events) override;
  void introduce_all() override;
  void follow(const core::Lease& lease, bool adopted) override;
  void book(const core::Lease& lease) override;
  void forget(LeaseId lease) override;
  void forget_others(const std::function<bool(LeaseId)>& keep) override;
  void scan() override;
  const proc::Member* member(ProcessRef process) const override;
  std::vector<ProcessRef> tree(LeaseId lease) const override;
  bool inhabited(LeaseId lease) const override;
  std::string name(ProcessRef) const override { return {}; }
  bool signal(LeaseId lease, int signal, std::uint32_t asked_by) override;
  bool keeper_alive(LeaseId lease) const override;
  void wake_keeper(LeaseId lease, std::uint32_t asked_by) override;
  void tell(LeaseId, ProcessRef, int, std::function<void(machine::SignalResult)> done) override {
    done({"nobody hears it"});
  }
  void keep_from_swap(LeaseId lease, ProcessRef process, bool keep, std::function<void(std::string)> done) override;
  void all_are_kept() override;
  void limit_cpu(LeaseId, machine::CpuCause, int, std::function<void(const machine::CpuLimited&)> done) override {
    done({.why_not = "nobody limits it"});
  }
  bool can_signal(LeaseId lease) const override { return followed_.contains(lease); }
  std::string why_not_signalled(LeaseId) const override { return {}; }
  Result<Identified> identify(std::int32_t, std::optional<std::uint32_t>, std::int32_t) const override;
  Status check_pid_namespace(std::int32_t) const override { return {}; }
  Result<proc::CgroupRef> check_cgroup(const std::string&) const override;
  const proc::ProcRoot& root() const override;
  bool lives(ProcessRef process) const override;

  void check_let(bool store_is_read) const;  // call between two steps of the daemon

 private:
  void look_soon(LeaseId lease, int number);
  void look(LeaseId lease, int number);
  void check_signal(LeaseId lease) const;
  void strike(LeaseId lease, int signal);

  struct Followed {
    core::Owner owner;
    int number = 0;  // number of the owner
    std::uint32_t uid = 0;
    // The messages to the actor.
    int introduced_to = 0;                     // number of the actor that it was named to
    bool introduced = false, ordered = false;  // the actor knows it; an order to signal is open
    int wanted = 0;                            // the signal to send
  };
  void introduce(LeaseId lease, Followed& followed);
  void check_introduced(LeaseId lease, const Followed& followed) const;
  void send_wanted(LeaseId lease, Followed& followed);
  void signalled(LeaseId lease, int signal, const actor::Reply& reply);
  std::shared_ptr<Life> life_;
  SimActor& actor_;
  Events events_;
  std::set<LeaseId> booked_;          // leases with processes of their own in the world
  std::set<LeaseId> sent_early_;      // leases whose program got a signal before its end was durable
  std::set<LeaseId> kept_from_swap_;  // leases that were ordered to be kept from swap
  std::map<LeaseId, Followed> followed_;
  std::map<ProcessRef, proc::Member> members_;
  int last_number_ = 0;
};

}  // namespace sublet::sim
