// SPDX-License-Identifier: Apache-2.0
// Tells a browser's own requests from those that a page of another server made it send. Pure functions, any thread.
#pragma once

#include <string_view>

namespace sublet {

// Whether a Host header names this machine: "127.0.0.1:4711", "localhost", "[::1]:80". A page whose own name points
// here (DNS rebinding) sends its own name.
bool is_this_machine(std::string_view host);

// Whether an Origin header belongs to the page that this Host header serves. "": the request has no Origin.
bool is_own_origin(std::string_view origin, std::string_view host);

}  // namespace sublet
