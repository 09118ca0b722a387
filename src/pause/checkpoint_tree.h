// SPDX-License-Identifier: Apache-2.0
// Parks the processes of a lease together: checks all, locks all, checkpoints all; or the way back. One order at a
// time. Belongs to the loop thread.
#pragma once

#include "pause/driver_parker.h"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace sublet::pause {

class CheckpointTree {
 public:
  // The source of helpers. A process keeps the same helper until the tree drops it.
  struct Helpers {
    std::function<std::shared_ptr<CheckpointHelper>(ProcessRef)> get;
    std::function<void(ProcessRef)> drop;
    // Ends the helpers of all other processes, which have ended.
    std::function<void(const std::vector<ProcessRef>& tree)> keep_only;
  };
  CheckpointTree(boost::asio::io_context& io, ParkerOptions options, Helpers helpers)
      : io_(io), options_(std::move(options)), helpers_(std::move(helpers)) {}

  boost::asio::awaitable<ParkOutcome> park(Parker::Program program, Duration give_up, Parker::List list,
                                           Parker::Touch touch, Parker::Weigh weigh);
  boost::asio::awaitable<ParkOutcome> unpark(std::vector<ProcessRef> tree, std::vector<Room> room, Duration give_up);

 private:
  struct Member {
    ProcessRef process;
    std::shared_ptr<CheckpointHelper> helper;
    gpu::ParkState state = gpu::ParkState::unknown;
    bool gone = false;              // the process has ended, or uses no CUDA
    bool doubted = false;           // the preflight did not see the process running
    std::optional<Bytes> before{};  // host memory after the lock
    std::optional<Bytes> after{};   // host memory after the checkpoint
    bool is(gpu::ParkState wanted) const { return !gone && state == wanted; }
    bool lost_for_good() const { return is(gpu::ParkState::failed) || (!gone && helper->failed_for_good()); }
  };
  using Members = std::vector<Member>;
  struct Trouble {  // the code and detail of an outcome; code none: no failure
    core::ObstacleCode code = core::ObstacleCode::none;
    std::string detail = {};
    explicit operator bool() const { return code != core::ObstacleCode::none; }
  };
  template <typename Value>
  using Later = boost::asio::awaitable<Value>;
  using Answer = CheckpointHelper::Answer;
  using Ballast = std::vector<gpu::BallastWish>;
  using Step = Later<Trouble> (CheckpointTree::*)(Member&);

  // Steps of a single process.
  Later<Answer> ask(Member& member, gpu::CheckpointCall call, Ballast ballast = {});
  Later<Answer> ask_twice(Member& member, gpu::CheckpointCall call);
  Later<Trouble> preflight(Member& member);
  Later<Trouble> check_shared_memory(Member& member);
  Trouble tied(const Member& member) const;
  Later<Trouble> look(Member& member);
  Later<Trouble> move(Member& member, gpu::CheckpointCall call, gpu::ParkState wanted, Ballast ballast = {});
  Later<Trouble> move_back(Member& member, gpu::CheckpointCall call, gpu::ParkState wanted, Ballast ballast = {});
  Later<Trouble> lock(Member& member);
  Later<Trouble> checkpoint(Member& member);
  Later<Trouble> restore(Member& member);
  std::optional<Bytes> resident(const Member& member) const;
  static Trouble no_answer(const Member& member, const Answer& answer);

  // Steps of all processes.
  Members members_of(std::vector<ProcessRef> tree);
  Later<Trouble> at_once(std::vector<Member*> members, Step step);
  Later<Trouble> join(std::vector<ProcessRef> tree, bool& joined);
  template <typename Said>
  Later<std::optional<Said>> asked(const std::function<void(std::vector<ProcessRef>, std::function<void(Said)>)>& whom);
  Trouble measure_timeout(std::string_view what) const;
  Later<Trouble> lock_all(const Parker::List& list, const Parker::Touch& touch);
  std::optional<Bytes> on_host(const std::vector<Member*>& parked) const;
  Ballast ballast_for(const std::vector<Member*>& parked, const std::vector<Room>& room) const;
  Later<Trouble> restore_all(const std::vector<Room>& room);
  Later<Trouble> try_room(Member& member, Ballast ballast);
  Later<Trouble> unlock_all();
  Later<ParkOutcome> bring_back(Trouble before, const std::vector<Room>& room);
  Later<ParkOutcome> undo(Trouble trouble);
  std::vector<Member*> all(gpu::ParkState state);
  ParkOutcome outcome(ParkOutcome::Kind kind, Trouble trouble) const;
  ParkOutcome outcome(ParkOutcome::Kind kind) const { return outcome(kind, Trouble{}); }
  void let_go();

  boost::asio::io_context& io_;
  ParkerOptions options_;
  Helpers helpers_;
  Parker::Program program_;
  Duration give_up_{};          // timeout of a driver call in this order; a lock has its own time in addition
  Members members_;             // by start time, parents before children; empty: not known
  std::set<ProcessRef> aside_;  // processes that use no CUDA, in this order
};

}  // namespace sublet::pause
