// SPDX-License-Identifier: Apache-2.0
#include "compose/file_signature.h"

#include "base/directory.h"

#include <fmt/format.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <filesystem>
#include <set>

namespace sublet::compose {
namespace {

constexpr std::size_t most_files = 1000;

std::string sign(const std::string& path) {
  struct stat entry {};
  if (::stat(path.c_str(), &entry) != 0) return "none\n";
  // A directory changes with each of its files, which stand here too.
  if (!S_ISREG(entry.st_mode)) return "other\n";
  return fmt::format("{} {} {} {}.{} {}.{}\n", entry.st_dev, entry.st_ino, entry.st_size, entry.st_mtim.tv_sec,
                     entry.st_mtim.tv_nsec, entry.st_ctim.tv_sec, entry.st_ctim.tv_nsec);
}

}  // namespace

std::string sign_files(const std::string& compose_file, const std::vector<std::string>& files) {
  const std::filesystem::path place = std::filesystem::path(compose_file).parent_path();
  std::string whole;
  for (const std::string& file : files) whole += file + " " + sign(file);
  const Directory directory = read_directory(Fd(::open(place.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)));
  if (!directory) return whole;
  std::set<std::string> names;
  while (const dirent* entry = ::readdir(directory.get())) {
    if (names.size() < most_files) names.insert(entry->d_name);
  }
  for (const std::string& name : names) whole += name + " " + sign((place / name).string());
  return whole;
}

}  // namespace sublet::compose
