// SPDX-License-Identifier: Apache-2.0
#include "gpu/cuda_api.h"

#include "gpu/nvml_api.h"

#include "base/text.h"

#include <fmt/format.h>

#include <dlfcn.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <cstdlib>
#include <utility>

namespace sublet::gpu {
namespace {

constexpr int first_version = 12080;
constexpr Bytes largest_piece = GiB, smallest_piece = 2 * MiB;

// 64 bytes each; unused bytes are zero.
struct LockArguments {
  unsigned timeout_ms;
  unsigned reserved[15];
};
static_assert(sizeof(LockArguments) == 64);

struct Uuid {
  std::array<unsigned char, 16> bytes;
};

// Without the word before it, which is another one for a MIG slice.
std::string text_of(const Uuid& uuid) {
  std::string text = "-";
  for (std::size_t i = 0; i < uuid.bytes.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", uuid.bytes[i]);
  }
  return text;
}

// The vendor installs both of its libraries in the same directory.
std::vector<std::string> default_paths() {
  constexpr std::string_view other = "libnvidia-ml.so.1";
  std::vector<std::string> paths;
  for (const std::string& path : nvml_default_paths()) {
    paths.push_back(path.substr(0, path.size() - other.size()) + "libcuda.so.1");
  }
  return paths;
}

}  // namespace

struct CudaApi::Table {
  std::string path;
  int version = 0;

  int (*init)(unsigned) = nullptr;
  int (*driver_version)(int*) = nullptr;
  int (*error_name)(int, const char**) = nullptr;
  int (*device_count)(int*) = nullptr;
  int (*device_get)(int*, int) = nullptr;
  int (*device_uuid)(Uuid*, int) = nullptr;
  int (*retain)(void**, int) = nullptr;
  int (*release)(int) = nullptr;
  int (*push)(void*) = nullptr;
  int (*pop)(void**) = nullptr;
  int (*allocate)(unsigned long long*, std::size_t) = nullptr;
  int (*free)(unsigned long long) = nullptr;
  int (*memory_info)(std::size_t* free, std::size_t* total) = nullptr;
  int (*create)(void**, unsigned, int) = nullptr;
  int (*destroy)(void*) = nullptr;
  int (*get_state)(int, int*) = nullptr;
  int (*lock)(int, LockArguments*) = nullptr;
  int (*checkpoint)(int, void*) = nullptr;
  int (*restore)(int, void*) = nullptr;
  int (*unlock)(int, void*) = nullptr;

  // Binds the functions. Returns the name of a missing function, or "".
  std::string bind(void* library) {
    std::string missing;
    const auto find = [&](auto& function, std::initializer_list<const char*> names) {
      for (const char* symbol : names) {
        if (function == nullptr) {
          function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, symbol));
        }
      }
      if (function == nullptr && missing.empty()) missing = *names.begin();
    };
    find(init, {"cuInit"});
    find(driver_version, {"cuDriverGetVersion"});
    find(error_name, {"cuGetErrorName"});
    find(device_count, {"cuDeviceGetCount"});
    find(device_get, {"cuDeviceGet"});
    find(device_uuid, {"cuDeviceGetUuid_v2", "cuDeviceGetUuid"});
    find(retain, {"cuDevicePrimaryCtxRetain"});
    find(release, {"cuDevicePrimaryCtxRelease_v2"});
    find(push, {"cuCtxPushCurrent_v2"});
    find(pop, {"cuCtxPopCurrent_v2"});
    find(allocate, {"cuMemAlloc_v2"});
    find(free, {"cuMemFree_v2"});
    find(memory_info, {"cuMemGetInfo_v2"});
    find(create, {"cuCtxCreate_v2"});
    find(destroy, {"cuCtxDestroy_v2"});
    find(get_state, {"cuCheckpointProcessGetState"});
    find(lock, {"cuCheckpointProcessLock"});
    find(checkpoint, {"cuCheckpointProcessCheckpoint"});
    find(restore, {"cuCheckpointProcessRestore"});
    find(unlock, {"cuCheckpointProcessUnlock"});
    return missing;
  }

  std::string name_of(int code) const {
    const char* name = nullptr;
    return error_name(code, &name) == 0 && name != nullptr ? printable(name) : fmt::format("error {}", code);
  }

  // Returns the device memory that a context takes while it lives; zero if that is not known. Another context is
  // current.
  Bytes context_size(int device) const {
    const auto free_now = [this](Bytes& left) {
      std::size_t bytes = 0, total = 0;
      const bool told = memory_info(&bytes, &total) == 0;
      left = Bytes{static_cast<std::int64_t>(bytes)};
      return told;
    };
    Bytes before, meanwhile, after;
    void* one_more = nullptr;
    if (!free_now(before) || create(&one_more, 0, device) != 0) return {};
    const bool told = free_now(meanwhile);
    if (destroy(one_more) != 0 || !told || !free_now(after)) return {};
    // If other processes took or freed memory meanwhile, one of the differences is too large. So the smaller one
    // counts.
    return std::max(std::min(before - meanwhile, after - meanwhile), Bytes{});
  }

  Status start() {
    const auto no_start = [this](int code) {
      return fmt::format("the driver in {} does not start: {} ({})", printable(path), name_of(code), code);
    };
    if (const int code = driver_version(&version); code != 0) return unavailable(no_start(code));
    if (version < first_version) {
      return not_found(fmt::format("the driver in {} has CUDA {}.{}; parking other processes needs 12.8 (driver 570)",
                                   printable(path), version / 1000, version % 1000 / 10));
    }
    const int code = init(0);
    if (code == static_cast<int>(CudaCode::not_supported)) return not_found(no_start(code));
    if (code != 0) return unavailable(no_start(code));
    return {};
  }
};

Result<CudaApi> CudaApi::load(const std::string& path, const std::string& slice) {
  if (!path.empty() && path[0] != '/') {
    return bad_request(fmt::format("the driver library '{}' is not an absolute path", printable(path)));
  }
  // Ballast may be on any device, whatever CUDA_VISIBLE_DEVICES the daemon was started with. But a process sees one
  // slice only.
  if (slice.empty()) ::unsetenv("CUDA_VISIBLE_DEVICES");
  else ::setenv("CUDA_VISIBLE_DEVICES", slice.c_str(), 1);
  Error last = unavailable("there is no libcuda.so.1 where the driver installs it");
  for (const std::string& candidate : path.empty() ? default_paths() : std::vector<std::string>{path}) {
    if (path.empty() && candidate[0] == '/' && ::access(candidate.c_str(), F_OK) != 0) continue;
    void* library = ::dlopen(candidate.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      const char* reason = ::dlerror();
      last = unavailable(reason != nullptr ? printable(reason) : candidate);
      continue;
    }
    auto table = std::make_unique<Table>();
    table->path = candidate;
    if (const std::string missing = table->bind(library); !missing.empty()) {
      last = not_found(fmt::format("{} has no {}", printable(candidate), missing));
      continue;
    }
    if (auto started = table->start(); !started) return started.error();
    return CudaApi(std::move(table));
  }
  return last;
}

CudaApi::CudaApi(std::unique_ptr<Table> table) : table_(std::move(table)) {}
CudaApi::CudaApi(CudaApi&&) noexcept = default;
CudaApi& CudaApi::operator=(CudaApi&&) noexcept = default;
CudaApi::~CudaApi() = default;

const std::string& CudaApi::path() const { return table_->path; }
int CudaApi::version() const { return table_->version; }
std::string CudaApi::name_of(CudaCode code) const { return table_->name_of(static_cast<int>(code)); }

CudaCode CudaApi::state(int pid, ParkState& state) const {
  int found = 0;
  const auto code = static_cast<CudaCode>(table_->get_state(pid, &found));
  state = code == CudaCode::success && found >= 0 && found <= 3 ? static_cast<ParkState>(found) : ParkState::unknown;
  return code;
}

CudaCode CudaApi::lock(int pid, std::chrono::milliseconds timeout) const {
  LockArguments arguments{};
  arguments.timeout_ms = static_cast<unsigned>(timeout.count());
  return static_cast<CudaCode>(table_->lock(pid, &arguments));
}

CudaCode CudaApi::checkpoint(int pid) const { return static_cast<CudaCode>(table_->checkpoint(pid, nullptr)); }
CudaCode CudaApi::restore(int pid) const { return static_cast<CudaCode>(table_->restore(pid, nullptr)); }
CudaCode CudaApi::unlock(int pid) const { return static_cast<CudaCode>(table_->unlock(pid, nullptr)); }

// ------------------------------------------------------------------------------------------- ballast

struct CudaApi::Ballast::Parts {
  const Table* table = nullptr;
  int device = 0;
  std::vector<unsigned long long> pieces;
  Bytes held;

  // The last holder's end destroys the context and all memory in it.
  ~Parts() {
    void* context = nullptr;
    if (table->retain(&context, device) == 0 && table->push(context) == 0) {
      for (const auto piece : pieces) table->free(piece);
      table->pop(&context);
      table->release(device);
    }
    table->release(device);
  }

  void drop_all() {
    for (const auto piece : std::exchange(pieces, {})) table->free(piece);
    held = {};
  }

  // As fill(), but takes what is free if there is less than all.
  int fill(Bytes bytes, Bytes margin) {
    const int code = fill(bytes + margin);
    if (code != static_cast<int>(CudaCode::out_of_memory) || held >= bytes) return held >= bytes ? 0 : code;
    const Bytes got = held;
    drop_all();  // so that a second context fits
    const Bytes context = table->context_size(device);
    if (context > Bytes{} && fill(bytes - context) == 0) return 0;
    held = std::max(held, got);
    return code;
  }

  // Returns the driver's code that stopped it; 0 if all bytes are held.
  int fill(Bytes wanted) {
    Bytes piece = largest_piece;
    while (held < wanted) {
      piece = std::min(piece, std::max(smallest_piece, wanted - held));
      unsigned long long at = 0;
      const int code = table->allocate(&at, static_cast<std::size_t>(piece.count));
      if (code == 0) {
        pieces.push_back(at);
        held += piece;
      } else if (code != static_cast<int>(CudaCode::out_of_memory) || piece <= smallest_piece) {
        return code;
      } else {
        // The free memory may be fragmented.
        piece = std::max(smallest_piece, Bytes{piece.count / 2});
      }
    }
    return 0;
  }
};

CudaApi::Ballast::Ballast(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
CudaApi::Ballast::Ballast(Ballast&&) noexcept = default;
CudaApi::Ballast& CudaApi::Ballast::operator=(Ballast&&) noexcept = default;
CudaApi::Ballast::~Ballast() = default;
Bytes CudaApi::Ballast::held() const { return parts_ ? parts_->held : Bytes{}; }

Result<CudaApi::Ballast> CudaApi::take(const std::string& uuid, Bytes bytes, Bytes margin) const {
  int count = 0;
  table_->device_count(&count);
  for (int i = 0; i < count; ++i) {
    int device = 0;
    Uuid found{};
    if (table_->device_get(&device, i) != 0 || table_->device_uuid(&found, device) != 0) continue;
    if (!uuid.ends_with(text_of(found))) continue;
    const auto refused = [&](std::string_view call, int code, Bytes got) {
      const bool full = code == static_cast<int>(CudaCode::out_of_memory);
      return Error{full ? Code::Memory : Code::Unavailable,
                   fmt::format("{} of {} on {}: {} returned {} ({})", format_size(got), format_size(bytes), uuid, call,
                               table_->name_of(code), code),
                   {}};
    };
    void* context = nullptr;
    if (const int code = table_->retain(&context, device); code != 0) {
      return refused("cuDevicePrimaryCtxRetain", code, {});
    }
    auto parts = std::make_unique<Ballast::Parts>();
    parts->table = table_.get();
    parts->device = device;
    int code = table_->push(context);
    if (code == 0) {
      code = parts->fill(bytes, margin);
      table_->pop(&context);
    }
    if (code != 0) return refused("cuMemAlloc", code, parts->held);
    return Ballast(std::move(parts));
  }
  return not_found(fmt::format("the driver shows no card {}", printable(uuid)));
}

}  // namespace sublet::gpu
