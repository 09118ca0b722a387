// SPDX-License-Identifier: Apache-2.0
// Reads YAML. Values; any thread.
#pragma once

#include "base/error.h"
#include "compose/document.h"

#include <nlohmann/json.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace sublet::compose {

// Largest text that is read, in bytes.
inline constexpr std::size_t most_yaml = std::size_t{4} << 20;

// Returns the YAML document as JSON. Plain scalars become numbers, booleans and null where they look so, and quoted
// scalars become strings. BadRequest: the text is broken or too large; the detail names `source` and the line.
Result<Document> read_yaml(std::string_view text, const std::string& source);
// The same for a text with several documents.
Result<std::vector<Document>> read_all_yaml(std::string_view text, const std::string& source);

// Returns a scalar of the document as text: a label or a variable may be written as a number or a boolean.
std::string scalar_text(const nlohmann::json& value);

}  // namespace sublet::compose
