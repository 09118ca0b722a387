// SPDX-License-Identifier: Apache-2.0
#include "keep/preload.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string_view>

namespace sublet::keep {
namespace {

constexpr std::string_view separators = " :";

bool contains(std::string_view list, std::string_view library) {
  while (!list.empty()) {
    const auto end = std::min(list.find_first_of(separators), list.size());
    if (list.substr(0, end) == library) return true;
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return false;
}

}  // namespace

Result<std::string> find_interposer() {
  std::error_code failure;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", failure);
  const std::string path = (self.parent_path().parent_path() / "lib/sublet/libsublet-cuda.so").string();
  if (failure || !std::filesystem::exists(path, failure))
    return not_found(fmt::format("the interposer is not installed: there is no {}", path),
                     "install Sublet again, or leave --interposer out");
  if (path.find_first_of(separators) != std::string::npos)
    return bad_request(fmt::format("LD_PRELOAD cannot name {}: a space or a colon ends an entry", path),
                       "install Sublet in a folder without spaces and colons");
  return path;
}

std::string add_preload(const std::string& list, const std::string& library) {
  if (list.empty() || contains(list, library)) return list.empty() ? library : list;
  return fmt::format("{}:{}", list, library);
}

}  // namespace sublet::keep
