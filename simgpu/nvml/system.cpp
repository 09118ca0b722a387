// SPDX-License-Identifier: Apache-2.0
// Start, end, and queries about no card.
#include "library.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>

namespace {

using namespace simgpu;
using namespace simgpu::nvml;

constexpr std::array<const char*, 31> error_texts = {
    "Success",
    "Uninitialized",
    "Invalid Argument",
    "Not Supported",
    "Insufficient Permissions",
    "Already Initialized",
    "Not Found",
    "Insufficient Size",
    "Insufficient External Power",
    "Driver Not Loaded",
    "Timeout",
    "Interrupt Request Issue",
    "NVML Shared Library Not Found",
    "Function Not Found",
    "Corrupted infoROM",
    "GPU is lost",
    "GPU requires reset",
    "The operating system has blocked the request",
    "Driver/library version mismatch",
    "In use by another client",
    "Insufficient Memory",
    "No data",
    "ECC is not supported for vGPU",
    "Insufficient resources",
    "Frequency not supported",
    "Argument version mismatch",
    "Deprecated",
    "Not ready",
    "GPU not found",
    "Invalid state",
    "Reset type not supported",
};

// The CUDA version of each driver series. A simulated driver's version names only its series.
std::string driver_series(const Table& table) {
  static constexpr std::array<std::pair<unsigned, unsigned>, 14> first_series = {{{13010, 590},
                                                                                  {13000, 580},
                                                                                  {12090, 575},
                                                                                  {12080, 570},
                                                                                  {12070, 565},
                                                                                  {12060, 560},
                                                                                  {12050, 555},
                                                                                  {12040, 550},
                                                                                  {12030, 545},
                                                                                  {12020, 535},
                                                                                  {12010, 530},
                                                                                  {12000, 525},
                                                                                  {11080, 520},
                                                                                  {11070, 515}}};
  const auto cuda = table.get(Setting::driver_version);
  const auto* found =
      std::find_if(first_series.begin(), first_series.end(), [&](const auto& entry) { return cuda >= entry.first; });
  return std::to_string(found == first_series.end() ? 470 : found->second) + ".00.00";
}

Return cuda_version(const char* name, int* version) {
  return ask(name, [&](Table& table) { return give(version, table.get(Setting::driver_version)); });
}

Return process_name(unsigned pid, char* name, unsigned length) {
  if (name == nullptr || length == 0) return invalid_argument;
  const std::string path = "/proc/" + std::to_string(pid) + "/cmdline";
  std::FILE* file = std::fopen(path.c_str(), "re");
  if (file == nullptr) return errno == EACCES ? no_permission : not_found;
  std::array<char, 4096> text{};
  const std::size_t size = std::fread(text.data(), 1, text.size() - 1, file);
  std::fclose(file);
  if (size == 0) return not_found;  // a kernel thread or a zombie
  std::snprintf(name, length, "%s", text.data());
  return success;
}

}  // namespace

SIMGPU_NVML nvmlInit() { return Library::instance().init(); }
SIMGPU_NVML nvmlInit_v2() { return Library::instance().init(); }
SIMGPU_NVML nvmlInitWithFlags(unsigned) { return Library::instance().init(); }
SIMGPU_NVML nvmlShutdown() { return Library::instance().shutdown(); }

extern "C" __attribute__((visibility("default"))) const char* nvmlErrorString(int result) {
  const auto index = static_cast<std::size_t>(result);
  return result >= 0 && index < error_texts.size() ? error_texts.at(index) : "Unknown Error";
}

SIMGPU_NVML nvmlSystemGetDriverVersion(char* version, unsigned length) {
  return ask(__func__, [&](Table& table) { return give_text(version, length, driver_series(table)); });
}
SIMGPU_NVML nvmlSystemGetNVMLVersion(char* version, unsigned length) {
  return ask(__func__, [&](Table& table) {
    const auto major = std::to_string(table.get(Setting::driver_version) / 1000);
    return give_text(version, length, major + "." + driver_series(table));
  });
}
SIMGPU_NVML nvmlSystemGetCudaDriverVersion(int* version) { return cuda_version(__func__, version); }
SIMGPU_NVML nvmlSystemGetCudaDriverVersion_v2(int* version) { return cuda_version(__func__, version); }
SIMGPU_NVML nvmlSystemGetProcessName(unsigned pid, char* name, unsigned length) {
  return ask(__func__, [&](Table&) { return process_name(pid, name, length); });
}

// There are no S-class units and no host interface cards.
SIMGPU_NVML nvmlUnitGetCount(Count* count) {
  return ask(__func__, [&](Table&) { return give(count, 0); });
}
SIMGPU_NVML nvmlSystemGetHicVersion(Count* count, void*) {
  return ask(__func__, [&](Table&) { return give(count, 0); });
}

// Declared for the generated file of names that the simulation does not know (CMakeLists.txt).
extern "C" int simgpu_nvml_refuse(const char* name) {
  return ask(name, [](Table&) { return not_supported; });
}
