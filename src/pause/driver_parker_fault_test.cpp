// SPDX-License-Identifier: Apache-2.0
// Parking with failures at each step: the driver fails, a helper or the program dies, or a driver call hangs.
#include "pause/driver_parker_test.h"

namespace sublet::pause {
namespace {

// --- the driver fails

TEST_F(Parking, ALockThatRunsOutOfTimeUnlocksTheOthers) {
  options_.lock_timeout = std::chrono::milliseconds(50);
  fresh_parker();
  const std::vector<ProcessRef> tree{load(), load("50")};
  fault("launch-hang", tree[1]);
  until([&] { return hits("launch-hang") > 0; });
  const ParkOutcome outcome = park(tree);
  expect(outcome, Kind::undone, "timeout");
  EXPECT_NE(outcome.detail.find(std::to_string(tree[1].pid)), std::string::npos) << outcome.detail;
  EXPECT_EQ(state(tree[0]), "running");
  EXPECT_EQ(state(tree[1]), "running");
  ctl({"clear"});
  ends_right(tree[0]);
  ends_right(tree[1]);
}

TEST_F(Parking, ACheckpointThatFailsBringsTheOthersBack) {
  const std::vector<ProcessRef> tree{load(), load()};
  const Bytes before = used();
  fault("checkpoint-fail", tree[1]);
  expect(park(tree), Kind::unknown, "driver");
  EXPECT_EQ(state(tree[1]), "running") << "not locked for nothing";
  EXPECT_EQ(show()["calls"].count("cuCheckpointProcessRestore"), 0) << "before somebody made sure of its room";
  ctl({"clear"});
  expect(unpark(tree), Kind::done);
  EXPECT_EQ(used(), before);
  expect(park(tree), Kind::done);
  expect(unpark(tree), Kind::done);
  ends_right(tree[0]);
  ends_right(tree[1]);
}

// An order that is undone half-way needs memory for the parked processes only.
TEST_F(Parking, WhatIsUndoneIsRestoredOnlyIntoRoomThatIsThere) {
  const std::vector<ProcessRef> tree{load(), load()};
  const Bytes each = alloc + 16 * MiB;
  fault("checkpoint-fail", tree[1]);
  expect(park(tree), Kind::unknown, "driver");
  EXPECT_EQ(state(tree[0]), "checkpointed");
  ctl({"clear"});
  const Bytes left = GiB - used();
  const std::map<ProcessRef, Bytes> of{{tree[0], left + 2 * MiB}, {tree[1], each}};
  expect(unpark(tree, {{card(), GiB, of}}), Kind::unknown, "no_room");
  expect(unpark(tree, {{card(), GiB}}), Kind::unknown, "no_room");
  EXPECT_EQ(show()["calls"].count("cuCheckpointProcessRestore"), 0);
  expect(unpark(tree, {{card(), GiB, {{tree[0], left}, {tree[1], each}}, gpu::ballast_margin}}), Kind::done);
  ends_right(tree[0]);
  ends_right(tree[1]);
}

// Unmeasured bytes of parked processes are at most all bytes except those that other processes hold. Those are never
// freed.
TEST_F(Parking, WhatIsNotKnownIsNoMoreThanWhatTheOthersLeave) {
  const std::vector<ProcessRef> tree{load(), load()};
  fault("checkpoint-fail", tree[1]);
  expect(park(tree), Kind::unknown, "driver");
  ctl({"clear"});
  const Bytes left = GiB - used();
  const Bytes others = GiB - left;
  expect(unpark(tree, {{card(), GiB + 2 * MiB, {{tree[1], others}}}}), Kind::unknown, "no_room");
  expect(unpark(tree, {{card(), GiB, {{tree[1], others}}}}), Kind::done);
  ends_right(tree[0]);
  ends_right(tree[1]);
}

// The process came after the others were parked. They would wait for ever for its memory.
TEST_F(Parking, WhatAProcessHoldsThatCameTooLateIsNotNeeded) {
  const std::vector<ProcessRef> tree{load()};
  expect(park(tree), Kind::done);
  const ProcessRef late = load();
  const Bytes others = used();
  expect(unpark(tree, {{card(), GiB, {{tree[0], alloc}}}}), Kind::unknown, "no_room");
  expect(unpark(tree, {{card(), GiB, {{tree[0], alloc}, {late, others}}}}), Kind::done);
  ends_right(tree[0]);
  ends_right(late);
}

// Half of the bytes are still on the device, and nothing measured which half. At most the host memory of the process is
// parked.
TEST_F(Parking, RoomThatCanNeverBeIsNotWaitedFor) {
  const std::vector<ProcessRef> tree{load()};
  expect(park(tree), Kind::done);
  expect(unpark(tree, {{card(), GiB + 2 * MiB, {}, {}, GiB + 2 * MiB}}), Kind::unknown, "no_room");
  expect(unpark(tree, {{card(), GiB + 2 * MiB, {}, {}, GiB}}), Kind::done);
  ends_right(tree[0]);
}

TEST_F(Parking, ACheckpointThatFailsUnderWayIsFinalForThatOne) {
  const std::vector<ProcessRef> tree{load(), load()};
  fault("checkpoint-fail", tree[1], {"--after", "50"});
  expect(park(tree), Kind::unknown, "driver");
  const ParkOutcome outcome = unpark(tree);
  expect(outcome, Kind::final, "failed");
  EXPECT_NE(outcome.detail.find(std::to_string(tree[1].pid)), std::string::npos) << outcome.detail;
  ends_right(tree[0]);
}

TEST_F(Parking, ARestoreThatFailsIsFinalAndNotTriedAgain) {
  const std::vector<ProcessRef> tree{load(), load()};
  expect(park(tree), Kind::done);
  fault("restore-fail", tree[0]);
  for (int round = 0; round < 3; ++round) {
    const ParkOutcome outcome = unpark(tree);
    expect(outcome, Kind::final, "failed");
    EXPECT_EQ(outcome.parked, std::vector{tree[0]}) << "its bytes are kept";
  }
  EXPECT_EQ(show()["calls"]["cuCheckpointProcessRestore"], 2) << "one each";
  ends_right(tree[1]);
  kill_load(tree[0]);
  expect(unpark(tree), Kind::done);
}

TEST_F(Parking, ADriverThatIsAwayForAMomentIsFoundAgain) {
  const ProcessRef program = load();
  const std::string library = dir_ + "/libcuda.so.1", cards = dir_ + "/cards", away = dir_ + "/away";
  options_.driver = library;
  fresh_parker();
  expect(park({program}), Kind::undone, "no_driver");
  std::filesystem::create_symlink(build("lib/simgpu/libcuda.so.1"), library);
  expect(park({program}), Kind::done);
  fresh_parker();
  std::filesystem::rename(cards, away);
  expect(unpark({program}), Kind::unknown, "no_driver");
  std::filesystem::rename(away, cards);
  expect(unpark({program}), Kind::done);
  ends_right(program);
}

TEST_F(Parking, AHelperWhoseDriverFailsOnTheWayBackIsReplaced) {
  const ProcessRef program = load();
  expect(park({program}), Kind::done);
  const pid_t first = helper_of(program);
  ctl({"fault", "device-lost"});
  expect(unpark({program}, {{card(), 64 * MiB}}), Kind::unknown, "driver");
  ctl({"clear", "device-lost"});
  expect(unpark({program}, {{card(), 64 * MiB}}), Kind::done);
  EXPECT_EQ(std::ranges::count(helpers_of(program), first), 0) << "one that had to do with the lost card";
  ends_right(program);
}

TEST_F(Parking, WithoutRoomNoRestoreIsTried) {
  const std::vector<ProcessRef> tree{load(), load()};
  expect(park(tree), Kind::done);
  const ParkOutcome outcome = unpark(tree, {{card(), 2 * GiB}});
  expect(outcome, Kind::unknown, "no_room");
  EXPECT_EQ(outcome.parked, tree);
  EXPECT_EQ(show()["calls"].count("cuCheckpointProcessRestore"), 0);
  expect(unpark(tree, {{card(), 512 * MiB}}), Kind::done);
  ends_right(tree[0]);
  ends_right(tree[1]);
}

// --- a helper or program dies during a call

struct Step {
  const char* hang;
  bool back;  // true: a step of unpark; false: of park
};

class AtEachStep : public Parking, public ::testing::WithParamInterface<Step> {
 protected:
  // Returns when both processes are at the step, and the second is inside the driver.
  Later begin(const std::vector<ProcessRef>& tree) {
    if (GetParam().back) expect(park(tree), Kind::done);
    fault(GetParam().hang, tree[1]);
    Later later = GetParam().back ? begin_unpark(tree) : begin_park(tree);
    until([&] { return hits(GetParam().hang) > 0; });
    return later;
  }
};

TEST_P(AtEachStep, TheEndOfAHelperChangesNothing) {
  const std::vector<ProcessRef> tree{load(), load()};
  const Later later = begin(tree);
  const pid_t killed = helper_of(tree[1]);
  ::kill(killed, SIGKILL);
  until([&] {  // another helper has started and asks for the state
    const auto now = helpers_of(tree[1]);
    return now.size() == 1 && now[0] != killed;
  });
  ctl({"clear"});
  expect(wait(later), Kind::done);
  if (!GetParam().back) {
    EXPECT_EQ((*later)->parked, tree);
#ifndef __SANITIZE_THREAD__  // ThreadSanitizer frees memory of its own meanwhile
    EXPECT_GE((*later)->host_bytes, 2 * alloc) << "whoever saw the end of it";
#endif
    expect(unpark(tree), Kind::done);
  }
  ends_right(tree[0]);
  ends_right(tree[1]);
}

TEST_P(AtEachStep, AProgramMayDie) {
  const std::vector<ProcessRef> tree{load(), load()};
  const Later later = begin(tree);
  kill_load(tree[1]);
  expect(wait(later), Kind::done);
  if (!GetParam().back) {
    EXPECT_EQ((*later)->parked, std::vector{tree[0]});
    expect(unpark(tree), Kind::done);
  }
  ends_right(tree[0]);
}

INSTANTIATE_TEST_SUITE_P(Parking, AtEachStep,
                         ::testing::Values(Step{"state-hang", false}, Step{"lock-hang", false},
                                           Step{"checkpoint-hang", false}, Step{"state-hang", true},
                                           Step{"restore-hang", true}, Step{"unlock-hang", true}),
                         [](const auto& step) {
                           std::string name = std::string(step.param.hang) + (step.param.back ? "_back" : "");
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

TEST_F(Parking, HelpersAndProgramsMayDieWhileTheyAreParked) {
  const std::vector<ProcessRef> tree{load(), load(), load()};
  expect(park(tree), Kind::done);
  for (const ProcessRef process : tree) ::kill(helper_of(process), SIGKILL);
  kill_load(tree[2]);
  until([&] { return used() == 2 * residue; });
  expect(unpark(tree), Kind::done);
  ends_right(tree[0]);
  ends_right(tree[1]);
}

// --- a driver call that hangs

struct Hang {
  const char* fault;
  bool back;
  ParkOutcome::Kind outcome;
};

TEST_F(Parking, ACallThatHangsIsToldOnceAndTakenIntoAccountWhenItReturns) {
  const std::vector<Hang> hangs{{"state-hang", false, Kind::undone},       {"lock-hang", false, Kind::unknown},
                                {"checkpoint-hang", false, Kind::unknown}, {"state-hang", true, Kind::unknown},
                                {"restore-hang", true, Kind::unknown},     {"unlock-hang", true, Kind::unknown}};
  options_.lock_timeout = std::chrono::milliseconds(100);
  give_up_ = std::chrono::seconds(2);
  fresh_parker();
  std::vector<std::vector<ProcessRef>> trees;
  std::vector<Later> later;
  const auto id = [](std::size_t i) { return LeaseId{i + 1}; };
  for (std::size_t i = 0; i < hangs.size(); ++i) {
    trees.push_back({load(), load()});
    if (hangs[i].back) expect(wait(begin_park(trees[i], id(i)), id(i)), Kind::done);
  }
  for (std::size_t i = 0; i < hangs.size(); ++i) {
    fault(hangs[i].fault, trees[i][1]);
    later.push_back(hangs[i].back ? begin_unpark(trees[i], {}, id(i)) : begin_park(trees[i], id(i)));
  }
  for (std::size_t i = 0; i < hangs.size(); ++i) {
    const ParkOutcome outcome = wait(later[i], id(i));
    expect(outcome, hangs[i].outcome, "stuck");
    EXPECT_NE(outcome.detail.find(std::to_string(trees[i][1].pid)), std::string::npos) << outcome.detail;
    // The second order brings the other process back, and uses no second helper.
    expect(wait(begin_unpark(trees[i], {}, id(i)), id(i)), Kind::unknown, "stuck");
    EXPECT_EQ(state(trees[i][0]), "running");
    EXPECT_EQ(helpers_of(trees[i][1]).size(), 1);
    EXPECT_EQ(returned_[id(i)], 0);
  }
  ctl({"clear"});
  for (std::size_t i = 0; i < hangs.size(); ++i) {
    until([&] { return returned_[id(i)] > 0; });
    expect(wait(begin_unpark(trees[i], {}, id(i)), id(i)), Kind::done);
    EXPECT_EQ(returned_[id(i)], 1);
    ends_right(trees[i][0]);
    ends_right(trees[i][1]);
  }
}

// --- the driver hangs for a process while another is locked, as it does if they share memory

TEST_F(Parking, WhoIsNotSpokenOfWhileAnotherIsLockedLetsAllGo) {
  give_up_ = std::chrono::seconds(2);
  const std::vector<ProcessRef> tree{load(), load(), load()};
  const auto later = std::make_shared<std::optional<ParkOutcome>>();
  const Parker::Touch touch = [&](const auto&, const auto& may) {
    fault("state-hang", tree[1]);
    may(true);
  };
  parker_->park(
      lease, program_, give_up_, [&] { return tree; }, touch, weigh_, into(later));
  expect(wait(later), Kind::undone, "shared_memory");
  for (const ProcessRef process : tree) EXPECT_EQ(state(process), "running");
  EXPECT_EQ(show()["calls"]["cuCheckpointProcessLock"], 1) << "none comes late";
  ctl({"clear"});
  until([&] { return returned_[lease] == 1; });
  for (const ProcessRef process : tree) ends_right(process);
}

TEST_F(Parking, WhoComesWhileTheOthersAreLockedAndIsNotSpokenOfLetsThemGo) {
  give_up_ = std::chrono::seconds(2);
  const ProcessRef first = load(), second = load();
  fault("state-hang", second);
  int asked = 0;
  const auto later = std::make_shared<std::optional<ParkOutcome>>();
  const auto list = [&] { return ++asked == 1 ? std::vector{first} : std::vector{first, second}; };
  parker_->park(lease, program_, give_up_, list, freely(), weigh_, into(later));
  expect(wait(later), Kind::undone, "shared_memory");
  EXPECT_EQ(state(first), "running");
  ctl({"clear"});
  ends_right(first);
  ends_right(second);
}

TEST_F(Parking, WhoIsFoundLockedDoesNotWaitForAnotherOfWhomNothingIsSaid) {
  give_up_ = std::chrono::seconds(2);
  const ProcessRef first = load(), second = load();
  weigh_ = [](const auto&, const auto&) {};  // never answers
  begin_park({first});
  until([&] { return state(first) == "locked"; });
  ::kill(helper_of(first), SIGKILL);  // a living helper would unlock it
  until([&] { return helpers_of(first).empty(); });
  fresh_parker();
  fault("state-hang", second);
  expect(wait(begin_unpark({first, second})), Kind::unknown, "stuck");
  EXPECT_EQ(state(first), "running");
  ctl({"clear"});
  until([&] { return returned_[lease] == 1; });
  expect(wait(begin_unpark({first, second})), Kind::done);
  ends_right(first);
  ends_right(second);
}

// The user may stop a helper that has its rights. Only the helper's own lease waits for it, and only for a limited
// time.
TEST_F(Parking, AHelperThatIsStoppedHoldsUpNobodyElse) {
  give_up_ = std::chrono::seconds(2);
  const ProcessRef one = load(), other = load();
  expect(park({one}), Kind::done);
  expect(unpark({one}), Kind::done);
  const pid_t helper = helper_of(one);
  ::kill(helper, SIGSTOP);
  const Later later = begin_park({one});
  for (int round = 0; round < 2; ++round) {
    expect(wait(begin_park({other}, LeaseId{2}), LeaseId{2}), Kind::done);
    expect(wait(begin_unpark({other}, {}, LeaseId{2}), LeaseId{2}), Kind::done);
  }
  expect(wait(later), Kind::undone, "stuck");
  ::kill(helper, SIGCONT);
  until([&] { return returned_[lease] == 1; });
  expect(park({one}), Kind::done);
  expect(unpark({one}), Kind::done);
  ends_right(one);
  ends_right(other);
}

// Several stuck calls are waited for once.
TEST_F(Parking, WhenOneHangsOfThoseThatAreAskedTogetherNoMoreAreAsked) {
  give_up_ = std::chrono::seconds(2);
  std::vector<ProcessRef> tree;
  for (int i = 0; i < 16; ++i) {
    tree.push_back(load());
    fault("state-hang", tree.back());
  }
  tree.push_back(load());
  expect(park(tree), Kind::undone, "stuck");
  EXPECT_TRUE(helpers_of(tree.back()).empty());
  EXPECT_EQ(helpers_of(tree.front()).size(), 1) << "there never is a second";
}

TEST_F(Parking, AStuckHelperOutlivesItsLeaseAndIsTheOnlyOne) {
  give_up_ = std::chrono::seconds(2);
  const ProcessRef program = load();
  fault("checkpoint-hang", program);
  expect(park({program}), Kind::unknown, "stuck");
  const pid_t helper = helper_of(program);
  parker_->forget(lease);
  expect(wait(begin_park({program}, LeaseId{2}), LeaseId{2}), Kind::undone, "stuck");
  EXPECT_EQ(helper_of(program), helper);
  parker_->forget(LeaseId{2});
  ctl({"clear"});
  until([&] { return helpers_of(program).empty(); });
  EXPECT_EQ(state(program), "checkpointed") << "what it was asked is done";
  EXPECT_EQ(returned_.size(), 0) << "nobody's any more";
  expect(wait(begin_unpark({program}, {}, LeaseId{3}), LeaseId{3}), Kind::done);
  ends_right(program);
}

TEST_F(Parking, ARestoreThatFailsLateIsFinalToo) {
  give_up_ = std::chrono::seconds(2);
  const ProcessRef program = load();
  expect(park({program}), Kind::done);
  fault("restore-hang", program);
  fault("restore-fail", program);
  expect(unpark({program}), Kind::unknown, "stuck");
  ctl({"clear", "restore-hang"});
  until([&] { return returned_[lease] > 0; });
  expect(unpark({program}), Kind::final, "failed");
  EXPECT_EQ(show()["calls"]["cuCheckpointProcessRestore"], 1);
}

}  // namespace
}  // namespace sublet::pause
