// SPDX-License-Identifier: Apache-2.0
// Decides which orders a user may give to the actor. Pure functions, except the question to the account database. One
// caller at a time.
#pragma once

#include "actor/protocol.h"
#include "base/aside.h"
#include "proc/process_table.h"

#include <cstdint>
#include <functional>

namespace sublet::actor {

enum class Role {
  nobody,
  owner,   // the user of the lease
  daemon,  // the daemon by its own rules
  admin,   // root, the actor's own user and, for the system's daemon, members of sublet-admin
};

// The table of verbs and roles.
bool may(Role role, Verb verb);

// Whether the process of a program may be signalled. An order of an admin, or about a lease of root, reaches all
// processes. Any other order reaches only processes that the lease's user could signal. A program may have started
// processes with more rights (sudo), and a lease gives no power over them.
bool may_signal(Role role, std::uint32_t lease_uid, const proc::Uids& process);

// Whether a process of `process_uid` may be parked for a lease of `lease_uid`, whoever asks. A lease gives nobody the
// rights of another user; a lease of root may park any process.
bool may_park(std::uint32_t lease_uid, std::uint32_t process_uid);

// Asks the account database. An error means that the database could not be asked. May take long.
Result<bool> in_admin_group(std::uint32_t uid);

// Membership of sublet-admin. The database may hang: until it has answered, a user is no admin. An answer is used for a
// minute, or for a quarter of an hour while there is no newer one.
class AdminGroup {
 public:
  using Ask = std::function<Result<bool>(std::uint32_t uid)>;
  explicit AdminGroup(Ask ask = in_admin_group);
  bool has(std::uint32_t uid);

 private:
  Ask ask_;  // runs on the other thread
  AsideThread thread_;
  AskedAside<std::uint32_t, bool> members_;
};

}  // namespace sublet::actor
