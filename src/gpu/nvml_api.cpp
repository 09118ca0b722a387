// SPDX-License-Identifier: Apache-2.0
#include "gpu/nvml_api.h"

#include "base/text.h"

#include <fmt/format.h>

#include <dlfcn.h>
#include <link.h>
#include <algorithm>
#include <array>
#include <cstring>

namespace sublet::gpu {
namespace {

constexpr std::uint64_t not_available = ~0ULL;     // the vendor's "not available" for a count of bytes
constexpr std::uint64_t bytes_limit = 1ULL << 62;  // the limit of Bytes (base/units.h)
constexpr unsigned most_processes = 4096;
constexpr unsigned most_slices = 64;          // of one card; the largest has 7
constexpr unsigned no_instance = 0xffffffff;  // the vendor's "not available" for an instance

// The vendor's structures, as its drivers fill them.
struct MemoryV1 {
  unsigned long long total, free, used;
};
struct MemoryV2 {
  unsigned version;
  unsigned long long total, reserved, free, used;
};
constexpr unsigned memory_v2_version = sizeof(MemoryV2) | (2u << 24);
static_assert(sizeof(MemoryV1) == 24 && sizeof(MemoryV2) == 40);

struct PciV3 {
  char legacy_id[16];
  unsigned domain, bus, device, device_id, subsystem_id;
  char id[32];
};
static_assert(sizeof(PciV3) == 68);

// In every layout an entry begins with pid (4 bytes), padding and bytes used (8). The rest differs. The function's
// version defines the length of an entry. But the first 535 drivers had 32 bytes under the name with _v3.
constexpr std::size_t process_v1 = 16;
constexpr std::size_t process_v2 = 24;
constexpr std::size_t process_r535 = 32;
constexpr unsigned char paint = 0xa5;

// Bytes a second of one lane, by PCIe generation from 1: the transfer rate times the line code (PCI Express Base
// Specification: 2.5 and 5 GT/s with 8b/10b; 8, 16 and 32 GT/s with 128b/130b; 64 GT/s in flits of 242/256).
constexpr std::array<std::int64_t, 6> lane_per_second{250'000'000,   500'000'000,   984'600'000,
                                                      1'969'200'000, 3'938'400'000, 7'562'500'000};
constexpr unsigned most_lanes = 32;

using DeviceCall = int (*)(NvmlDevice, unsigned*, void*);

// Clamped, so that an absurd number stays visibly absurd.
Bytes to_bytes(std::uint64_t count) { return {static_cast<std::int64_t>(std::min(count, bytes_limit))}; }

std::string from_buffer(const char* buffer, std::size_t size) { return printable({buffer, ::strnlen(buffer, size)}); }

}  // namespace

struct NvmlApi::Table {
  void* library = nullptr;
  std::string path;

  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  const char* (*error_string)(int) = nullptr;
  int (*driver_version)(char*, unsigned) = nullptr;
  int (*count)(unsigned*) = nullptr;
  int (*handle)(unsigned, NvmlDevice*) = nullptr;
  int (*name)(NvmlDevice, char*, unsigned) = nullptr;
  int (*uuid)(NvmlDevice, char*, unsigned) = nullptr;
  int (*pci_v3)(NvmlDevice, PciV3*) = nullptr;
  int (*pci_old)(NvmlDevice, void*) = nullptr;
  int (*memory_v1)(NvmlDevice, MemoryV1*) = nullptr;
  int (*memory_v2)(NvmlDevice, MemoryV2*) = nullptr;
  int (*mig_mode)(NvmlDevice, unsigned*, unsigned*) = nullptr;
  int (*most_slices)(NvmlDevice, unsigned*) = nullptr;
  int (*slice)(NvmlDevice, unsigned, NvmlDevice*) = nullptr;
  int (*gpu_instance)(NvmlDevice, unsigned*) = nullptr;
  int (*bar1)(NvmlDevice, MemoryV1*) = nullptr;
  int (*simulated_machine)(NvmlDevice, unsigned long long*, unsigned long long*) = nullptr;
  int (*link_generation)(NvmlDevice, unsigned*) = nullptr;
  int (*link_width)(NvmlDevice, unsigned*) = nullptr;

  // A kind of process list, in the versions that this library has, newest first.
  struct List {
    std::string name;
    struct Version {
      std::string suffix;
      DeviceCall call;
      std::size_t stride;
    };
    std::vector<Version> versions;
  };
  List compute, graphics, mps;

  ~Table() {
    if (library != nullptr) ::dlclose(library);
  }

  template <typename Function>
  void find(Function& function, std::initializer_list<const char*> names) {
    for (const char* symbol : names) {
      if (function == nullptr) function = reinterpret_cast<Function>(::dlsym(library, symbol));
    }
  }

  void find_list(List& list, const std::string& symbol) {
    list.name = symbol;
    for (const auto& [suffix, stride] : {std::pair{"_v3", process_v2}, {"_v2", process_v2}, {"", process_v1}}) {
      const auto call = reinterpret_cast<DeviceCall>(::dlsym(library, (symbol + suffix).c_str()));
      if (call != nullptr) list.versions.push_back({suffix, call, stride});
    }
  }

  // Binds the functions. Returns the name of a missing function that is required, or "".
  std::string bind() {
    find(init, {"nvmlInit_v2", "nvmlInit"});
    find(shutdown, {"nvmlShutdown"});
    find(error_string, {"nvmlErrorString"});
    find(driver_version, {"nvmlSystemGetDriverVersion"});
    find(count, {"nvmlDeviceGetCount_v2", "nvmlDeviceGetCount"});
    find(handle, {"nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex"});
    find(name, {"nvmlDeviceGetName"});
    find(uuid, {"nvmlDeviceGetUUID"});
    find(pci_v3, {"nvmlDeviceGetPciInfo_v3"});
    find(pci_old, {"nvmlDeviceGetPciInfo_v2", "nvmlDeviceGetPciInfo"});
    find(memory_v1, {"nvmlDeviceGetMemoryInfo"});
    find(memory_v2, {"nvmlDeviceGetMemoryInfo_v2"});
    find(mig_mode, {"nvmlDeviceGetMigMode"});
    find(most_slices, {"nvmlDeviceGetMaxMigDeviceCount"});
    find(slice, {"nvmlDeviceGetMigDeviceHandleByIndex"});
    find(gpu_instance, {"nvmlDeviceGetGpuInstanceId"});
    find(bar1, {"nvmlDeviceGetBAR1MemoryInfo"});
    find(simulated_machine, {"simgpuMachineMemory"});
    // The maximum of device and slot: an idle link is slower to save power.
    find(link_generation, {"nvmlDeviceGetMaxPcieLinkGeneration"});
    find(link_width, {"nvmlDeviceGetCurrPcieLinkWidth"});
    find_list(compute, "nvmlDeviceGetComputeRunningProcesses");
    find_list(graphics, "nvmlDeviceGetGraphicsRunningProcesses");
    find_list(mps, "nvmlDeviceGetMPSComputeRunningProcesses");
    if (init == nullptr) return "nvmlInit_v2";
    if (shutdown == nullptr) return "nvmlShutdown";
    if (count == nullptr) return "nvmlDeviceGetCount_v2";
    if (handle == nullptr) return "nvmlDeviceGetHandleByIndex_v2";
    if (name == nullptr) return "nvmlDeviceGetName";
    if (uuid == nullptr) return "nvmlDeviceGetUUID";
    if (memory_v1 == nullptr && memory_v2 == nullptr) return "nvmlDeviceGetMemoryInfo";
    if (compute.versions.empty()) return compute.name;
    return {};
  }

  template <typename T>
  Answer<T> failed(std::string_view call, int code) const {
    const char* text = error_string != nullptr ? error_string(code) : nullptr;
    return {static_cast<NvmlCode>(code),
            fmt::format("{}: {} ({})", call, text != nullptr ? printable(text) : "error", code),
            {}};
  }

  Answer<std::string> text(const char* call, int (*function)(NvmlDevice, char*, unsigned), NvmlDevice device) const {
    std::array<char, 256> buffer{};
    const int code = function(device, buffer.data(), buffer.size() - 1);
    if (code != 0) return failed<std::string>(call, code);
    return {NvmlCode::success, {}, from_buffer(buffer.data(), buffer.size())};
  }

  Answer<std::vector<NvmlProcess>> read_list(const List& list, const List::Version& version, NvmlDevice device) const;
  Answer<std::vector<NvmlProcess>> read_list(const List& list, NvmlDevice device) const;
};

namespace {

// Returns the distance between entries that were written into a painted buffer. Drivers have changed the distance under
// the same name. Every layout ends in a field that is never all paint, so the end of the last entry is exact.
std::size_t measured_stride(const std::vector<unsigned char>& buffer, std::size_t entries, std::size_t declared) {
  std::size_t end = buffer.size();
  while (end > 0 && buffer[end - 1] == paint) --end;
  for (const std::size_t stride : {process_v1, process_v2, process_r535}) {
    if (end == entries * stride) return stride;
  }
  return declared;
}

}  // namespace

Answer<std::vector<NvmlProcess>> NvmlApi::Table::read_list(const List& list, const List::Version& version,
                                                           NvmlDevice device) const {
  const std::string call = list.name + version.suffix;
  unsigned room = 64;
  for (int attempt = 0; attempt < 6; ++attempt) {
    // The buffer has space for the largest entry of any layout.
    std::vector<unsigned char> buffer(std::size_t{room} * process_r535 * 2, paint);
    unsigned entries = room;
    const int code = version.call(device, &entries, buffer.data());
    if (code == static_cast<int>(NvmlCode::insufficient_size)) {
      // The list may grow again before the next call.
      if (entries > most_processes) break;
      room = std::min(std::max(entries + 16, room * 2), most_processes);
      continue;
    }
    if (code != 0) return failed<std::vector<NvmlProcess>>(call, code);
    if (entries > room) {
      return {NvmlCode::unknown, fmt::format("{}: {} processes in a buffer for {}", call, entries, room), {}};
    }
    const std::size_t stride = measured_stride(buffer, entries, version.stride);
    Answer<std::vector<NvmlProcess>> answer;
    for (unsigned i = 0; i < entries; ++i) {
      NvmlProcess process;
      std::uint64_t used = 0;
      std::memcpy(&process.pid, buffer.data() + i * stride, sizeof process.pid);
      std::memcpy(&used, buffer.data() + i * stride + 8, sizeof used);
      if (used != not_available) process.used = to_bytes(used);
      unsigned instance = no_instance;
      if (stride > process_v1) std::memcpy(&instance, buffer.data() + i * stride + 16, sizeof instance);
      if (instance != no_instance) process.gpu_instance = instance;
      answer.value.push_back(process);
    }
    return answer;
  }
  return {NvmlCode::insufficient_size,
          fmt::format("{}: the list keeps growing, or is longer than {}", call, most_processes),
          {}};
}

Answer<std::vector<NvmlProcess>> NvmlApi::Table::read_list(const List& list, NvmlDevice device) const {
  Answer<std::vector<NvmlProcess>> answer = failed<std::vector<NvmlProcess>>(list.name, 13);
  for (const auto& version : list.versions) {
    answer = read_list(list, version, device);
    // The library exports the function, but the driver does not know it: an older version may work.
    if (answer.code != NvmlCode::function_not_found && answer.code != NvmlCode::argument_version_mismatch &&
        answer.code != NvmlCode::not_supported) {
      break;
    }
  }
  return answer;
}

const std::vector<std::string>& nvml_default_paths() {
  static const std::vector<std::string> paths {
#if defined(__aarch64__)
    "/usr/lib/aarch64-linux-gnu/libnvidia-ml.so.1",
#else
    "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1",
#endif
        "/usr/lib64/libnvidia-ml.so.1", "/usr/lib/libnvidia-ml.so.1", "/usr/local/nvidia/lib64/libnvidia-ml.so.1",
        "/run/opengl-driver/lib/libnvidia-ml.so.1", "/usr/lib/wsl/lib/libnvidia-ml.so.1", "libnvidia-ml.so.1",
  };
  return paths;
}

Result<NvmlApi> NvmlApi::load(const std::string& path) {
  if (!path.empty() && path[0] != '/') {
    return bad_request(fmt::format("the NVML library '{}' is not an absolute path", printable(path)),
                       "give the whole path, such as /usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1");
  }
  std::string last;
  for (const std::string& candidate : path.empty() ? nvml_default_paths() : std::vector<std::string>{path}) {
    if (path.empty() && candidate[0] == '/' && ::access(candidate.c_str(), F_OK) != 0) continue;
    void* library = ::dlopen(candidate.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      const char* reason = ::dlerror();
      last = reason != nullptr ? printable(reason) : candidate;
      continue;
    }
    auto table = std::make_unique<Table>();
    table->library = library;
    table->path = candidate;
    link_map* map = nullptr;
    if (::dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 && map->l_name[0] != '\0') table->path = map->l_name;
    if (const std::string missing = table->bind(); !missing.empty()) {
      last = fmt::format("{} has no {}", printable(table->path), missing);
      continue;
    }
    return NvmlApi(std::move(table));
  }
  return unavailable(fmt::format("no usable NVML library: {}", last),
                     "install the NVIDIA driver, or name its libnvidia-ml.so.1");
}

NvmlApi::NvmlApi(std::unique_ptr<Table> table) : table_(std::move(table)) {}
NvmlApi::NvmlApi(NvmlApi&&) noexcept = default;
NvmlApi& NvmlApi::operator=(NvmlApi&&) noexcept = default;
NvmlApi::~NvmlApi() = default;

const std::string& NvmlApi::path() const { return table_->path; }

void* NvmlApi::find(const char* function) const { return ::dlsym(table_->library, function); }

Answer<bool> NvmlApi::init() const {
  const int code = table_->init();
  if (code != 0) return table_->failed<bool>("nvmlInit", code);
  return {NvmlCode::success, {}, true};
}

void NvmlApi::shutdown() const { table_->shutdown(); }

Answer<std::string> NvmlApi::driver_version() const {
  if (table_->driver_version == nullptr) return table_->failed<std::string>("nvmlSystemGetDriverVersion", 13);
  std::array<char, 128> buffer{};
  const int code = table_->driver_version(buffer.data(), buffer.size() - 1);
  if (code != 0) return table_->failed<std::string>("nvmlSystemGetDriverVersion", code);
  return {NvmlCode::success, {}, from_buffer(buffer.data(), buffer.size())};
}

Answer<unsigned> NvmlApi::device_count() const {
  unsigned count = 0;
  const int code = table_->count(&count);
  if (code != 0) return table_->failed<unsigned>("nvmlDeviceGetCount", code);
  return {NvmlCode::success, {}, count};
}

Answer<NvmlDevice> NvmlApi::device(unsigned index) const {
  NvmlDevice device = nullptr;
  const int code = table_->handle(index, &device);
  if (code != 0) return table_->failed<NvmlDevice>("nvmlDeviceGetHandleByIndex", code);
  return {NvmlCode::success, {}, device};
}

Answer<NvmlIdentity> NvmlApi::identity(NvmlDevice device) const {
  const auto name = table_->text("nvmlDeviceGetName", table_->name, device);
  if (!name) return {name.code, name.error, {}};
  const auto uuid = table_->text("nvmlDeviceGetUUID", table_->uuid, device);
  if (!uuid) return {uuid.code, uuid.error, {}};
  Answer<NvmlIdentity> answer{NvmlCode::success, {}, {name.value, uuid.value, {}, {}}};
  // Larger than any version of the structure.
  std::array<char, 256> raw{};
  if (table_->pci_v3 != nullptr) {
    PciV3 pci{};
    if (table_->pci_v3(device, &pci) == 0) answer.value.pci_bus_id = from_buffer(pci.id, sizeof pci.id);
  } else if (table_->pci_old != nullptr && table_->pci_old(device, raw.data()) == 0) {
    answer.value.pci_bus_id = from_buffer(raw.data(), 16);
  }
  unsigned generation = 0, lanes = 0;
  const bool told = table_->link_generation != nullptr && table_->link_width != nullptr &&
                    table_->link_generation(device, &generation) == 0 && table_->link_width(device, &lanes) == 0;
  if (told && generation > 0 && generation <= lane_per_second.size() && lanes <= most_lanes)
    answer.value.link_per_second = Bytes{lane_per_second[generation - 1] * lanes};
  return answer;
}

Answer<NvmlMemory> NvmlApi::memory(NvmlDevice device) const {
  if (table_->memory_v2 != nullptr) {
    MemoryV2 memory{};
    memory.version = memory_v2_version;
    const int code = table_->memory_v2(device, &memory);
    if (code == 0) {
      return {NvmlCode::success, {}, {to_bytes(memory.total), to_bytes(memory.reserved), to_bytes(memory.used), true}};
    }
    const auto known = static_cast<NvmlCode>(code);
    const bool older = known == NvmlCode::function_not_found || known == NvmlCode::argument_version_mismatch ||
                       known == NvmlCode::not_supported || known == NvmlCode::invalid_argument;
    if (!older || table_->memory_v1 == nullptr) return table_->failed<NvmlMemory>("nvmlDeviceGetMemoryInfo_v2", code);
  }
  MemoryV1 memory{};
  const int code = table_->memory_v1(device, &memory);
  if (code != 0) return table_->failed<NvmlMemory>("nvmlDeviceGetMemoryInfo", code);
  return {NvmlCode::success, {}, {to_bytes(memory.total), {}, to_bytes(memory.used), false}};
}

Answer<bool> NvmlApi::mig_enabled(NvmlDevice device) const {
  constexpr auto unsupported = NvmlCode::not_supported;
  if (table_->mig_mode == nullptr) return {unsupported, "nvmlDeviceGetMigMode is not there", {}};
  unsigned current = 0;
  unsigned pending = 0;
  const int code = table_->mig_mode(device, &current, &pending);
  const auto known = static_cast<NvmlCode>(code);
  if (known == NvmlCode::function_not_found) return {unsupported, "nvmlDeviceGetMigMode is not there", {}};
  if (code != 0) return table_->failed<bool>("nvmlDeviceGetMigMode", code);
  if (current > 1) return {NvmlCode::unknown, fmt::format("nvmlDeviceGetMigMode: a mode of {}", current), {}};
  return {NvmlCode::success, {}, current == 1};
}

Answer<std::vector<NvmlSlice>> NvmlApi::slices(NvmlDevice card) const {
  using Slices = std::vector<NvmlSlice>;
  constexpr int missing = static_cast<int>(NvmlCode::function_not_found);
  if (table_->most_slices == nullptr) return table_->failed<Slices>("nvmlDeviceGetMaxMigDeviceCount", missing);
  if (table_->slice == nullptr) return table_->failed<Slices>("nvmlDeviceGetMigDeviceHandleByIndex", missing);
  unsigned count = 0;
  if (const int code = table_->most_slices(card, &count); code != 0)
    return table_->failed<Slices>("nvmlDeviceGetMaxMigDeviceCount", code);
  if (count > most_slices)
    return {NvmlCode::unknown, fmt::format("nvmlDeviceGetMaxMigDeviceCount: {} slices of one card", count), {}};
  Answer<Slices> answer;
  for (unsigned index = 0; index < count; ++index) {
    NvmlSlice slice{.index = index, .device = nullptr, .gpu_instance = std::nullopt};
    const int code = table_->slice(card, index, &slice.device);
    if (static_cast<NvmlCode>(code) == NvmlCode::not_found) continue;
    if (code != 0) return table_->failed<Slices>("nvmlDeviceGetMigDeviceHandleByIndex", code);
    unsigned instance = no_instance;
    if (table_->gpu_instance != nullptr && table_->gpu_instance(slice.device, &instance) == 0 &&
        instance != no_instance)
      slice.gpu_instance = instance;
    answer.value.push_back(slice);
  }
  return answer;
}

bool NvmlApi::has_window(NvmlDevice device) const {
  MemoryV1 window{};
  return table_->bar1 != nullptr && table_->bar1(device, &window) == 0 && window.total > 0;
}

Answer<MachineMemory> NvmlApi::simulated_machine(NvmlDevice device) const {
  constexpr int unsupported = static_cast<int>(NvmlCode::not_supported);
  unsigned long long total = 0, available = 0;
  const int code =
      table_->simulated_machine == nullptr ? unsupported : table_->simulated_machine(device, &total, &available);
  if (code != 0) return table_->failed<MachineMemory>("simgpuMachineMemory", code);
  return {NvmlCode::success, {}, {to_bytes(total), to_bytes(available)}};
}

Answer<std::vector<NvmlProcess>> NvmlApi::processes(NvmlDevice device) const {
  Answer<std::vector<NvmlProcess>> all = table_->read_list(table_->compute, device);
  if (!all) return all;
  for (const Table::List* list : {&table_->graphics, &table_->mps}) {
    if (list->versions.empty()) continue;
    const auto more = table_->read_list(*list, device);
    // Devices without graphics or MPS refuse this list. Only an error that reports a lost device makes the result
    // invalid.
    if (more.code == NvmlCode::not_supported || more.code == NvmlCode::function_not_found ||
        more.code == NvmlCode::no_permission || more.code == NvmlCode::invalid_argument) {
      continue;
    }
    if (!more) return more;
    const std::size_t before = all.value.size();
    for (const NvmlProcess& process : more.value) {
      const auto end = all.value.begin() + static_cast<std::ptrdiff_t>(before);
      const auto same =
          std::find_if(all.value.begin(), end, [&](const NvmlProcess& p) { return p.pid == process.pid; });
      if (same == end) {
        all.value.push_back(process);
        all.value.back().graphics_only = list == &table_->graphics;
        continue;
      }
      same->graphics_only = same->graphics_only && list == &table_->graphics;
      if (process.used && (!same->used || *same->used < *process.used)) same->used = process.used;
    }
  }
  return all;
}

}  // namespace sublet::gpu
