// SPDX-License-Identifier: Apache-2.0
#include "engine/tenants.h"

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <unistd.h>

namespace sublet::engine {
namespace {

const TenantRules rules{.users = {{"ana", "vision"}, {"dave", "dave"}},
                        .groups = {{"lab", "speech"}, {"staff", "house"}, {"guests", "speech"}}};

using Groups = std::map<std::string, bool>;  // of the rules' groups; a missing one is unknown

Tenants found_for(const std::string& user, const Groups& groups) {
  return tenants_of(rules, user, [&](const std::string& group) -> std::optional<bool> {
    const auto known = groups.find(group);
    return known == groups.end() ? std::nullopt : std::optional(known->second);
  });
}

TEST(Tenants, AreThoseOfTheUserAndItsGroups) {
  const Groups none{{"lab", false}, {"staff", false}, {"guests", false}};
  const Groups all{{"lab", true}, {"staff", true}, {"guests", true}};
  const struct {
    std::string user;
    Groups groups;
    std::string usual;  // "": unknown
    std::vector<std::string> names;
    bool complete;
  } cases[] = {
      {"bob", none, "bob", {"bob"}, true},
      {"ana", none, "vision", {"ana", "vision"}, true},
      {"ana", all, "vision", {"ana", "vision", "speech", "house"}, true},
      {"bob", all, "speech", {"bob", "speech", "house"}, true},
      {"bob", {{"lab", false}, {"staff", true}, {"guests", true}}, "house", {"bob", "house", "speech"}, true},
      {"dave", all, "dave", {"dave", "speech", "house"}, true},
      {"house", all, "speech", {"house", "speech"}, true},
      {"ana", {}, "vision", {"ana", "vision"}, false},
      {"bob", {}, "", {"bob"}, false},
      {"bob", {{"lab", true}}, "speech", {"bob", "speech"}, false},
      {"bob", {{"staff", true}, {"guests", false}}, "", {"bob", "house"}, false},
      {"bob", {{"lab", false}, {"staff", false}}, "", {"bob"}, false},
  };
  for (const auto& [user, groups, usual, names, complete] : cases) {
    const Tenants found = found_for(user, groups);
    const std::string what = fmt::format("{} with {}", user, groups);
    EXPECT_EQ(found.usual.value_or(""), usual) << what;
    EXPECT_EQ(found.names, names) << what;
    EXPECT_EQ(found.complete, complete) << what;
  }
}

// The first group of the process has an entry in the account database of every Debian: root.
TEST(Tenants, ALeaseIsChargedToATenantThatItsUserMayCharge) {
  const TenantRules with_groups{.users = {{"ana", "vision"}}, .groups = {{"root", "house"}, {"no-such-group", "none"}}};
  const auto in_root = std::make_shared<const std::vector<gid_t>>(std::vector<gid_t>{54321, 0});
  const auto elsewhere = std::make_shared<const std::vector<gid_t>>(std::vector<gid_t>{54321});
  const struct {
    std::string user;
    Role role;
    decltype(in_root) groups;
    std::optional<std::string> asked;
    std::string tenant;  // or the error's text and hint
  } cases[] = {
      {"ana", Role::user, in_root, {}, "vision"},
      {"ana", Role::user, in_root, "ana", "ana"},
      {"ana", Role::user, in_root, "house", "house"},
      {"bob", Role::user, in_root, {}, "house"},
      {"bob", Role::user, in_root, "bob", "bob"},
      {"bob", Role::user, elsewhere, {}, "bob"},
      {"bob", Role::admin, elsewhere, "none", "none"},
      {"bob", Role::admin, elsewhere, {}, "bob"},
      {"bob", Role::user, elsewhere, "house",
       "user bob is not allowed to charge tenant house (tenants of bob: bob; an admin may charge any)"},
      {"ana", Role::user, in_root, "none",
       "user ana is not allowed to charge tenant none (tenants of ana: ana, vision, house; an admin may charge any)"},
  };
  for (const auto& [user, role, groups, asked, tenant] : cases) {
    const auto found = tenant_for(with_groups, Peer{.uid = 54321, .user = user, .role = role, .groups = groups}, asked);
    EXPECT_EQ(found ? *found : fmt::format("{} ({})", found.error().detail, found.error().hint), tenant)
        << user << " asked for " << asked.value_or("none");
  }
}

TEST(Tenants, WithoutAConnectionTheAccountTellsTheGroups) {
  const TenantRules of_root{.users = {}, .groups = {{"root", "house"}}};
  const auto own = tenant_for(of_root, Peer{.uid = 0, .user = "root", .role = Role::user, .tcp = true});
  ASSERT_TRUE(own) << own.error().detail;
  EXPECT_EQ(*own, "house");
  const auto other = tenant_for(of_root, Peer{.uid = 54399, .user = "54399", .role = Role::user, .tcp = true});
  ASSERT_TRUE(other) << other.error().detail;
  EXPECT_EQ(*other, "54399");
}

}  // namespace
}  // namespace sublet::engine
