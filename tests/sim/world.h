// SPDX-License-Identifier: Apache-2.0
// The true state of the machine, whatever anybody believes: cards, the processes that hold their bytes, host memory.
#pragma once

#include "agenda.h"
#include "config.h"
#include "gpu/cuda_api.h"
#include "gpu/snapshot.h"
#include "ram.h"
#include "verdict.h"

#include "base/ids.h"

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace sublet::sim {

struct Process {
  ProcessRef ref;
  LeaseId lease;                // lease of its program; none: an unleased process
  std::vector<Bytes> held;      // bytes on each card
  std::vector<Bytes> parked;    // bytes on the host, parked by the driver, by card
  std::vector<Bytes> put_away;  // bytes on the host, moved by itself, by card
  // The state in the driver; a process that is not running allocates nothing.
  gpu::ParkState state = gpu::ParkState::running;
  bool rests = false;                // it allocates nothing of its own accord
  std::vector<Bytes> arriving = {};  // parked bytes back on each card, unlisted before all are back
  bool unlisted = false;             // the driver does not list it for a while, whatever it holds
  std::vector<Bytes> seen = {};      // bytes on each card when it was listed last
  std::size_t group = 0;             // the group by which it can be kept from swap
  Bytes swapped = {};                // parked bytes on the swap device
  bool kept = false;                 // it was kept from swap when it was parked
  Time born = {};                    // by CLOCK_MONOTONIC
};

// How a cooperative program answers a pause order.
enum class Manners { honest, refuses, late, unresponsive, liar, half, again };

// A program that was started for a lease, with its keeper.
struct Program {
  LeaseId lease;
  ProcessRef main, keeper;
  std::vector<std::size_t> cards;  // cards that it may use
  Bytes within;                    // most bytes that it uses on each card, if it is honest
  bool keeper_alive = true;
  bool lives = true;  // a process of it lives
  bool deaf = false;  // it does not end at SIGTERM
  int workers = 0;    // number of processes still to start, each with few bytes
  Manners manners = Manners::honest;
  std::int64_t busy_until_ns = 0;  // answers no order before this time
  bool yields_late = false;        // it will have yielded by then
  std::optional<int> exit_status;
  bool by_signal = false;
  std::uint32_t uid = 1000;
  Time ended_at{};  // by CLOCK_MONOTONIC, if it does not live
};

class Driver;

class World {
 public:
  World(const Config& config, Agenda& agenda, Verdict& verdict);
  ~World();
  World(const World&) = delete;

  static std::string uuid_of(std::size_t card) { return "GPU-" + std::to_string(card); }
  std::optional<std::size_t> card_of(const std::string& uuid) const;

  // --- programs ---
  Program& start_program(LeaseId lease, std::uint32_t uid, std::vector<std::size_t> cards, Bytes within);
  Program* program_of(LeaseId lease);
  const std::map<LeaseId, Program>& programs() const { return programs_; }
  void fork(Program& program);
  // Called when the last process of a program has ended; one listener at a time.
  void when_ended(std::function<void(LeaseId)> ended) { ended_ = std::move(ended); }
  void end_program(Program& program, std::optional<int> status, bool by_signal);
  void end_process(ProcessRef process);
  void kill_some_program(Random& random);
  void end_all();                                    // for a restart of the machine
  bool inhabited(LeaseId lease) const;               // a process of it lives
  Time awake() const { return {agenda_.now_ns()}; }  // CLOCK_MONOTONIC, which stands while the machine sleeps
  // Bytes of the program on the card, its processes together.
  Bytes held_by(LeaseId lease, std::size_t card) const;
  Bytes parked_by(LeaseId lease, std::size_t card) const;  // bytes of that card that the driver parked
  Bytes put_away_by(LeaseId lease) const;                  // bytes of all cards that it moved itself
  bool quiet(LeaseId lease) const;
  bool rests(LeaseId lease) const;                 // it has yielded
  bool waits_for_the_driver(LeaseId lease) const;  // the driver has locked or parked it
  // The process that knew how the program yields has ended: the others run on, without the bytes that it put away.
  void go_on_without(LeaseId lease);
  // One step in a program's life: it allocates, frees or forks. A failure for want of memory is judged: `entitled` is
  // what a lease promises it right now on each of its cards.
  void let_work(Program& program, Random& random, bool over_use, std::optional<Bytes> entitled);

  // The program allocates all that it may on each of its cards, as far as that is free.
  void take_all(const Program& program);

  // --- what the driver does not say ---
  // Hides a process of the lease, or of any lease, from the list for a while. Only processes that were listed with all
  // their bytes are hidden, one at a time, and with pauses between.
  void hide(LeaseId lease, Random& random);
  void list_all();
  // Bytes of its processes that were listed before, and were not at the last reading of the card.
  Bytes unseen(LeaseId lease, std::size_t card) const;
  // A driver call for the lease was late, or its card is gone: its owner may end it as it is.
  void note_hung(LeaseId lease) { hung_.insert(lease); }
  bool hung(LeaseId lease) const { return hung_.contains(lease); }
  // A client requested its end, even as it is.
  void note_forced(LeaseId lease) { forced_.insert(lease); }
  bool forced(LeaseId lease) const { return forced_.contains(lease); }

  // --- unleased processes ---
  void disturb(Random& random);
  void end_unleased();
  const Process* process(std::int32_t pid) const;

  // --- parking, as it really happens ---
  Driver& driver() { return *driver_; }
  const Driver& driver() const { return *driver_; }
  void lock(ProcessRef process);
  void unlock(ProcessRef process);
  // Moves so many percent of its bytes to the host; at 100, all but the residue.
  void checkpoint(ProcessRef process, int percent);
  // `never`: a card has too little memory for the returning bytes. `not_now`: no card is known to have too little.
  enum class Restored { done, not_now, never };
  void begin_restore(ProcessRef ref);  // its bytes come, if memory is free, before it is listed
  void end_restore(ProcessRef ref);    // called whatever the result is
  Restored restore(ProcessRef process);
  void fail(ProcessRef process);                   // it can never be restored
  void grab_again(LeaseId lease, Random& random);  // it allocates although it was parked
  // A cooperative program moves its bytes to the host, and back. False: memory is not free, and nothing was changed.
  void put_away(LeaseId lease, int percent);
  bool take_back(LeaseId lease);
  // True if bytes that the program took again while parked, or that the driver left, crowd out the rest. The rest, or
  // the most that it may be, then has no space even on a whole card.
  bool crowds_itself(LeaseId lease) const;
  // True if a process of it runs and uses a card. While paused it may then block other leases that block it.
  bool took_again(LeaseId lease) const;
  // True if the driver has parked a part of a process, and left bytes on several cards.
  bool halved(LeaseId lease) const;

  // --- host memory ---
  Ram& ram() { return ram_; }
  const Ram& ram() const { return ram_; }
  // True if bytes of it may be written to the swap device, unless an actor (`by_somebody`) prevents that first. Only
  // processes born until `born_until` count.
  bool may_swap(LeaseId lease, bool by_somebody, Time born_until = Time::never()) const;
  Bytes swapped_of(LeaseId lease) const;

  // --- the cards ---
  gpu::GpuSnapshot read(std::int64_t began_ns);
  void lose_card(std::size_t card, bool lost) { cards_[card].lost = lost; }
  bool lost(std::size_t card) const { return cards_[card].lost; }
  Bytes room(std::size_t card) const;
  Bytes total_parked() const;
  void heal();  // all cards are back, and all freed bytes are returned

  const std::map<ProcessRef, Process>& processes() const { return processes_; }
  const Config& config() const { return config_; }
  static constexpr Bytes residue = 4 * MiB;
  static constexpr Bytes of_any_program = 1 * GiB;  // host memory that a process takes for itself

 private:
  struct Card {
    Bytes total;
    Bytes ghosts;  // bytes that are freed, and not returned yet
    bool lost = false;
  };
  Process& add_process(LeaseId lease, std::size_t group = 0);
  void swap_out();
  void start_workers(Program& program, std::size_t card);
  using Kept = std::vector<Bytes> Process::*;
  void move_out(Process& process, int percent, Kept kept);
  void move_in(Process& process, Kept kept);
  std::vector<Process*> processes_of(LeaseId lease);
  // True if all cards have free memory for the bytes that these processes have there.
  bool has_room(const std::vector<Process*>& processes, Kept kept);
  Bytes kept_by(LeaseId lease, std::size_t card, Kept kept) const;
  void free_all(Process& process);
  static bool put_aside(const Process& process);
  std::string why_full(std::size_t card) const;

  const Config& config_;
  Agenda& agenda_;
  Verdict& verdict_;
  Random fate_;  // for events that no part of the simulation decides
  std::unique_ptr<Driver> driver_;
  Ram ram_;
  std::vector<Card> cards_;
  std::map<ProcessRef, Process> processes_;  // all living processes
  std::map<LeaseId, Program> programs_;      // the last program of each lease
  std::function<void(LeaseId)> ended_;
  std::map<std::pair<LeaseId, std::size_t>, Bytes> unseen_;  // by lease and card, at the last reading
  std::int64_t hide_again_ns_ = 0;                           // no process is hidden before this time
  std::set<LeaseId> hung_;
  std::set<LeaseId> forced_;
  std::int32_t last_pid_ = 1000;
};

}  // namespace sublet::sim
