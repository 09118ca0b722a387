// SPDX-License-Identifier: Apache-2.0
#include "kube/state_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace sublet::kube {

std::string directory_of_units(const std::string& state_dir, std::vector<std::string> ids) {
  constexpr std::uint64_t start = 14'695'981'039'346'656'037ULL, factor = 1'099'511'628'211ULL;
  std::ranges::sort(ids);
  std::uint64_t hash = start;
  for (const std::string& id : ids)
    for (const unsigned char c : id + "\n") hash = (hash ^ c) * factor;
  return fmt::format("{}/units/{:016x}", state_dir, hash);
}

std::string directory_of_claim(const std::string& state_dir, const std::string& uid) {
  return fmt::format("{}/claims/{}", state_dir, uid);
}

Status make_directory(const std::string& path) {
  std::error_code problem;
  std::filesystem::create_directories(path, problem);
  if (problem) return unavailable(fmt::format("'{}' cannot be made: {}", path, problem.message()));
  return {};
}

Status write_file(const std::string& path, const std::string& text) {
  const std::string fresh = path + ".new";
  std::ofstream file(fresh, std::ios::trunc);
  file << text;
  file.close();
  if (file && std::rename(fresh.c_str(), path.c_str()) == 0) return {};
  const int why = errno;
  (void)std::remove(fresh.c_str());
  return from_errno(fmt::format("'{}' cannot be written", path), why);
}

nlohmann::json read_json_file(const std::string& path) {
  std::error_code problem;
  if (!std::filesystem::is_regular_file(path, problem)) return nullptr;
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  auto content = nlohmann::json::parse(text, nullptr, false);
  return content.is_discarded() ? nullptr : content;
}

Status write_state(const std::string& directory, const Held& lease) {
  return write_file(fmt::format("{}/{}", directory, state_file_name),
                    fmt::format("{}\n{}\n{}\n", lease.state, lease.id, lease.summary));
}

}  // namespace sublet::kube
