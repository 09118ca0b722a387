// SPDX-License-Identifier: Apache-2.0
// Results as text, JSON, CSV and a page. Pure functions.
#pragma once

#include "simulate/figures.h"
#include "simulate/fill.h"

#include <nlohmann/json_fwd.hpp>

#include <span>
#include <string>
#include <utility>
#include <vector>

namespace sublet::simulate {

// A filling and the name of its setting.
using NamedFill = std::pair<std::string, Filled>;

std::string table_of(std::span<const Figures> all);  // one column for each setting
std::string table_of(std::span<const NamedFill> all);
nlohmann::json json_of(std::span<const Figures> all);  // an object; of several settings: {"settings": […]}
nlohmann::json json_of(std::span<const NamedFill> all);
std::string csv_of(std::span<const Figures> all);  // one row for each sample
std::string csv_of(std::span<const NamedFill> all);
std::string tenants_csv_of(std::span<const Figures> all);  // one row for each tenant
std::string page_of(std::span<const Figures> all);         // HTML with drawings; needs no other file
std::string page_of(std::span<const NamedFill> all);
std::string picture_of(std::span<const Figures> all);  // the drawings as one SVG
std::string picture_of(std::span<const NamedFill> all);

}  // namespace sublet::simulate
