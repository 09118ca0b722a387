// SPDX-License-Identifier: Apache-2.0
// Who may have what done by the actor. Pure functions but for the question to the account database; one thread.
#pragma once

#include "actor/protocol.h"
#include "proc/process_table.h"

#include <functional>
#include <map>

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

// Membership of sublet-admin, by the account database, which may be slow: an answer serves for a minute.
class AdminGroup {
 public:
  bool has(std::uint32_t uid);

 private:
  struct Known {
    bool member = false;
    std::int64_t at_ns = 0;
  };
  std::map<std::uint32_t, Known> known_;
};

}  // namespace sublet::actor
