// SPDX-License-Identifier: Apache-2.0
#include "http/command_fields.h"

#include "base/text.h"

#include <fmt/format.h>

namespace sublet::http {

Status take_texts(const json& body, const char* field, std::size_t most, std::vector<std::string>& into) {
  const auto found = body.find(field);
  if (found == body.end() || found->is_null()) return {};
  const auto fail = [&] {
    return bad_request(fmt::format("{} is not a list of at most {} texts without NUL characters", field, most),
                       "for example [\"python3\", \"serve.py\"]");
  };
  if (!found->is_array() || found->size() > most) return fail();
  for (const json& text : *found) {
    if (!text.is_string() || text.get_ref<const std::string&>().find('\0') != std::string::npos) return fail();
    into.push_back(text.get<std::string>());
  }
  return {};
}

Status take_limits(const json& body, json& into) {
  const auto found = body.find("limits");
  if (found == body.end() || found->is_null()) return {};
  const auto is_number = [](const json& limit, const char* field) {
    return limit.contains(field) && limit.at(field).is_number_unsigned();
  };
  for (const json& limit : *found) {
    if (limit.is_object() && is_number(limit, "resource") && is_number(limit, "soft") && is_number(limit, "hard"))
      continue;
    return bad_request("limits has an entry that is not {\"resource\", \"soft\", \"hard\"} with numbers",
                       "the numbers are those of getrlimit(2)");
  }
  into = *found;
  return {};
}

Status check_environment(const std::vector<std::string>& environment) {
  for (const std::string& entry : environment) {
    const auto equals = entry.find('=');
    if (equals != std::string::npos && equals > 0) continue;
    return bad_request(fmt::format("environment has '{}', which is not NAME=value", printable(entry)),
                       "give each variable as NAME=value");
  }
  return {};
}

}  // namespace sublet::http
