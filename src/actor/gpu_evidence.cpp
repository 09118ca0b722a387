// SPDX-License-Identifier: Apache-2.0
#include "actor/gpu_evidence.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <filesystem>

namespace sublet::actor {
namespace {

constexpr std::string_view device_files = "/dev/nvidia";
constexpr std::string_view control_file = "/dev/nvidiactl";
constexpr Duration patience = std::chrono::seconds(2);

bool is_below(std::string_view path, std::string_view directory) {
  return directory.size() > 1 && path.size() > directory.size() && path.starts_with(directory) &&
         path[directory.size()] == '/';
}

// A file of any kind can have the name of a device in the mount namespace of its owner, who can pass it to others.
bool is_device(int links, const char* number) {
  struct stat file {};
  return ::fstatat(links, number, &file, 0) == 0 && S_ISCHR(file.st_mode);
}

}  // namespace

bool is_gpu_file(std::string_view path, std::string_view cards) {
  return path.starts_with(device_files) || is_below(path, cards);
}

bool is_open_gpu_file(std::string_view path, std::string_view cards) {
  return is_gpu_file(path, cards) && path != control_file;
}

GpuEvidence find_gpu_evidence(int directory, const std::string& cards) {
  std::error_code failure;
  const std::string place = cards.empty() ? cards : std::filesystem::weakly_canonical(cards, failure).string();
  const proc::FileSearch search{.is_open =
                                    [&](std::string_view path, int links, const char* number) {
                                      return is_open_gpu_file(path, place) &&
                                             (is_below(path, place) || is_device(links, number));
                                    },
                                .is_mapped = [&](std::string_view path) { return is_gpu_file(path, place); }};
  const proc::FilesFound found = proc::search_files(directory, search, patience);
  return {.device_file = found.open, .mapping = found.mapped};
}

}  // namespace sublet::actor
