// SPDX-License-Identifier: Apache-2.0
// What the verbs that act on one lease have in common.
#pragma once

#include "cli/output.h"
#include "client/client.h"
#include "client/lease.h"

#include <nlohmann/json.hpp>

#include <functional>
#include <optional>
#include <string>
#include <variant>

namespace sublet::cli {

struct LeaseVerb {
  std::string lease;       // id or tag
  std::string token_file;  // "" : SUBLET_LEASE_TOKEN_FILE, or none
};

// Declares LEASE, --token-file and --json. `verb` must outlive the parse; completion offers the leases of `offer`.
void add_lease(Command command, Common& common, LeaseVerb& verb, bool required = true,
               Offer::Of offer = Offer::Of::leases);

// The token from the file that is named, or "" where none is. Your own leases need none.
Result<std::string> read_token(const LeaseVerb& verb);

std::string lease_target(const LeaseVerb& verb, const std::string& call = {});

// POSTs `body` to /v1/leases/LEASE/`call`; prints the reply with --json, else says `done(lease)` on stderr.
int act_on_lease(const Common& common, const LeaseVerb& verb, const std::string& call, const nlohmann::json& body,
                 const std::function<std::string(const client::Lease&)>& done);

// Waits until the lease has ended, over restarts of the daemon. `reply` is the last answer.
struct Ended {
  client::Lease lease;
  client::Reply reply;
};
client::Answer<Ended> wait_for_end(const Common& common, client::Client& client, const LeaseVerb& verb,
                                   const std::string& token);

// What is waited for that goes on by itself, whoever waits for it.
struct LongWait {
  std::function<bool(const nlohmann::json& lease)> settled;  // it has come, or never will
  std::optional<Duration> at_most;
  Duration each = std::chrono::seconds(2);  // so often it is looked at: what is no change of state is told of only then
  std::string not_yet;                      // "lease-7 has not got its room": said when that time is over
  std::string goes_on;                      // "room is still being made for lease-7": said to who leaves
};

// Waits over restarts of the daemon and shows the lease's place. The lease as it is when it is settled, or, everything
// being said, the exit code. Ends the process by the signal that ends the waiting.
std::variant<nlohmann::json, int> wait_until_settled(const Common& common, client::Client& client, nlohmann::json lease,
                                                     const std::string& token, const LongWait& wait, const Look& look);

}  // namespace sublet::cli
