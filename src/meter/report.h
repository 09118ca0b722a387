// SPDX-License-Identifier: Apache-2.0
// Reads reports from the meter's database.
#pragma once

#include "meter/file.h"

#include <nlohmann/json.hpp>

#include <map>
#include <string>
#include <vector>

namespace sublet::meter {

enum class By { user, tenant, consumer, session, device };
std::string_view to_string(By by);
std::optional<By> parse_by(std::string_view text);

struct Query {
  Ms from = 0, to = 0;
  Ms now = 0;
  By by = By::user;
  bool whole = false;                             // with series, matrix, neighbours and trend
  std::map<std::string, std::string> names{};     // of devices: "gpu0" by uuid
  std::vector<std::uint64_t> waiting_in_place{};  // leases that wait to grow or to come back
  std::vector<Gap> missing{};                     // gaps that are not in the file
};

// The reply of /v1/report, as api/reports.yaml describes it. Amounts are counted by whole minutes.
Result<nlohmann::json> read_report(File& file, const Query& query);

}  // namespace sublet::meter
