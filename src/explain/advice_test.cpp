// SPDX-License-Identifier: Apache-2.0
// Advice where no victims are found.
#include "core/testing/ideal_executor.h"

namespace sublet::core::testing {
namespace {

// Two users of equal standing.
struct Equals : Card {
  Equals() { rules.min_residency = 100s; }
  LeaseId of(std::uint32_t uid, Bytes vram, Pausable pausable = Pausable::automatic) {
    Lease lease = want(vram, Tier::standard, "train");
    lease.uid = uid;
    lease.user = uid == 1000 ? "ana" : "ben";
    lease.pausable = pausable;
    const LeaseId id = submit(lease, true);
    if (state_of(id) == LeaseState::active) attach(id);
    return id;
  }
  // The refusal as the API tells it: the advice is that of the preview.
  Error refused(LeaseId id) {
    const PreemptionRequest by{at(id).uid, false};
    const VictimPlan preview = explain::victim_plan(state, rules, at(id), by, now);
    Error error = refusal(Preempt{id, 0, by});
    if (error.hint.empty()) error.hint = preview.hint;
    return error;
  }
};

TEST(Advice, OfARefusalSaysWhatElseCanBeDone) {
  const struct {
    std::uint32_t holder;
    Pausable pausable;
    std::vector<std::string> hints;
  } rows[] = {
      {1000,
       Pausable::automatic,
       {"it waits for about ", ": its time slice begins then: lease-1 (train, ana) is paused",
        "a request by an admin would pause lease-1 (train, ana), and so can its owner: `sublet pause lease-1`"}},
      {1001, Pausable::no, {"`sublet stop lease-1` ends a lease of the same user, which would free enough"}},
      {1000, Pausable::no, {"`sublet why lease-2` says what would help"}},
  };
  for (const auto& row : rows) {
    Equals w;
    w.of(row.holder, 20 * GiB, row.pausable);
    const Error refusal = w.refused(w.of(1001, 10 * GiB));
    EXPECT_EQ(refusal.code, Code::CannotPreempt);
    for (const std::string& hint : row.hints) EXPECT_SAYS(refusal.hint, hint);
  }
}

// A program that Sublet did not start is paused with a pause grant: no advice says only to end it.
TEST(Advice, OfARefusalNamesTheMissingGrant) {
  Equals w;
  const LeaseId first = w.of(1001, 20 * GiB);
  Attach attach{first, 0, w.at(first).owner, true, {}};
  attach.owner.keeper = {};
  ASSERT_TRUE(w.accepts(attach));
  const LeaseId next = w.of(1001, 10 * GiB);
  EXPECT_SAYS(w.refused(next).hint, "`sublet pause --grant train` lets its programs be parked; `kill ");
  EXPECT_SAYS(w.helps(next), "who can let it be parked (`sublet pause --grant train`) or end it");
  w.step(Grant{w.at(first).uid, w.at(first).consumer});
  EXPECT_TRUE(w.accepts(Preempt{next, 0, {1001, false}})) << "as the hint says";
}

TEST(Advice, DoesNotNameAResumeThatCanNeverWork) {
  Equals w;
  const LeaseId first = w.of(1001, 20 * GiB);
  ASSERT_TRUE(w.accepts(Pause{first, 0, {}, plenty}));
  w.obey();
  EXPECT_SAYS(w.refused(first).hint, "`sublet resume lease-1`");
  w.step(Resume{first});
  w.step(AttemptEvent{first, Unparked{Unparked::How::never, "the driver says 2"}});
  EXPECT_SAYS(w.refused(first).hint, "`sublet stop lease-1` ends it");
}

TEST(Advice, NamesARequestThatTheOwnerMayMake) {
  for (const std::uint32_t holder : {1001U, 1000U}) {
    Equals w;
    w.of(holder, 20 * GiB);
    const LeaseId next = w.of(1001, 10 * GiB);
    const bool own = holder == 1001;
    EXPECT_EQ(contains(w.helps(next), "`sublet preempt lease-2` pauses lease-1 (train, ben) of the same user"), own);
    EXPECT_EQ(contains(w.helps(next), "who can pause it (`sublet pause lease-1`) or end it"), own);
    EXPECT_EQ(contains(w.helps(next), "sublet preempt"), own);
    if (!own) continue;
    w.step(Preempt{next, 0, {1001, false}});
    EXPECT_FALSE(contains(w.helps(next), "is enough: `sublet preempt")) << "it was said already";
  }
}

}  // namespace
}  // namespace sublet::core::testing
