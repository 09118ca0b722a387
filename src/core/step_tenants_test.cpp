// SPDX-License-Identifier: Apache-2.0
// Tenants: sums, limits, and the queue of those that wait for a limit.
#include "state/tenants.h"

#include "core/testing/world.h"

namespace sublet::core::testing {
namespace {

struct Wish {
  std::string tenant;
  Bytes vram;
  std::uint32_t uid = 1000;
  Tier tier = Tier::standard;
  Pausable pausable = Pausable::automatic;
  int priority = 0;
  std::optional<Duration> ttl = {};
};

Lease of(const Wish& asked) {
  Lease lease = wish(asked.vram, "l");
  lease.tenant = asked.tenant;
  lease.uid = asked.uid;
  lease.tier = asked.tier;
  lease.pausable = asked.pausable;
  lease.priority = asked.priority;
  lease.ttl = asked.ttl;
  return lease;
}

Tenant entry(std::string name, std::string parent = {}) {
  Tenant tenant;
  tenant.name = std::move(name);
  tenant.parent = std::move(parent);
  return tenant;
}

Tenant limited(std::string name, Bytes limit, OnLimit on_limit = OnLimit::queue, std::string parent = {}) {
  Tenant tenant = entry(std::move(name), std::move(parent));
  tenant.limit.bytes = limit;
  tenant.on_limit = on_limit;
  return tenant;
}

struct Tenancy : OneCard {
  explicit Tenancy(std::vector<Tenant> tenants) { set(std::move(tenants)); }
  void set(std::vector<Tenant> tenants, std::vector<TenantUse> used = {}) {
    EXPECT_TRUE(accepts(SetTenants{std::move(tenants), std::move(used)}));
  }
  LeaseId ask_for(const Wish& asked) { return submit(of(asked)); }
  TenantStanding standing(std::string_view name) const { return tenant_standing(state, name); }
};

TEST(Tenants, CountWhatTheirLeasesAreChargedWithAllAbove) {
  Tenancy w({entry("org"), entry("vision", "org"), entry("speech", "org")});
  w.ask_for({"vision", 6 * GiB});
  w.ask_for({"speech", 3 * GiB, 1001});
  w.ask_for({"vision", 20 * GiB, 1001});
  w.ask_for({"other", 2 * GiB});
  EXPECT_EQ(w.standing("org").bytes, 9 * GiB);
  EXPECT_EQ(w.standing("org").thousandths, 375);
  EXPECT_EQ(w.standing("vision").bytes, 6 * GiB);
  EXPECT_EQ(w.standing("vision").live, 1);
  EXPECT_EQ(w.standing("vision").queued, 1);
  EXPECT_EQ(w.standing("org").live, 2);
  EXPECT_EQ(w.standing("other").bytes, 2 * GiB);
  EXPECT_EQ(w.standing("nobody").live, 0);
}

TEST(Tenants, KeepTheirSumsWhenTheTreeChangesAndAfterARestart) {
  Tenancy w({entry("org"), entry("vision", "org")});
  w.ask_for({"vision", 6 * GiB});
  w.set({entry("lab"), entry("vision", "lab")});
  EXPECT_EQ(w.standing("lab").bytes, 6 * GiB);
  EXPECT_EQ(w.standing("org").bytes, Bytes{});
  w.restart();
  EXPECT_EQ(w.standing("vision").bytes, 6 * GiB);
}

TEST(Tenants, AreRefusedWhatTheyMayNeverHave) {
  Tenant strict = limited("vision", 8 * GiB);
  strict.tiers = {Tier::spot, Tier::batch};
  strict.highest_priority = 5;
  strict.longest_lease = 3600s;
  strict.queued_leases = 1;
  const Tier tier = Tier::batch;
  const struct {
    const char* name;
    Wish asked;
    Code code;
    const char* says;
  } rows[] = {
      {"a higher tier", {"vision", 1 * GiB}, Code::Denied, "may not have leases of the tier standard"},
      {"a priority", {"vision", 1 * GiB, 1000, tier, {}, 6}, Code::Denied, "up to the priority 5, not 6"},
      {"a time", {"vision", 1 * GiB, 1000, tier, {}, 0, 7200s}, Code::Quota, "at most 1 h, not for 2 h"},
      {"a size", {"vision", 9 * GiB, 1000, tier}, Code::TooLarge, "may have 8.0 GiB in all"},
      {"a place in the queue", {"vision", 8 * GiB, 1000, tier}, Code::Quota, "has 1 waiting leases, and may have 1"},
  };
  Tenancy w({strict});
  w.ask_for({"vision", 6 * GiB, 1000, tier});
  w.ask_for({"vision", 6 * GiB, 1000, tier});
  for (const auto& row : rows) {
    const Error refused = w.refusal(Submit{of(row.asked)});
    EXPECT_EQ(refused.code, row.code) << row.name;
    EXPECT_SAYS(refused.detail, row.says);
    EXPECT_FALSE(refused.hint.empty()) << row.name;
  }
}

TEST(Tenants, GiveLeasesTheirLongestTime) {
  Tenant strict = entry("vision");
  strict.longest_lease = 3600s;
  Tenancy w({strict});
  const LeaseId id = w.ask_for({"vision", 1 * GiB});
  EXPECT_EQ(w.at(id).ttl, 3600s);
  EXPECT_EQ(w.refusal(Renew{id, 0, 7200s}).code, Code::Quota);
  EXPECT_TRUE(w.accepts(Renew{id, 0, 1800s}));
}

TEST(Tenants, AreRefusedOverTheirLimitIfTheirEntrySaysSo) {
  Tenancy w({limited("org", 8 * GiB, OnLimit::refuse), entry("vision", "org"), entry("speech", "org")});
  w.ask_for({"vision", 6 * GiB});
  const Error refused = w.refusal(Submit{of({"speech", 3 * GiB})});
  EXPECT_EQ(refused.code, Code::Quota);
  EXPECT_SAYS(refused.detail, "the tenant org has 6.0 GiB and may have 8.0 GiB");
  EXPECT_SAYS(refused.hint, "ask for 2.0 GiB or less");
  EXPECT_EQ(refused.numbers.at("limit_bytes"), (8 * GiB).count);
}

TEST(Tenants, WaitForTheirLimitBehindAllOthersAndBlockNone) {
  Tenancy w({limited("vision", 8 * GiB)});
  const LeaseId first = w.ask_for({"vision", 6 * GiB});
  const LeaseId limited = w.ask_for({"vision", 4 * GiB});
  const LeaseId fits = w.ask_for({"vision", 2 * GiB});
  EXPECT_EQ(w.states(first, limited, fits), "active queued active");
  const LeaseId large = w.ask_for({"other", 20 * GiB});
  EXPECT_EQ(w.state.queue.place(large), 1U) << "the other waits for a limit";
  EXPECT_EQ(w.state.queue.place(limited), 2U);
  w.step(Release{.lease = first, .force = true});
  EXPECT_EQ(w.states(limited, large), "offered queued");
}

TEST(Tenants, MayHaveSoManyLiveLeasesAndPartsOfDevices) {
  Tenant few = entry("few"), part = entry("part");
  few.live_leases = 1;
  part.limit.thousandths = 500;
  Tenancy w({few, part});
  w.ask_for({"few", 1 * GiB});
  EXPECT_EQ(w.states(w.ask_for({"few", 1 * GiB})), "queued");
  EXPECT_EQ(w.states(w.ask_for({"part", 12 * GiB})), "active");
  EXPECT_EQ(w.states(w.ask_for({"part", 1 * GiB})), "queued");
  EXPECT_SAYS(w.refusal(Submit{of({"part", 13 * GiB})}).detail, "may have 0.5 devices in all");
}

TEST(Tenants, MayGrowUpToTheirLimitOnly) {
  Tenancy w({limited("vision", 8 * GiB)});
  const LeaseId first = w.ask_for({"vision", 4 * GiB}), other = w.ask_for({"vision", 2 * GiB});
  EXPECT_EQ(w.refusal(Resize{first, 0, 20 * GiB}).code, Code::TooLarge);
  EXPECT_TRUE(w.accepts(Resize{first, 0, 7 * GiB}));
  EXPECT_EQ(w.at(first).vram, 4 * GiB) << "it waits for its limit";
  w.step(Release{.lease = other, .force = true});
  EXPECT_EQ(w.at(first).vram, 7 * GiB);
}

TEST(Tenants, GoOnWithALimitBelowTheirUse) {
  Tenancy w({limited("vision", 8 * GiB)});
  const LeaseId first = w.ask_for({"vision", 6 * GiB});
  w.set({limited("vision", 2 * GiB)});
  EXPECT_EQ(w.states(first), "active");
  EXPECT_EQ(w.states(w.ask_for({"vision", 1 * GiB})), "queued");
  w.set({});
  EXPECT_EQ(w.state.queue.size(), 0U) << "without the limit the waiter is granted";
}

TEST(Tenants, UseCountsOverTheWindowAndARestart) {
  Tenancy w({entry("vision")});
  w.ask_for({"vision", 6 * GiB});
  w.now = w.now + 60s;
  w.measure();
  const TenantUse use = tenant_use(w.state, w.rules, "vision", w.now);
  ASSERT_EQ(use.bytes.size(), 1U);
  EXPECT_EQ(static_cast<std::int64_t>(use.bytes.front().second / 1'000'000'000), 60 * (6 * GiB).count);
  const std::vector<TenantUse> all = tenant_uses(w.state, w.rules, w.now);
  EXPECT_EQ(all.size(), 2U) << "the tenant and its user";
  w.restart();
  w.set({entry("vision")}, all);
  EXPECT_EQ(tenant_use(w.state, w.rules, "vision", w.now).bytes, use.bytes);
}

TEST(Tenants, OfWaitersHaveTheLimitsOfTheNewTree) {
  Tenancy w({limited("x", 4 * GiB), limited("y", 4 * GiB)});
  EXPECT_FALSE(w.ask(of({"x", 5 * GiB, 1001})).has_value()) << "its account is opened, and holds nothing";
  w.ask_for({"y", 3 * GiB, 1002});
  const LeaseId waits = w.ask_for({"y", 3 * GiB, 1003});
  ASSERT_EQ(w.states(waits), "queued");
  w.set({limited("y", 8 * GiB)});
  w.measure();
  EXPECT_EQ(w.states(waits), "offered");
}

TEST(Tenants, LimitsOfDevicesCountWhatMayBeGranted) {
  Tenant half = entry("half");
  half.limit.thousandths = 500;
  Tenancy w({half});
  Lease flexible = of({"half", 48 * GiB});
  flexible.min_vram = 20 * GiB;
  EXPECT_EQ(w.ask(flexible).error().code, Code::TooLarge) << "it would get the whole card";
  EXPECT_EQ(w.states(w.ask_for({"half", 12 * GiB})), "active");

  World unread;
  unread.step(SetTenants{{half}, {}});
  const LeaseId waits = unread.submit(of({"half", 12 * GiB}));
  unread.snapshot({gpu(0, 24 * GiB)});
  EXPECT_EQ(unread.states(waits), "offered") << "the size of the card is known by now";
}

TEST(Tenants, APausedLeaseComesBackUnderItsLimit) {
  Tenancy w({limited("x", 10 * GiB)});
  Lease lease = of({"x", 8 * GiB});
  lease.cooperation = Cooperation{.way = CooperationWay::webhook, .address = "http://127.0.0.1/"};
  const LeaseId paused = w.submit(lease);
  ASSERT_TRUE(w.accepts(Pause{paused, 0, {PauseCauseKind::owner_request}, plenty}));
  w.step(AttemptEvent{paused, Parked{true, {}, 8 * GiB}});
  for (int proof = 0; proof < 2; ++proof) w.now = w.now + 20ms, w.measure();
  ASSERT_EQ(w.states(paused), "paused");
  const LeaseId other = w.ask_for({"x", 4 * GiB});
  EXPECT_EQ(w.states(other), "queued") << "what is paused comes back";
  w.set({limited("x", 1 * GiB)});
  w.step(Resume{paused});
  w.measure();
  EXPECT_EQ(w.states(paused), "resuming") << "a lower limit takes nothing away";
}

TEST(Tenants, ALeaseIsNotChargedToATenantThatMayNotHaveIt) {
  Tenant batch = limited("batch", 4 * GiB);
  batch.tiers = {Tier::batch};
  Tenancy w({batch, limited("small", 4 * GiB), entry("org"), limited("lab", 8 * GiB, OnLimit::queue, "org")});
  const LeaseId stack = w.ask_for({"lab", 6 * GiB});
  const auto move = [&](std::string tenant, Tier tier = Tier::standard) {
    Amend amend{.lease = stack};
    amend.tier = tier;
    amend.charged = Charged{1001, "ben", std::move(tenant)};
    const auto outcome = w.step(amend).outcome;
    return outcome ? "" : std::string(to_string(outcome.error().code));
  };
  EXPECT_EQ(move("batch"), "Denied");
  EXPECT_EQ(move("small"), "Quota");
  EXPECT_EQ(w.at(stack).tenant, "lab");
  EXPECT_EQ(move("lab"), "") << "its tenant has it already";
  EXPECT_EQ(move("org"), "");
}

TEST(Tenants, TheLeastTimeLimitAboveHoldsForLeasesThatAskForNone) {
  Tenant top = entry("top"), below = entry("below", "top");
  top.longest_lease = 4h, below.longest_lease = 8h;
  Tenancy w({top, below});
  EXPECT_EQ(w.at(w.ask_for({"below", GiB})).ttl, 4h);
  EXPECT_FALSE(w.ask(of({.tenant = "below", .vram = GiB, .ttl = 5h})).has_value());
}

}  // namespace
}  // namespace sublet::core::testing
