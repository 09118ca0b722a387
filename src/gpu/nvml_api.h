// SPDX-License-Identifier: Apache-2.0
// The vendor's management library, opened at run time. Own declarations of the few functions that are used,
// in all the layouts that drivers of the last years have. A missing library or function is an answer, never a
// crash. Any call may hang for ever in the kernel: only a process that can be abandoned may make it. One
// thread.
#pragma once

#include "base/error.h"
#include "base/units.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace sublet::gpu {

// The vendor's return codes that are told apart here; any other number may come too.
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

// What a call said: a value, or a code with a text such as "nvmlDeviceGetName: GPU is lost (15)".
template <typename T>
struct Answer {
  NvmlCode code = NvmlCode::success;
  std::string error;
  T value{};
  explicit operator bool() const { return code == NvmlCode::success; }
};

struct NvmlMemory {
  Bytes total, reserved, used;  // v1: reserved 0, and what the driver keeps is in `used`
  bool v2 = false;
};

struct NvmlProcess {
  std::uint32_t pid = 0;
  std::optional<Bytes> used;  // unset: the driver does not tell
};

struct NvmlIdentity {
  std::string name, uuid, pci_bus_id;
  Bytes link_per_second;  // the most its PCIe link carries each way, by the lanes in use; 0: it is not told
};

using NvmlDevice = void*;

class NvmlApi {
 public:
  // `path`: absolute, or "" for the places where the vendor installs it and then the linker's own search.
  static Result<NvmlApi> load(const std::string& path);

  NvmlApi(NvmlApi&&) noexcept;
  NvmlApi& operator=(NvmlApi&&) noexcept;
  ~NvmlApi();  // closes the library; shut down before

  const std::string& path() const;  // of the file that was loaded

  Answer<bool> init() const;
  void shutdown() const;
  Answer<std::string> driver_version() const;
  Answer<unsigned> device_count() const;
  Answer<NvmlDevice> device(unsigned index) const;
  Answer<NvmlIdentity> identity(NvmlDevice device) const;
  Answer<NvmlMemory> memory(NvmlDevice device) const;
  Answer<bool> mig_enabled(NvmlDevice device) const;  // false where the device knows no MIG

  // Compute, graphics and MPS clients together. A pid that is in several of the lists is there once, with the
  // largest figure; one that is twice in the same list is there twice.
  Answer<std::vector<NvmlProcess>> processes(NvmlDevice device) const;

 private:
  struct Table;
  explicit NvmlApi(std::unique_ptr<Table> table);
  std::unique_ptr<Table> table_;
};

// Where load("") looks, in order.
const std::vector<std::string>& nvml_default_paths();

}  // namespace sublet::gpu
