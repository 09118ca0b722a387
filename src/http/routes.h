// SPDX-License-Identifier: Apache-2.0
// The one table of routes: path, method, least role, whether it changes anything (then it takes an Idempotency-Key).
#pragma once

#include "http/message.h"

#include <span>
#include <string_view>

namespace sublet::http {

struct Route {
  Method method;
  std::string_view path;  // "/v1/leases/{id}/claim"
  engine::Role least_role;
  Reply (*handler)(Call&);
  bool of_leases = true;  // cannot be answered while the store is not usable
  // For a retry whose first answer is remembered; none: that answer, word for word.
  Reply (*replay)(Call&, const store::Remembered&) = nullptr;
  engine::Scope scope = engine::Scope::read;  // least scope of an access token
  std::string_view query = {};                // names of the parameters behind '?', separated by commas
};

std::span<const Route> routes();

// 405 with what the path takes, or 404 where there is no such path. `method` as it came.
Response refused_method(std::string_view path, std::string_view method);

// Finds the route and calls it: role check, 404 and 405 with what would be right, idempotent replays.
Reply dispatch(const Request& request, engine::Engine& engine);

}  // namespace sublet::http
