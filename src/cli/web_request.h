// SPDX-License-Identifier: Apache-2.0
// The head of a browser's request, and what of it goes on to the daemon. Pure functions, any thread.
#pragma once

#include "base/error.h"

#include <cstddef>
#include <map>
#include <string>
#include <string_view>

namespace sublet::cli {

struct WebRequest {
  std::string method;                                      // "GET"
  std::string target;                                      // path and query
  std::map<std::string, std::string, std::less<>> fields;  // names in lower case
  std::size_t body_size = 0;                               // bytes after the head

  std::string_view field(std::string_view name) const;  // "" if it is absent
  std::string_view path() const;                        // without the query
};

// Parses a head that ends with an empty line.
Result<WebRequest> parse_web_request(std::string_view head);

// Refuses a request that the page of another server made the browser send.
Status check_origin(const WebRequest& request);

// The head for the daemon: the fields that its API takes, and no cookie. `authority` is its Host; "" for `token`: none.
std::string head_for_daemon(const WebRequest& request, std::string_view authority, std::string_view token);

}  // namespace sublet::cli
