// SPDX-License-Identifier: Apache-2.0
#include "tenant_tree/tree.h"

#include <gtest/gtest.h>

namespace sublet::tenants {
namespace {

Tenant tenant(std::string name, std::string parent = {}, TenantAmount quota = {}, TenantAmount limit = {}) {
  return {.name = std::move(name), .parent = std::move(parent), .quota = quota, .limit = limit};
}

TenantAmount gib(std::int64_t count) { return {Bytes{count * GiB.count}, {}}; }
TenantAmount devices(int thousandths) { return {{}, thousandths}; }

Tree tree(const std::vector<Tenant>& entries) { return Tree::from(entries).value(); }

TEST(Tree, RefusesWhatIsWrongWithTheEntry) {
  const struct {
    std::vector<Tenant> entries;
    int entry;
    const char* text;
  } cases[] = {
      {{tenant("a"), tenant("b"), tenant("a")}, 2, "tenant a is given twice"},
      {{tenant("vision"), tenant("b", "visoin")},
       1,
       "the parent of tenant b, visoin, has no entry – did you mean 'vision'?"},
      {{tenant("a", "b"), tenant("b", "a")}, 0, "the parents of tenant a are a cycle: a -> b -> a"},
      {{tenant("a", "a")}, 0, "the parents of tenant a are a cycle: a -> a"},
      {{tenant("a"), tenant("b", "a"), tenant("c", "b"), tenant("d", "c"), tenant("e", "d")},
       4,
       "tenant e is on level 5: e -> d -> c -> b -> a"},
      {{tenant("a", "", gib(6), gib(4))}, 0, "the quota of tenant a, 6.0 GiB, is more than its limit, 4.0 GiB"},
      {{tenant("a", "", gib(4)), tenant("b", "a", gib(3)), tenant("c", "a", gib(2))},
       0,
       "the quotas below tenant a add up to 5.0 GiB (b, c), and its quota is 4.0 GiB"},
      {{tenant("a", "", {}, gib(4)), tenant("b", "a", gib(5))},
       0,
       "the quotas below tenant a add up to 5.0 GiB (b), and its limit is 4.0 GiB"},
      // A tenant without a quota hands those below it on.
      {{tenant("a", "", devices(1500)), tenant("b", "a"), tenant("c", "b", devices(2000))},
       0,
       "the quotas below tenant a add up to 2 devices (c), and its quota is 1.5 devices"},
  };
  for (const auto& [entries, entry, text] : cases) {
    const auto made = Tree::from(entries);
    ASSERT_FALSE(made.has_value()) << text;
    EXPECT_EQ(made.error().detail, text);
    EXPECT_EQ(made.error().numbers.at(entry_number), entry) << text;
    EXPECT_FALSE(made.error().hint.empty()) << text;
  }
}

TEST(Tree, KnowsPathsAndSums) {
  const Tree all = tree({tenant("lab", "", gib(8)), tenant("vision", "lab", gib(4)), tenant("ana", "vision", gib(1)),
                         tenant("house", "", devices(500)), tenant("spare", "house", gib(2))});
  EXPECT_EQ(all.path("ana"), (std::vector<std::string>{"ana", "vision", "lab"}));
  EXPECT_EQ(all.path("nobody"), std::vector<std::string>{"nobody"});
  EXPECT_EQ(all.below("lab"), (std::vector<std::string>{"lab", "vision", "ana"}));
  EXPECT_TRUE(all.below("nobody").empty());
  std::vector<std::string> order;
  for (const Tenant& entry : all.list()) order.push_back(entry.name);
  EXPECT_EQ(order, (std::vector<std::string>{"house", "spare", "lab", "vision", "ana"}));
  EXPECT_EQ(all.guaranteed(), (TenantAmount{Bytes{10 * GiB.count}, 500}));
}

TEST(Tree, IsScaledByTheSamePart) {
  const Tree all = tree({tenant("a", "", gib(6)), tenant("b", "a", gib(4)), tenant("c", "", gib(2))});
  EXPECT_EQ(all.scaled_to(Bytes{8 * GiB.count}, 1000).entries(), all.entries());
  const Tree half = all.scaled_to(Bytes{4 * GiB.count}, 1000);
  EXPECT_EQ(half.find("a")->quota, gib(3));
  EXPECT_EQ(half.find("b")->quota, gib(2));
  EXPECT_EQ(half.find("c")->quota, gib(1));
  EXPECT_EQ(tree({tenant("a", "", devices(3000))}).scaled_to({}, 2000).find("a")->quota, devices(2000));
}

TEST(Tree, TenThousandTenantsAreChecked) {
  std::vector<Tenant> entries{tenant("top", "", gib(10'000))};
  for (int i = 0; i < 10'000; ++i) entries.push_back(tenant("t" + std::to_string(i), "top", gib(1)));
  const Tree all = tree(entries);
  EXPECT_EQ(all.guaranteed(), gib(10'000));
  EXPECT_DOUBLE_EQ(tree({tenant("a", "", gib(12)), tenant("b", "", devices(1000))}).guaranteed_part(24 * GiB, 2000), 1);
  EXPECT_EQ(changes(Tree(), all).size(), entries.size());
  entries.back().quota = gib(2);
  EXPECT_FALSE(Tree::from(entries).has_value());
}

TEST(Changes, TellTheFieldsThatDiffer) {
  Tenant before = tenant("a", "", gib(4), gib(7)), after = tenant("a", "", gib(4), devices(1500));
  after.weight = 2500;
  after.tiers = {core::Tier::batch, core::Tier::standard};
  after.longest_lease = std::chrono::hours(36);
  const auto told = changes(tree({before, tenant("gone")}), tree({after, tenant("new", "a")}));
  ASSERT_EQ(told.size(), 3U);
  EXPECT_EQ(told[0], (Change{Change::Kind::changed,
                             "a",
                             {{"limit_devices", "", "1.5"},
                              {"longest_lease", "", "36h"},
                              {"weight", "", "2.5"},
                              {"tiers", "", "batch, standard"},
                              {"limit", "7GiB", ""}}}));
  EXPECT_EQ(told[1], (Change{Change::Kind::removed, "gone", {}}));
  EXPECT_EQ(told[2], (Change{Change::Kind::added, "new", {{"parent", "", "a"}}}));
  EXPECT_TRUE(changes(tree({before}), tree({before})).empty());
}

TEST(Effects, NameLeasesThatBecomeBorrowedOrExceedALimit) {
  const std::vector<Charge> charges{{LeaseId{1}, "vision", Bytes{3 * GiB.count}, 750},
                                    {LeaseId{2}, "vision", Bytes{2 * GiB.count}, 500},
                                    {LeaseId{3}, "dave", Bytes{GiB.count}, 250}};
  const auto kinds = [&](const Tree& before, const Tree& after) {
    std::string text;
    for (const Effect& effect : effects(before, after, charges))
      text += (text.empty() ? "" : "; ") + to_string(effect.lease) + " " + std::string(to_string(effect.kind)) + ": " +
              effect.text;
    return text;
  };
  const Tree none, quota = tree({tenant("vision", "", gib(4))}), enough = tree({tenant("vision", "", gib(6))});
  EXPECT_EQ(kinds(none, none), "");
  EXPECT_EQ(kinds(none, enough),
            "lease-3 borrowed: tenant dave has no quota: a guarantee may take all of its memory back");
  EXPECT_EQ(kinds(enough, quota),
            "lease-1 borrowed: tenant vision holds 5.0 GiB, 1.0 GiB above its quota of 4.0 GiB; "
            "lease-2 borrowed: tenant vision holds 5.0 GiB, 1.0 GiB above its quota of 4.0 GiB");
  EXPECT_EQ(kinds(none, tree({tenant("vision", "", {}, devices(1000))})),
            "lease-1 over_limit: tenant vision holds 1.25 devices, 0.25 devices above its limit of 1 device; "
            "lease-2 over_limit: tenant vision holds 1.25 devices, 0.25 devices above its limit of 1 device");
  Tenant one = tenant("vision");
  one.live_leases = 1;
  EXPECT_NE(kinds(none, tree({one})).find("tenant vision has 2 leases with memory, and may have 1"), std::string::npos);
  EXPECT_NE(kinds(tree({one}), none).find("tenant vision has no entry any more: the lease goes on"), std::string::npos);
}

}  // namespace
}  // namespace sublet::tenants
