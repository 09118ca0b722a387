// SPDX-License-Identifier: Apache-2.0
// Who may have what done by the actor. Pure functions but for the question to the account database; one caller at a
// time.
#pragma once

#include "actor/protocol.h"
#include "base/aside.h"
#include "proc/process_table.h"

#include <cstdint>
#include <functional>

namespace sublet::actor {

enum class Role {
  nobody,
  owner,   // of the lease in question
  daemon,  // by its own rules
  admin,   // root, the actor's own user, and, of the system's daemon, members of sublet-admin
};

// The table: which verb is for whom.
bool may(Role role, Verb verb);

// Whether a process of the program may be signalled. An admin's word, and a lease of root's, reach all of it. Anybody
// else's, the daemon's own included, reaches what the lease's user could signal: a program may have started others with
// more rights than its user has (sudo), and a lease gives nobody power over those.
bool may_signal(Role role, std::uint32_t lease_uid, const proc::Uids& process);

// Whether a process of that user may be parked as one of the lease, on whoever's word: a lease gives nobody the rights
// of another user, and root's lease those of any.
bool may_park(std::uint32_t lease_uid, std::uint32_t process_uid);

// By the account database; an error where it could not be asked. May take long.
Result<bool> in_admin_group(std::uint32_t uid);

// Membership of sublet-admin. The database may hang: nobody is an admin of whom it did not say so yet. An answer serves
// for a minute, and for a quarter of an hour while there is no newer.
class AdminGroup {
 public:
  using Ask = std::function<Result<bool>(std::uint32_t uid)>;
  explicit AdminGroup(Ask ask = in_admin_group);
  bool has(std::uint32_t uid);

 private:
  Ask ask_;  // on the other thread
  AsideThread thread_;
  AskedAside<std::uint32_t, bool> members_;
};

}  // namespace sublet::actor
