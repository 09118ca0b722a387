// SPDX-License-Identifier: Apache-2.0
#include "limit/process_look.h"

#include <fmt/format.h>

#include <algorithm>

namespace sublet::limit {
namespace {

constexpr std::size_t longest_maps = 4 << 20;

// "ADDRESSES RIGHTS OFFSET DEVICE INODE PATH"
std::string_view word(std::string_view line, int number) {
  for (; number > 0; --number) {
    line.remove_prefix(std::min(line.find(' '), line.size()));
    line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
  }
  return line.substr(0, line.find(' '));
}

}  // namespace

Mapped mapped_in(std::string_view maps) {
  Mapped mapped;
  while (!maps.empty()) {
    const std::string_view line = maps.substr(0, maps.find('\n'));
    maps.remove_prefix(std::min(line.size() + 1, maps.size()));
    const std::size_t slash = line.rfind('/');
    if (slash == std::string_view::npos) continue;
    const std::string_view name = line.substr(slash + 1);
    // Each copy of a library has its beginning mapped once.
    if (name.starts_with("libcuda.so") && word(line, 2).find_first_not_of('0') == std::string_view::npos)
      ++mapped.drivers;
    mapped.has_interposer |= name.starts_with("libsublet-cuda.so");
  }
  return mapped;
}

Mapped mapped_by(const proc::ProcRoot& root, ProcessRef process) {
  const auto maps = root.read_file(fmt::format("{}/maps", process.pid), longest_maps);
  const auto now = root.read(process.pid);
  return maps && now && now->ref == process ? mapped_in(*maps) : Mapped{};
}

bool is_traced(const proc::ProcRoot& root, ProcessRef process) {
  const auto now = root.read_with(process.pid, "status");
  if (!now || now->info.ref != process) return false;
  constexpr std::string_view field = "\nTracerPid:\t";
  const auto at = now->text.find(field);
  return at != std::string::npos && now->text.substr(at + field.size(), 2) != "0\n";
}

}  // namespace sublet::limit
