// SPDX-License-Identifier: Apache-2.0
// Loads the vendor's management library (NVML) at run time. It has its own declarations of the few functions in use, in
// all layouts of recent drivers. A missing library or function is an error value, never a crash. Any call may hang for
// ever in the kernel, so only a helper process may make it. One thread.
#pragma once

#include "base/error.h"
#include "base/units.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace sublet::gpu {

// The vendor's return codes that the helper distinguishes. Other numbers are possible.
enum class NvmlCode : int {
  success = 0,
  uninitialized = 1,
  invalid_argument = 2,
  not_supported = 3,
  no_permission = 4,
  not_found = 6,
  insufficient_size = 7,
  driver_not_loaded = 9,
  timeout = 10,
  function_not_found = 13,
  gpu_is_lost = 15,
  reset_required = 16,
  library_mismatch = 18,
  argument_version_mismatch = 25,
  unknown = 999,
};

// The result of a call: a value, or a code with a text such as "nvmlDeviceGetName: GPU is lost (15)".
template <typename T>
struct Answer {
  NvmlCode code = NvmlCode::success;
  std::string error;
  T value{};
  explicit operator bool() const { return code == NvmlCode::success; }
};

struct NvmlMemory {
  Bytes total, reserved, used;  // v1: `reserved` is 0, and `used` includes the driver's own memory
  bool v2 = false;
};

struct NvmlProcess {
  std::uint32_t pid = 0;
  std::optional<Bytes> used;             // unset: the driver does not tell
  bool graphics_only = false;            // in the list of graphics programs alone
  std::optional<unsigned> gpu_instance;  // the part of a card in MIG mode; unset: none, or the driver does not tell
};

struct NvmlIdentity {
  std::string name, uuid, pci_bus_id;
  Bytes link_per_second;  // bytes a second in each direction, for the PCIe lanes in use; 0: not known
};

using NvmlDevice = void*;

// A MIG slice: a compute instance, with the GPU instance that has its memory.
struct NvmlSlice {
  unsigned index = 0;  // among the slices of its card
  NvmlDevice device = nullptr;
  std::optional<unsigned> gpu_instance;  // unset: the driver does not tell
};

// Memory of the machine, for devices that have none of their own.
struct MachineMemory {
  Bytes total, available;
};

class NvmlApi {
 public:
  // Loads the library. `path`: absolute, or "" for the vendor's places and then the linker's search.
  static Result<NvmlApi> load(const std::string& path);

  NvmlApi(NvmlApi&&) noexcept;
  NvmlApi& operator=(NvmlApi&&) noexcept;
  ~NvmlApi();  // closes the library; call shutdown() first

  const std::string& path() const;         // path of the loaded file
  void* find(const char* function) const;  // an optional function of the library; null: it has none

  Answer<bool> init() const;
  void shutdown() const;
  Answer<std::string> driver_version() const;
  Answer<unsigned> device_count() const;
  Answer<NvmlDevice> device(unsigned index) const;
  Answer<NvmlIdentity> identity(NvmlDevice device) const;
  Answer<NvmlMemory> memory(NvmlDevice device) const;
  Answer<bool> mig_enabled(NvmlDevice device) const;  // not_supported if the device or the driver has no such mode
  // Returns the slices of a card in MIG mode. An error for one of them is an error of the answer.
  Answer<std::vector<NvmlSlice>> slices(NvmlDevice card) const;
  // Whether the device tells a window to its own memory (BAR1), as each card with memory of its own does.
  bool has_window(NvmlDevice device) const;
  // The memory of the simulated machine of a simulated device. Not supported by the vendor's library.
  Answer<MachineMemory> simulated_machine(NvmlDevice device) const;

  // Returns compute, graphics and MPS clients together. A pid in several lists is returned once, with the largest
  // number. A pid that is twice in the same list is returned twice.
  Answer<std::vector<NvmlProcess>> processes(NvmlDevice device) const;

 private:
  struct Table;
  explicit NvmlApi(std::unique_ptr<Table> table);
  std::unique_ptr<Table> table_;
};

// Returns the places where load("") looks, in order.
const std::vector<std::string>& nvml_default_paths();

}  // namespace sublet::gpu
