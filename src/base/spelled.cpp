// SPDX-License-Identifier: Apache-2.0
#include "base/spelled.h"

#include <fmt/format.h>

#include <utility>

namespace sublet {

std::string spelled(Duration duration) {
  static constexpr std::pair<std::int64_t, const char*> units[] = {{86'400'000'000'000, "d"},
                                                                   {3'600'000'000'000, "h"},
                                                                   {60'000'000'000, "m"},
                                                                   {1'000'000'000, "s"},
                                                                   {1'000'000, "ms"},
                                                                   {1'000, "us"},
                                                                   {1, "ns"}};
  const std::int64_t ns = duration.count();
  if (ns == 0) return "0s";
  for (const auto& [unit, name] : units) {
    if (ns % unit == 0) return fmt::format("{}{}", ns / unit, name);
  }
  return {};
}

std::string spelled(Bytes bytes) {
  static constexpr std::pair<std::int64_t, const char*> units[] = {
      {1LL << 40, "TiB"}, {1LL << 30, "GiB"}, {1LL << 20, "MiB"}, {1LL << 10, "KiB"}};
  for (const auto& [unit, name] : units) {
    if (bytes.count != 0 && bytes.count % unit == 0) return fmt::format("{}{}", bytes.count / unit, name);
  }
  return fmt::format("{}", bytes.count);
}

std::string spelled_thousandths(std::int64_t thousandths) {
  std::string text = fmt::format("{}.{:03}", thousandths / 1000, thousandths % 1000);
  while (text.back() == '0') text.pop_back();
  if (text.back() == '.') text.pop_back();
  return text;
}

}  // namespace sublet
