// SPDX-License-Identifier: Apache-2.0
// Requests and answers as values, so that the resources (leases.cpp, tables.cpp …) know no sockets.
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

namespace sublet::guard {
class Guard;
}
namespace sublet::enforcer {
class Enforcer;
}
namespace sublet::stacks {
class Stacks;
}
namespace sublet::sessions {
class Sessions;
}

namespace sublet::events {
class Outlets;
}
namespace sublet::follow {
class Follow;
}
namespace sublet::idle {
class Idle;
}

namespace sublet::limit {
class Limits;
}
namespace sublet::maintenance {
class Maintenance;
}
namespace sublet::meter {
class Meter;
}
namespace sublet::tenants {
class Tenants;
}

namespace sublet::http {

using nlohmann::json;

// The capabilities above the engine; null: switched off. They outlive the server.
struct Capabilities {
  guard::Guard* guard = nullptr;
  enforcer::Enforcer* enforcer = nullptr;
  stacks::Stacks* stacks = nullptr;
  sessions::Sessions* sessions = nullptr;
  events::Outlets* events = nullptr;
  meter::Meter* meter = nullptr;
  idle::Idle* idle = nullptr;
  follow::Follow* follow = nullptr;
  limit::Limits* limits = nullptr;
  maintenance::Maintenance* maintenance = nullptr;
  tenants::Tenants* tenants = nullptr;
};

// These hide the functions of base/error.h, because a refusal here needs a hint.
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

// A part of the daemon that the configuration key `key` switches off. Programs learn from `switched_off` that repeating
// the call cannot help.
inline Error switched_off(std::string detail, std::string_view key) {
  return {Code::Unavailable,
          std::move(detail),
          "an admin can set " + std::string(key) + " = true and restart the daemon",
          {{"switched_off", 1}}};
}

enum class Method { get, post, del };
std::string_view to_string(Method method);  // "GET"

struct Request {
  Method method = Method::get;
  std::string path;                          // undecoded, without the query
  std::map<std::string, std::string> query;  // decoded
  std::string idempotency_key;
  std::string lease_token;
  std::string last_event_id;
  json body;  // null without a body
  engine::Peer peer;
  engine::SessionId session = 0;  // id of the connection, which can hold leases
};

struct Response {
  int status = 200;
  json body;
  std::string location;   // header Location, if not empty
  bool of_leases = true;  // depends on decisions about leases: sent only once they are durable
  std::string text = {};  // with `type`: the body instead of JSON
  std::string_view type = {};
  std::optional<std::uint64_t> after = {};  // commit to wait for; unset: all decisions made before the answer
  std::string allow = {};                   // header Allow of a 405
  std::string_view head = {};               // further header lines, which replace Cache-Control; ends with a line end
};

// A problem document, sent at once, with the error's hint or a general hint for its code.
Response problem(const Error& error);
// A problem document with a status that belongs to no code.
Response problem(int status, const Error& error);
// A problem document that is sent once the decision is durable, for callers that act on it.
Response durable_problem(const Error& error);
Response as_json(int status, std::string text, std::string location = {});  // sent once the decision is durable
// The answer once it is durable, or the refusal.
Response as_json(Result<engine::Answered> answered);

// Denied to a caller over TCP, whose pids may belong to another machine. Nobody may name process 1 as `pid`: every
// process descends from it.
Status may_name_processes(const engine::Peer& peer, std::int64_t pid = 0);

struct WaitForLease;
struct WaitForNews;
struct FollowEvents;
struct TextStream;
struct Later;
using Reply = std::variant<Response, WaitForLease, WaitForNews, FollowEvents, TextStream, Later>;

// Answers with the lease once its state is no longer `since`, it is stopping or has ended, or at_most is over.
struct WaitForLease {
  LeaseId lease;
  core::LeaseState since = core::LeaseState::queued;
  bool was_stopping = false;
  bool resizing = false;            // wait until the resize is done or cancelled
  std::function<bool()> news = {};  // replaces these conditions: wait until it is true or the lease has ended
  bool hold = false;                // the owner's wait, which holds the lease while it is open
  bool release_hold = false;        // the hold ends with the wait, not with the connection
  bool submitted = false;           // this call created the lease and must report it even if it cannot wait
  Duration at_most{};
  std::function<Response(const core::Lease&)> answer;
};

// Answers with a stream of events until the connection ends.
struct FollowEvents {
  std::uint64_t after = 0;         // number of the last event known to the reader
  bool whole = false;              // start with the first stored event above `after`, without a gap event
  std::string gap;                 // text of a first gap event; "": none
  std::string after_text;          // the reader's Last-Event-ID
  LeaseId lease;                   // only events of this lease
  std::vector<std::string> types;  // only events of these types; empty: all
  Duration heartbeat = std::chrono::seconds(15);
  bool follow = true;     // false: end after the stored events
  bool readings = false;  // also tell what the last readings of the devices changed
};

// Answers once `news` is true, or at_most is over. `news` is asked at each new event of the event stream.
struct WaitForNews {
  std::function<bool()> news;
  Duration at_most{};
  LeaseId hold;  // the owner's wait, which holds this lease while it is open; none: no lease is held
  std::function<Reply()> answer;
};

// Answers with a stream of text until `next` has no more, or the connection ends.
struct TextStream {
  std::function<std::string()> next;  // the next piece; "": none for now
  bool follow = false;                // wait for more
  std::function<bool()> over = {};    // there will be no more; unset: there may always be
};

// Answers from the store's thread: call `start` with the receiver, on the loop thread.
struct Later {
  std::function<void(std::function<void(Reply)>)> start;
  std::function<void()> left = {};  // the caller has left before the answer; unset: the answer is made all the same
};

// Decodes the %XX of a path or query.
std::string url_decode(std::string_view text);

// One call of a resource. Lives until the request is answered.
struct Call {
  const Request& request;
  engine::Engine& engine;
  std::vector<std::string> args;  // values of the {…} parts of the path, in order
  engine::Remember remember;      // the Idempotency-Key, if given
  Capabilities capabilities = {};
};

}  // namespace sublet::http
