// SPDX-License-Identifier: Apache-2.0
// Reasons and pause causes as the text of a column: their word and their arguments as JSON.
#pragma once

#include "lease/pause_cause.h"
#include "lease/reason.h"

#include <optional>
#include <string>
#include <string_view>

namespace sublet::store {

std::string encode_args(const core::ReasonArgs& args);
std::optional<core::ReasonArgs> decode_args(std::string_view text);  // nothing: damaged
// A kind that this version does not know becomes a note.
std::optional<core::Reason> decode_reason(std::string_view kind, std::string_view args);

std::string encode_cause(const core::PauseCause& cause);
std::optional<core::PauseCause> decode_cause(std::string_view text);  // nothing: damaged

}  // namespace sublet::store
