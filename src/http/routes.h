// SPDX-License-Identifier: Apache-2.0
// The routes. Each resource, which is one file, has a table of its own at its end; routes.cpp joins these tables.
// Routes that change something take an Idempotency-Key.
#pragma once

#include "http/message.h"

#include <array>
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

using engine::Role;
using engine::Scope;

struct Route {
  using Replay = Reply (*)(Call&, const store::Remembered&);

  Method method;
  std::string_view path;  // "/v1/leases/{id}/claim"
  Role least_role;
  Scope scope;  // least scope of an access token
  Reply (*handler)(Call&);
  // Names separated by commas, as the contract has them: the parameters of the query, or of a POST the fields of the
  // body or its schema; and the schemas of the answers, as far as they have names.
  std::string_view takes = {}, answers = {};
  Grants grants = Grants::never;
  Replay replay = nullptr;  // answers a retry whose first answer is remembered; null: repeats that answer
  bool of_leases = true;    // needs a usable store
  bool stops = false;       // stops a program, which needs no store; the handler refuses the rest

  constexpr Route granting(Grants when) const { return with(&Route::grants, when); }
  constexpr Route replayed_by(Replay function) const { return with(&Route::replay, function); }
  constexpr Route without_store() const { return with(&Route::of_leases, false); }
  constexpr Route stopping() const { return with(&Route::stops, true); }

 private:
  template <typename T>
  constexpr Route with(T Route::*field, T value) const {
    Route changed = *this;
    changed.*field = value;
    return changed;
  }
};

// The tables of the resources, constant from the start of the program.
extern const std::span<const Route> page_routes, table_routes, metrics_routes, contract_routes, list_routes,
    consumer_routes, grant_routes, event_routes, event_target_routes, report_routes, token_routes, lease_routes,
    action_routes, preempt_routes, cooperate_routes, program_routes, log_routes, session_routes, session_open_routes,
    stack_routes, stack_acquire_routes, enforcer_routes, maintenance_routes, tenant_routes;

// All of them.
std::span<const Route> routes();

// 405 with the allowed methods, or 404 if the path does not exist. `method`: as it came.
Response refused_method(std::string_view path, std::string_view method);

// True for a call that may give memory at once to the caller or to a waiter, as far as the last snapshot tells: a new
// snapshot must be taken first.
bool may_be_granted(const Request& request, const engine::Engine& engine);

// Finds the route and calls it, with role check, 404, 405 and idempotent replays.
Reply dispatch(const Request& request, engine::Engine& engine, Capabilities capabilities = {});

}  // namespace sublet::http
