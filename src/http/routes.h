// SPDX-License-Identifier: Apache-2.0
// The table of routes: path, method, least role and scope. Routes that change something take an Idempotency-Key.
#pragma once

#include "http/message.h"

#include <span>
#include <string_view>

namespace sublet::http {

// Whether a call may give memory at once to its caller or to a waiter.
enum class Grants {
  never,
  requested,   // if a device has the bytes that the call requests
  to_waiters,  // if a lease waits
  always,
};

struct Route {
  Method method;
  std::string_view path;  // "/v1/leases/{id}/claim"
  engine::Role least_role;
  Reply (*handler)(Call&);
  bool of_leases = true;  // needs a usable store
  // Answers a retry whose first answer is remembered; null: repeats that answer.
  Reply (*replay)(Call&, const store::Remembered&) = nullptr;
  engine::Scope scope = engine::Scope::read;  // least scope of an access token
  std::string_view query = {};                // names of the query's parameters, separated by commas
  Grants grants = Grants::never;
};

std::span<const Route> routes();

// 405 with the allowed methods, or 404 if the path does not exist. `method`: as it came.
Response refused_method(std::string_view path, std::string_view method);

// True for a call that may give memory at once to the caller or to a waiter, as far as the last snapshot tells: a new
// snapshot must be taken first.
bool may_be_granted(const Request& request, const engine::Engine& engine);

// Finds the route and calls it, with role check, 404, 405 and idempotent replays.
Reply dispatch(const Request& request, engine::Engine& engine, Capabilities capabilities = {});

}  // namespace sublet::http
