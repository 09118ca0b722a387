// SPDX-License-Identifier: Apache-2.0
#include "base/device_name.h"

#include "base/number.h"
#include "base/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace sublet {

std::vector<std::string> device_list(std::string_view list) {
  std::vector<std::string> names;
  std::set<std::string_view> known;
  for (std::size_t at = 0; !list.empty() && at <= list.size();) {
    const auto comma = std::min(list.find(',', at), list.size());
    std::string_view name = list.substr(at, comma - at);
    while (name.starts_with(' ')) name.remove_prefix(1);
    while (name.ends_with(' ')) name.remove_suffix(1);
    if (known.insert(name).second) names.emplace_back(name);
    at = comma + 1;
  }
  return names;
}

std::optional<Error> explain_device_name(std::string_view name) {
  if (name.empty()) return bad_request("a name in the list of devices is empty", "for example: gpu1,gpu3");
  if (name == "any") return bad_request("'any' stands in a list of devices", "leave out 'any', or the other devices");
  const auto colon = name.rfind(':');
  std::string_view card = name.substr(0, std::min(colon, name.size()));
  if (card.starts_with("gpu")) card.remove_prefix(3);
  if (parse_number<unsigned>(card)) return std::nullopt;  // a MIG slice, as gpu0:1
  if (colon == std::string_view::npos || !parse_number<unsigned>(name.substr(colon + 1))) return std::nullopt;
  return bad_request(fmt::format("device '{}' is the name that a framework gives to a device", printable(name)),
                     fmt::format("write --gpu gpu{}; a program under a lease finds its first device as {}:0 anyway",
                                 name.substr(colon + 1), printable(name.substr(0, colon))));
}

}  // namespace sublet
