// SPDX-License-Identifier: Apache-2.0
#include "kube/quantity.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <utility>

namespace sublet::kube {

std::optional<Bytes> parse_quantity(std::string_view text) {
  constexpr std::pair<std::string_view, double> suffixes[] = {
      {"Ki", 1024.0}, {"Mi", 1048576.0}, {"Gi", 1073741824.0}, {"Ti", 1099511627776.0}, {"k", 1e3}, {"M", 1e6},
      {"G", 1e9},     {"T", 1e12},       {"m", 1e-3}};
  constexpr double most = 4611686018427387904.0;
  double factor = 1;
  for (const auto& [suffix, by] : suffixes)
    if (text.ends_with(suffix)) {
      factor = by;
      text.remove_suffix(suffix.size());
      break;
    }
  double number = 0;
  const char* end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, number);
  if (text.empty() || read.ec != std::errc() || read.ptr != end || !std::isfinite(number)) return std::nullopt;
  const double bytes = number * factor;
  if (bytes < 0 || bytes > most || bytes != std::floor(bytes)) return std::nullopt;
  return Bytes{static_cast<std::int64_t>(bytes)};
}

std::string format_quantity(Bytes bytes) {
  return bytes.count % MiB.count == 0 && bytes.count > 0 ? fmt::format("{}Mi", bytes.count / MiB.count)
                                                         : fmt::format("{}", bytes.count);
}

}  // namespace sublet::kube
