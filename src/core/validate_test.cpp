// SPDX-License-Identifier: Apache-2.0
// Each check of validate() finds a state in which just that is wrong.
#include "core/testing/two_leases.h"

namespace sublet::core {

// Changes the private parts of a state, as a bug would.
struct StateCorruption {
  State& state;
  Lease& lease(LeaseId id) { return state.leases.by_id.at(id); }
  Device& device() { return state.devices.by_uuid.at(testing::uuid_of(0)); }
  Charge& charge(LeaseId id) { return state.leases.runtime.at(id).charges.at(0); }
  LeaseRuntime& runtime(LeaseId id) { return state.leases.runtime.at(id); }
  std::set<LeaseId>& away() { return state.pauses.away; }
  std::set<LeaseId>& pausing() { return state.pauses.pausing; }
  std::set<std::string>& unified() { return state.devices.unified; }
  std::set<std::string>& paused_above() { return state.devices.with_paused_above; }
  std::set<LeaseId>& verifying() { return state.pauses.verifying; }
  Queue& queue() { return state.queue; }
  std::set<DeviceFree>& rooms() { return state.devices.by_free; }
  Bytes& ledger() { return state.host.entries; }
  Bytes& unsettled() { return state.host.unsettled; }
  Bytes& ledger_of(std::uint32_t uid) { return state.host.of_user[uid]; }
  auto& tags() { return state.leases.tags; }
  auto& where(Tier tier) { return state.devices.with_victims[static_cast<std::size_t>(tier)]; }
};

namespace {

using namespace testing;

// A paused lease, an active one with a tag, and two that wait.
struct Four : TwoLeases {
  LeaseId paused, active, first, second;
  Four() {
    settle();
    leave();
    paused = victim;
    Lease tagged = wish(2 * GiB, "tagged");
    tagged.tag = "it";
    tagged.owner = {OwnerKind::process, process(50), {}, ""};
    active = submit(tagged);
    first = submit(wish(24 * GiB, "first"));
    second = submit(wish(23 * GiB, "second"));
    measure({});
    EXPECT_EQ(validate(state, rules, now), std::vector<std::string>{});
  }
};

struct Row {
  const char* finds;
  void (*corrupt)(StateCorruption& bug, const Four& w);
};

const Row rows[] = {
    {"has a parking", [](auto& bug, const Four& w) { bug.lease(w.active).parking.emplace(); }},
    {"in the index of paused leases", [](auto& bug, const Four& w) { bug.away().erase(w.paused); }},
    {"in the index of pausing leases", [](auto& bug, const Four& w) { bug.pausing().insert(w.paused); }},
    {"in the queue", [](auto& bug, const Four& w) { bug.queue().erase(w.first); }},
    {"queue: length", [](auto& bug, const Four& w) { bug.queue().erase(w.first); }},
    {"queue: lease at that place", [](auto& bug, const Four& w) { bug.lease(w.first).priority = -50; }},
    {"pausing while its pause is verified", [](auto& bug, const Four& w) { bug.verifying().insert(w.active); }},
    {"number of distinct devices",
     [](auto& bug, const Four& w) {
       bug.lease(w.active).devices.push_back(uuid_of(0));
       bug.runtime(w.active).charges.emplace_back();
     }},
    {"number of devices", [](auto& bug, const Four& w) { bug.lease(w.active).device_count = 2; }},
    {"in the index of its device", [](auto& bug, const Four& w) { bug.device().leases.erase(w.active); }},
    {"found by its tag", [](auto& bug, const Four&) { bug.tags().clear(); }},
    {"bytes that might be yielded", [](auto& bug, const Four& w) { bug.charge(w.active).used = 30 * GiB; }},
    {"charged is", [](auto& bug, const Four&) { bug.device().charged -= GiB; }},
    {"leased_used", [](auto& bug, const Four&) { bug.device().leased_used += GiB; }},
    {"settling", [](auto& bug, const Four&) { bug.device().settling += GiB; }},
    {"kept_unseen", [](auto& bug, const Four&) { bug.device().kept_unseen += GiB; }},
    {"pausing is", [](auto& bug, const Four&) { ++bug.device().pausing; }},
    {"parked is", [](auto& bug, const Four&) { --bug.device().parked; }},
    {"residues is", [](auto& bug, const Four&) { bug.device().residues += GiB; }},
    {"residues_to_come", [](auto& bug, const Four&) { bug.device().residues_to_come += GiB; }},
    {"index of leases by charge is complete", [](auto& bug, const Four&) { bug.device().by_charge.clear(); }},
    {"in the index of unified devices",
     [](auto& bug, const Four&) { bug.unified().insert(bug.device().reading.uuid); }},
    {"in the index of devices with leases that could leave for a paused one",
     [](auto& bug, const Four&) { bug.paused_above().clear(); }},
    {"leases that might yield", [](auto& bug, const Four&) { ++bug.device().might_yield[0].leases; }},
    {"bytes that might be yielded", [](auto& bug, const Four&) { bug.device().might_yield[0].charged += GiB; }},
    {"in the index of devices where a lease might yield",
     [](auto& bug, const Four&) { bug.where(Tier::critical).insert(uuid_of(0)); }},
    {"arrived is 0 or more", [](auto& bug, const Four&) { bug.device().arrived = Bytes{-1}; }},
    {"other is", [](auto& bug, const Four&) { bug.device().other += GiB; }},
    {"effective free memory", [](auto& bug, const Four&) { bug.device().charged -= GiB; }},
    {"ledger: entries", [](auto& bug, const Four&) { bug.ledger() -= GiB; }},
    {"ledger: unsettled", [](auto& bug, const Four&) { bug.unsettled() += GiB; }},
    {"ledger of uid 1000: entries", [](auto& bug, const Four&) { bug.ledger_of(1000) -= GiB; }},
    {"in the index of free memory", [](auto& bug, const Four&) { bug.rooms().clear(); }},
    {"size of the index of free memory", [](auto& bug, const Four&) { bug.rooms().clear(); }},
    {"indexed free memory", [](auto& bug, const Four&) { bug.device().indexed.room->free += GiB; }},
};

TEST(Validate, FindsEachKindOfCorruption) {
  for (const Row& row : rows) {
    Four w;
    StateCorruption bug{w.state};
    row.corrupt(bug, w);
    std::string all;
    for (const std::string& violation : validate(w.state, w.rules, w.now)) all += violation + "\n";
    EXPECT_SAYS(all, row.finds);
  }
}

}  // namespace
}  // namespace sublet::core
