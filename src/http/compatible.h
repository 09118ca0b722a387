// SPDX-License-Identifier: Apache-2.0
// The requests and answers of the compatible service, which speaks as the one-stack service that it replaces: the same
// fields, types and status codes. Pure functions, any thread.
#pragma once

#include "compose/worker.h"
#include "http/message.h"
#include "stacks/slot.h"

#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace sublet::http::compatible {

// stacks.ttl and stacks.ready_timeout, for calls that leave them out.
struct Defaults {
  Duration ttl = std::chrono::minutes(30);
  Duration wait = std::chrono::minutes(15);
};

struct AcquireCall {
  stacks::Ask ask;
  Duration wait{};                        // until the stack is ready; with `wait_turn` also until the caller's turn
  std::string wrong_ttl{}, wrong_wait{};  // why a time is no time; "": it is one
  bool wait_ready = true;                 // false: the answer does not wait for readiness
  bool wait_turn =
      false;  // an addition of ours: the answer waits for the caller's turn instead of a busy or queued one
};

struct ReleaseCall {
  std::string token;
  bool force = false;
};

// The body is JSON text as it came. An answer instead of a call: 400 or 422.
std::variant<AcquireCall, Response> parse_acquire(const std::string& body, const Defaults& defaults);
std::variant<ReleaseCall, Response> parse_release(const std::string& body);

// {"detail": text}
Response detail(int status, std::string text);

// All that /status shows.
struct View {
  const stacks::Slot* slot = nullptr;
  std::vector<const compose::Description*> stacks{};  // those that callers may acquire, by name
  const compose::Description* target = nullptr;       // the stack that was started last; null: none
  const compose::Observation* containers = nullptr;   // of `target`; null: unknown
  std::string logs_tail{};                            // the last lines of the master container
  std::string label;                                  // key of the label that marks the master container
  std::string label_value;
  bool newest = false;        // bodies of the newest version of the service, for GPU_SERVICE_CONFIG_YAML
  bool shows_tokens = false;  // stacks.http_role is "admin"
  Time now{};
};

// The only container of the target with the label; null: none or several.
const compose::Container* master_of(const View& view);
json status_body(const View& view);
// The status with the fields of an acquire.
json granted_body(const View& view, const stacks::Holder& holder);
json queued_body(const View& view, const std::string& token);
// 500 or 504 with a JSON text in `detail`, as the service words a stack that does not become ready.
Response not_ready(int status, const std::string& message, const std::string& logs_tail, const std::string& state);

// Refuses what a web page could send: a Host other than `host` (with `port`), any Origin, a POST that is not
// application/json. Unset: the request may go on.
struct Headers {
  std::string host{}, origin{}, content_type{};
  bool has_origin = false;
  bool is_post = false;
};
std::optional<Response> refuse_headers(const Headers& headers, const std::string& host, std::uint16_t port);

}  // namespace sublet::http::compatible
