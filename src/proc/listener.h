// SPDX-License-Identifier: Apache-2.0
// Whose a listening TCP port of this machine is, by /proc/net/tcp and tcp6. Reads two small files; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sublet::proc {

// The user who listens there: on `host` ("127.0.0.1" or "::1") or on all addresses. Unset: nobody does, or several
// users share the port.
std::optional<std::uint32_t> listener_uid(const std::string& host, std::uint16_t port);

// The same of the text of /proc/net/tcp or tcp6: `address` in the kernel's hexadecimal, or all zeroes.
std::optional<std::uint32_t> find_listener(std::string_view table, std::string_view address, std::uint16_t port);

}  // namespace sublet::proc
