// SPDX-License-Identifier: Apache-2.0
// The templates of all sentences about decisions. Private to this folder.
//
// {name} is the value of an argument: a size, a duration, a number, a text or a list. {name:down} rounds a size down,
// {name:each} puts "each of" before a list of several. {name:above other} and {name:below other} are sizes with enough
// digits to differ from the size `other`. [clause] is left out where an argument in it is absent; clauses
// nest. {?flag} and {!flag} print nothing: the clause needs the argument, or its absence. {#name} inserts a fragment,
// {@name} the fragment that the argument names.
#pragma once

#include "lease/reason.h"

#include <span>
#include <string_view>

namespace sublet::core {

struct ReasonRow {
  ReasonKind kind;
  std::string_view word;     // in the API and in the store
  std::string_view code;     // public code
  std::string_view subject;  // in lease/transitions.h; "" of an end
  std::string_view sentence;
};
const ReasonRow& row_of(ReasonKind kind);
std::span<const ReasonRow> all_reasons();

std::string_view fragment_of(std::string_view name);  // its template; "" if there is none
std::string render(std::string_view sentence, const ReasonArgs& args);

}  // namespace sublet::core
