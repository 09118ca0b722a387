// SPDX-License-Identifier: Apache-2.0
#include "http/condition.h"

#include <fmt/format.h>

namespace sublet::http {

using nlohmann::json;

json render_condition(const gpu::Facts* facts) {
  const gpu::Facts none;
  const gpu::Facts& known = facts == nullptr ? none : *facts;
  json rendered = json::object();
  for (const gpu::FactField& field : gpu::fact_fields) {
    if (field.figure == &gpu::Facts::falls) continue;  // `last_xid` tells
    const auto& figure = known.*field.figure;
    const bool is_flag = field.least == 0 && field.most == 1;
    if (!figure) rendered[field.name] = nullptr;
    else if (field.figure == &gpu::Facts::capability)
      rendered[field.name] = fmt::format("{}.{}", *figure / 10, *figure % 10);
    else if (is_flag) rendered[field.name] = *figure == 1;
    else rendered[field.name] = *figure;
  }
  return rendered;
}

}  // namespace sublet::http
