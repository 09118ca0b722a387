// SPDX-License-Identifier: Apache-2.0
// Requests for a lease: the common part of POST /v1/leases and POST /v1/free.
#pragma once

#include "guard/program.h"
#include "http/body.h"
#include "http/message.h"
#include "http/secrets.h"
#include "idle/rule.h"

namespace sublet::http {

struct LeaseCall {
  core::Submit submit;
  Duration wait{};  // time that the answer may wait for the grant
  Secret token;
  std::optional<guard::StartName> program = {};  // set if a supervised program's keeper asks
  // Set if the keeper of a session asks: the number of the session, and that of the start.
  std::optional<std::pair<std::uint64_t, std::uint64_t>> session = {};
  idle::Rule idle = {};       // the lease's own idle rule
  bool keep_running = false;  // its program runs on if its keeper is killed
  std::string more = {};      // a further field of the answer as JSON, `"name":value`; "" for none
};

// Reads `device`: gpu0, 0, a MIG slice as gpu0:1 or 0:1, a uuid or the start of one, or several of them joined by
// commas; nothing or "any" leaves the device open.
Status take_device(Body& body, const engine::Engine& engine, core::Lease& lease);

// Reads `gpu_spec`: the lease is on those of its devices that are like this. Call it after take_device() and once the
// number of devices is known. NotFound: there are not so many such devices, and the error names those that are there.
Status take_gpu_spec(Body& body, const engine::Engine& engine, core::Lease& lease);

// Reads the body of a later POST /v1/leases by the caller. The lease gets a new token.
Result<LeaseCall> read_lease_request(Call& call, const json& body);

// The answer to a dry run, which creates nothing: what the lease would do; with `count` also when each of so many would
// start.
Response dry_run_of(const Call& call, const LeaseCall& asked, std::optional<int> count);
inline constexpr int most_planned = 100;  // each costs a projection some events

// An error if so many more leases of the user would be beyond limits.leases.
Status check_lease_limit(const engine::Engine& engine, const engine::Peer& peer, int more = 1);

// An error if the caller runs inside a lease, and would wait for the end of that lease.
Status check_nesting(const Call& call, const LeaseCall& asked);

struct Submitted {
  LeaseId lease;
  Response response;  // with the token, which belongs to this reply alone
};
// Creates a lease whose owner shows `token`. `answer` makes status and JSON of the reply, without the token.
Result<Submitted> submit_with_token(engine::Engine& engine, const core::Submit& submit,
                                    const engine::Remember& remember, const Secret& token,
                                    const std::function<std::pair<int, std::string>(const core::Lease&)>& answer);

// Creates the lease and answers: 201 active, 202 queued.
Reply submit(Call& call, LeaseCall asked);
// Answers a retry of a call that made a lease.
Reply replay_lease(Call& call, const store::Remembered& remembered);

}  // namespace sublet::http
