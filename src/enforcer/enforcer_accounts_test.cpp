// SPDX-License-Identifier: Apache-2.0
// Users without an account, and an account database that does not answer.
#include "enforcer/enforcer_test.h"

#include <fmt/format.h>

#include <dlfcn.h>
#include <pwd.h>
#include <cerrno>
#include <csignal>

namespace sublet::enforcer {
namespace {

constexpr std::uint32_t without_account = 54399, without_answer = 54398;

}  // namespace
}  // namespace sublet::enforcer

// The database of this program: it does not answer about one user.
extern "C" int getpwuid_r(uid_t uid, passwd* entry, char* memory, std::size_t size, passwd** found) {
  *found = nullptr;
  if (uid == sublet::enforcer::without_answer) return ECONNREFUSED;
  using Ask = int (*)(uid_t, passwd*, char*, std::size_t, passwd**);
  return reinterpret_cast<Ask>(::dlsym(RTLD_NEXT, "getpwuid_r"))(uid, entry, memory, size, found);
}

namespace sublet::enforcer {
namespace {

// A rule for a named user could be about the one whose name is not known.
TEST_F(EnforcerTest, OnlyAUserWhoseNameIsNotKnownYetIsSpared) {
  const struct {
    std::uint32_t uid;
    std::vector<int> signals;
    const char* spared;
  } rows[] = {{without_account, {SIGTERM}, ""},
              {without_answer, {}, "the account database does not tell the name of user 54398"}};
  for (const auto& row : rows) {
    SCOPED_TRACE(row.uid);
    const ProcessRef process{static_cast<std::int32_t>(row.uid), 60};
    unleased->signals.clear();
    unleased->uids[process] = row.uid;
    end(offender);
    add(process, GiB);
    set_policy("user:ana", Policy::warn);
    set_policy(fmt::format("user:{}", row.uid).c_str(), Policy::enforce);
    pass(5 * interval);
    EXPECT_EQ(unleased->signals, row.signals);
    EXPECT_EQ(verdict_of(process).spared, row.spared);
    end(process);
  }
}

}  // namespace
}  // namespace sublet::enforcer
