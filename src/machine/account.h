// SPDX-License-Identifier: Apache-2.0
// Names and groups of accounts. The account database may be a network service and may hang, so callers wait only
// briefly. Loop thread only.
#pragma once

#include "base/aside.h"

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace sublet::machine {

// Returns the account's name, or the uid as text if there is no account; nothing while the database does not answer. A
// name is remembered for good, a missing account for a minute. A separate thread asks, so that questions about rights
// need not wait for names.
std::optional<std::string> find_account_name(std::uint32_t uid);
std::string account_name(std::uint32_t uid);  // the same; the uid as text if there is no answer

// Returns whether there is an account of this name; nothing while the database does not answer.
std::optional<bool> account_exists(const std::string& name);

// Returns the ids of the account's groups, or nothing while the database does not answer. An answer is used for a
// minute, and for up to a quarter of an hour while the database does not answer, since a group may have been left.
std::optional<std::vector<gid_t>> account_groups(std::uint32_t uid);

AsideThread& rights_thread();  // asks about rights

}  // namespace sublet::machine
