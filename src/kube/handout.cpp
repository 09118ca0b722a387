// SPDX-License-Identifier: Apache-2.0
#include "kube/handout.h"

#include "base/in_container.h"
#include "kube/state_file.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>

namespace sublet::kube {
namespace {

constexpr const char* probe_in_container = "/run/sublet/sublet-probe";

bool is_device(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISCHR(info.st_mode);
}

// The libraries and the table of simulated cards, at the same paths.
void add_simulation(const std::map<std::string, std::string>& program_env, Handout& handout) {
  const auto add = [&handout](std::string path, bool read_only) {
    if (!path.starts_with('/') || path.find(':') != std::string::npos) return;
    const MountedFile file{path, path, read_only};
    if (std::ranges::count(handout.mounts, file) == 0) handout.mounts.push_back(file);
  };
  for (const auto& [name, value] : program_env) {
    handout.environment[name] = value;
    if (name == "SIMGPU_DIR") add(value, false);
    if (name != "LD_LIBRARY_PATH") continue;
    for (std::size_t at = 0; at < value.size();) {
      const auto end = std::min(value.find(':', at), value.size());
      add(value.substr(at, end - at), true);
      at = end + 1;
    }
  }
}

std::string preload_file(const Settings& settings) { return settings.state_dir + "/ld.so.preload"; }

}  // namespace

Status write_preload_file(const Settings& settings) {
  return write_file(preload_file(settings), fmt::format("{}\n", in_container::library));
}

Handout make_handout(const Settings& settings, const std::vector<Card>& cards,
                     const std::map<std::string, std::string>& program_env, const std::string& directory) {
  Handout handout;
  std::vector<std::string> uuids;
  bool real = false;
  for (const Card& card : cards) {
    uuids.push_back(card.uuid);
    if (card.simulated) continue;
    real = true;
    if (const std::string node = fmt::format("/dev/nvidia{}", card.index); is_device(node))
      handout.devices.push_back(node);
  }
  for (const char* node : {"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"})
    if (real && is_device(node)) handout.devices.emplace_back(node);
  const std::string visible = fmt::format("{}", fmt::join(uuids, ","));
  handout.environment = {{"CUDA_DEVICE_ORDER", "PCI_BUS_ID"},
                         {"CUDA_VISIBLE_DEVICES", visible},
                         {"NVIDIA_VISIBLE_DEVICES", visible},
                         {"SUBLET_STATE", fmt::format("{}/{}", state_directory_in_container, state_file_name)}};
  handout.mounts.push_back({directory, state_directory_in_container, true});
  if (!settings.interposer.empty()) {
    handout.mounts.push_back({settings.interposer, in_container::library, true});
    handout.mounts.push_back({preload_file(settings), in_container::preload_list, true});
    handout.mounts.push_back({settings.credit_dir, in_container::credit_folder, true});
    handout.environment["SUBLET_CREDIT"] = in_container::credit_socket;
  }
  if (!settings.probe.empty()) handout.mounts.push_back({settings.probe, probe_in_container, true});
  add_simulation(program_env, handout);
  return handout;
}

}  // namespace sublet::kube
