// SPDX-License-Identifier: Apache-2.0
// Variables of Compose files, as far as paths in them need it. Pure functions; any thread.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace sublet::compose {

struct Variables {
  std::map<std::string, std::optional<std::string>> values{};  // nothing: the value cannot be known
  bool complete = true;  // false: a line was not understood, and may have set any variable that is not here
  bool operator==(const Variables&) const = default;
  // Adds those of `other` that are not here yet.
  void merge(const Variables& other);
};

// Reads the lines NAME=VALUE of an environment file into `own`. Values may be quoted, and may name variables of
// `outer`, which win, or earlier ones. Only what all versions of Compose read alike has a known value.
void parse_variables(std::string_view text, const Variables& outer, Variables& own);

// Replaces $NAME, ${NAME} and the forms with a default, an alternative or an error. "$$" is a dollar sign. Nothing: the
// text is none of these, or names a variable whose value cannot be known.
std::optional<std::string> interpolate(std::string_view text, const Variables& variables);

}  // namespace sublet::compose
