// SPDX-License-Identifier: Apache-2.0
// Functions shared by the verbs that act on one lease.
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
  std::string token_file;  // "": SUBLET_LEASE_TOKEN_FILE, or none
};

// Declares LEASE, --token-file and --json. `verb` must outlive the parse; completion offers the leases of `offer`.
void add_lease(Command command, Common& common, LeaseVerb& verb, bool required = true,
               Offer::Of offer = Offer::Of::leases);

// Declares --token-file and --json alone.
void add_token(Command command, Common& common, LeaseVerb& verb);

// The token from the named file, or "" without one. A user's own leases need no token.
Result<std::string> read_token(const LeaseVerb& verb);

std::string lease_target(const LeaseVerb& verb, const std::string& call = {});

// POSTs `body` to /v1/leases/LEASE/`call`; prints the reply with --json, else `done(lease)` on stderr.
int act_on_lease(const Common& common, const LeaseVerb& verb, const std::string& call, const nlohmann::json& body,
                 const std::function<std::string(const client::Lease&)>& done);

// Waits until the lease has ended, over restarts of the daemon. `reply` is the last answer.
struct Ended {
  client::Lease lease;
  client::Reply reply;
};
client::Answer<Ended> wait_for_end(const Common& common, client::Client& client, const LeaseVerb& verb,
                                   const std::string& token);

// A wait for something that the daemon continues, whether or not a command waits.
struct LongWait {
  std::function<bool(const nlohmann::json& lease)> settled;  // true once the wait is over, with or without success
  std::optional<Duration> at_most;
  Duration each = std::chrono::seconds(2);  // time between two requests
  std::string not_yet;                      // printed after at_most: "lease-7 did not get its memory"
  std::string goes_on;  // printed if the user interrupts: "the daemon continues to free memory for lease-7"
};

// Waits over restarts of the daemon and shows the lease's place. Returns the settled lease, or the exit code after the
// message was printed. A signal that ends the wait ends the process.
std::variant<nlohmann::json, int> wait_until_settled(const Common& common, client::Client& client, nlohmann::json lease,
                                                     const std::string& token, const LongWait& wait, const Look& look);

}  // namespace sublet::cli
