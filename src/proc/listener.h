// SPDX-License-Identifier: Apache-2.0
// Finds the user of a listening TCP port of this machine, from /proc/net/tcp and tcp6. Reads two small files; any
// thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sublet::proc {

// Returns the user that listens on `host` ("127.0.0.1" or "::1") or on all addresses. Unset: no user listens, or
// several users share the port.
std::optional<std::uint32_t> listener_uid(const std::string& host, std::uint16_t port);

// The same from the text of /proc/net/tcp or tcp6. `address`: in the kernel's hexadecimal form. All zeroes also match.
std::optional<std::uint32_t> find_listener(std::string_view table, std::string_view address, std::uint16_t port);

}  // namespace sublet::proc
