// SPDX-License-Identifier: Apache-2.0
// Entries of the tree of tenants as the API takes them, from a file and from words of the command line.
#pragma once

#include "base/error.h"
#include "config/config.h"

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

namespace sublet::cli {

// The fields of the entries that the file states.
nlohmann::json tenants_in(const config::Loaded& loaded);
// "quota=4GiB", "parent=": the fields for the API; without a value, the field is null.
Result<nlohmann::json> tenant_fields(const std::vector<std::string>& words);
// The refusal of a file by the daemon, with the file and the line of the entry.
Error in_tenant_file(Error error, const config::Loaded& loaded);

}  // namespace sublet::cli
