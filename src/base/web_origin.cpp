// SPDX-License-Identifier: Apache-2.0
#include "base/web_origin.h"

namespace sublet {

bool is_this_machine(std::string_view host) {
  const auto colon = host.rfind(':');
  if (colon != std::string_view::npos && host.find(']', colon) == std::string_view::npos) host = host.substr(0, colon);
  return host == "127.0.0.1" || host == "localhost" || host == "[::1]";
}

bool is_own_origin(std::string_view origin, std::string_view host) {
  constexpr std::string_view scheme = "http://";
  if (origin.empty()) return true;
  return origin.starts_with(scheme) && origin.substr(scheme.size()) == host;
}

}  // namespace sublet
