// SPDX-License-Identifier: Apache-2.0
// The report of /v1/report?whole=true as a page, a picture and a table for spreadsheets. Pure functions.
#pragma once

#include <nlohmann/json.hpp>

#include <string>

namespace sublet::cli {

// One page of HTML that needs no other file and has no script.
std::string report_html(const nlohmann::json& report);

// The plots of the page, one below the other, as one SVG.
std::string report_svg(const nlohmann::json& report);

// The rows as comma-separated values with a line of names, by RFC 4180. Works without whole=true.
std::string report_csv(const nlohmann::json& report);

}  // namespace sublet::cli
