// SPDX-License-Identifier: Apache-2.0
// A request and an answer as values, so that the resources (leases.cpp, tables.cpp …) know nothing of sockets.
#pragma once

#include "engine/engine.h"
#include "engine/peer.h"

#include <nlohmann/json.hpp>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace sublet::http {

using nlohmann::json;

// Whoever is refused here is told what to do about it: these hide those of base/error.h, which let the hint be left
// out.
inline Error bad_request(std::string detail, std::string hint) {
  return sublet::bad_request(std::move(detail), std::move(hint));
}
inline Error not_found(std::string detail, std::string hint) {
  return sublet::not_found(std::move(detail), std::move(hint));
}
inline Error denied(std::string detail, std::string hint) { return sublet::denied(std::move(detail), std::move(hint)); }
inline Error unavailable(std::string detail, std::string hint) {
  return sublet::unavailable(std::move(detail), std::move(hint));
}

enum class Method { get, post, del };
std::string_view to_string(Method method);  // "GET"

struct Request {
  Method method = Method::get;
  std::string path;                          // as it came, without the query
  std::map<std::string, std::string> query;  // decoded
  std::string idempotency_key;
  std::string lease_token;
  std::string last_event_id;
  json body;  // null without a body
  engine::Peer peer;
  engine::SessionId session = 0;  // the connection; leases can be held by it
};

struct Response {
  int status = 200;
  json body;
  std::string location;   // header Location, if not empty
  bool of_leases = true;  // tells what was decided about leases: not to be told before it is durable
  std::string text = {};  // with `type`: the body, instead of JSON
  std::string_view type = {};
  std::optional<std::uint64_t> after = {};  // the commit to wait for; unset: all that was intended when it was made
  std::string allow = {};                   // with 405: what the path takes
};

// Told at once: whoever is refused for what is lost with the store may ask again.
// With the error's hint, or with what usually helps where something deeper down gave none: no problem is without one.
Response problem(const Error& error);
// The same with a status that no code has.
Response problem(int status, const Error& error);
// The same of what was decided about leases, told once it is durable: for who acts on it and does not ask again.
Response durable_problem(const Error& error);
Response as_json(int status, std::string text, std::string location = {});  // told once it is durable
Response as_json(engine::Answered answered);

// Denied to who is known by an access token alone: it may be anywhere, and the pids that it names anybody's.
// Nobody may name process 1, `pid` if one is named: everything on the machine descends from it.
Status may_name_processes(const engine::Peer& peer, std::int64_t pid = 0);

// The answer is the lease, once it is no longer `since` (or once stopping or ended), or when the wait is over.
struct WaitForLease {
  LeaseId lease;
  core::LeaseState since = core::LeaseState::queued;
  bool was_stopping = false;
  bool resizing = false;            // until it waits for another size no more
  std::function<bool()> news = {};  // instead of all that: until this is true, or the lease has ended
  bool hold = false;                // the owner's wait: while it is open a grant goes straight to `active`
  bool release_hold = false;        // the hold ends with the wait, else with the connection
  bool submitted = false;  // the lease was made by this call: it must be told of, even if it cannot be waited for
  Duration at_most{};
  std::function<Response(const core::Lease&)> answer;
};

// The answer is a stream of events that goes on until the connection ends.
struct FollowEvents {
  std::uint64_t after = 0;         // number of the last event that the reader knows
  bool whole = false;              // begin with whatever is kept above `after`: what is missing is no gap
  std::string gap;                 // told first: why nothing leads from what the reader knows to what follows
  std::string after_text;          // what the reader said
  LeaseId lease;                   // events of this lease only
  std::vector<std::string> types;  // of these types only; empty: all
  Duration heartbeat = std::chrono::seconds(15);
  bool follow = true;  // false: ends where the present begins
};

struct Later;
using Reply = std::variant<Response, WaitForLease, FollowEvents, Later>;

// The answer comes from the store's own thread: call `start` with what takes it, on the loop thread.
struct Later {
  std::function<void(std::function<void(Reply)>)> start;
};

// What a path or query says after its %XX are undone.
std::string url_decode(std::string_view text);

// One call: what a resource is handed. Lives as long as the request is answered.
struct Call {
  const Request& request;
  engine::Engine& engine;
  std::vector<std::string> args;  // the {…} parts of the route's path, in order
  engine::Remember remember;      // the Idempotency-Key, if one was given
};

}  // namespace sublet::http
