// SPDX-License-Identifier: Apache-2.0
// Host memory that the driver knows: its own pinned memory, the program's registered memory, managed memory.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <memory>

#include "context.h"
#include "memory.h"
#include "work.h"

using namespace simgpu;

namespace {

constexpr std::uint64_t page_bytes = 4096;

Range* add_host_range(Context& context, std::uint64_t base, std::uint64_t size, std::uint64_t reserved, RangeKind kind,
                      unsigned flags) {
  auto range = std::make_unique<Range>();
  range->base = base;
  range->size = size;
  range->reserved = reserved;
  range->kind = kind;
  range->context = &context;
  range->device = context.device;
  range->flags = flags;
  return driver().addresses.add(std::move(range));
}

// Pages appear when they are touched, unlike the real driver's: pinning costs the time that the settings say, not real
// memory.
CUresult allocate_host(Context& context, std::size_t size, RangeKind kind, unsigned flags, Range*& range) {
  const std::uint64_t reserved = round_up(size, page_bytes);
  if (reserved < size) return CUDA_ERROR_OUT_OF_MEMORY;
  void* at = ::mmap(nullptr, reserved, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  range = add_host_range(context, reinterpret_cast<std::uint64_t>(at), size, reserved, kind, flags);
  return CUDA_SUCCESS;
}

void unmap(Range* range) {
  ::munmap(pointer_at(range->base), range->reserved);
  driver().addresses.remove(range);
}

// The share of [address, address + size) that lies in huge pages, as the kernel counts it by mapping.
// NOLINTBEGIN(cert-err34-c): numbers as the kernel prints them.
std::uint64_t huge_bytes(std::uint64_t address, std::uint64_t size) {
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen("/proc/self/smaps", "re"), &std::fclose);
  if (!file) return 0;
  char line[512];
  std::uint64_t huge = 0, begin = 0, end = 0, share = 0, length = 1;
  while (std::fgets(line, sizeof line, file.get())) {
    std::uint64_t from, to, kib;
    if (std::sscanf(line, "%" SCNx64 "-%" SCNx64 " ", &from, &to) == 2) {
      begin = std::max(from, address), end = std::min(to, address + size);
      share = begin < end ? end - begin : 0;
      length = to - from;
    } else if (share != 0 && (std::sscanf(line, "AnonHugePages: %" SCNu64, &kib) == 1 ||
                              std::sscanf(line, "ShmemPmdMapped: %" SCNu64, &kib) == 1 ||
                              std::sscanf(line, "Private_Hugetlb: %" SCNu64, &kib) == 1 ||
                              std::sscanf(line, "Shared_Hugetlb: %" SCNu64, &kib) == 1)) {
      huge += std::min(share, static_cast<std::uint64_t>(static_cast<double>(kib) * 1024 *
                                                         (static_cast<double>(share) / static_cast<double>(length))));
    }
  }
  return std::min(huge, size);
}
// NOLINTEND(cert-err34-c)

bool is_mapped(std::uint64_t address, std::uint64_t size) {
  const std::uint64_t from = address / page_bytes * page_bytes;
  const std::uint64_t pages = (round_up(address + size, page_bytes) - from) / page_bytes;
  const auto residency = std::make_unique<unsigned char[]>(pages);
  return ::mincore(pointer_at(from), pages * page_bytes, residency.get()) == 0;
}

CUresult host_alloc(void** out, std::size_t size, unsigned flags) {
  SIMGPU_CONTEXT();
  if (!out || size == 0) return CUDA_ERROR_INVALID_VALUE;
  if ((flags & ~(CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED)) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  if (driver().table->meet(FaultKind::register_fail, static_cast<int>(context->device)))
    return CUDA_ERROR_OUT_OF_MEMORY;
  Range* range = nullptr;
  if (const CUresult result = allocate_host(*context, size, RangeKind::host, flags, range); result != CUDA_SUCCESS)
    return result;
  *out = pointer_at(range->base);
  lock.unlock();
  pay_for_pinning(*out, size);
  return CUDA_SUCCESS;
}

CUresult host_register(void* address, std::size_t size, unsigned flags) {
  SIMGPU_CONTEXT();
  const auto base = reinterpret_cast<std::uint64_t>(address);
  if (!address || size == 0 || base + size < base || (flags & ~15U) != 0) return CUDA_ERROR_INVALID_VALUE;
  if ((flags & CU_MEMHOSTREGISTER_IOMEMORY) != 0) return CUDA_ERROR_NOT_SUPPORTED;
  if (driver().addresses.ours(base) || !is_mapped(base, size)) return CUDA_ERROR_INVALID_VALUE;
  if (driver().addresses.overlaps(base, size)) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  if (driver().table->meet(FaultKind::register_fail, static_cast<int>(context->device)))
    return CUDA_ERROR_OUT_OF_MEMORY;
  add_host_range(*context, base, size, size, RangeKind::registered, flags);
  lock.unlock();
  pay_for_pinning(address, size);
  return CUDA_SUCCESS;
}

CUresult device_pointer(CUdeviceptr* out, void* address, unsigned flags) {
  SIMGPU_CONTEXT();
  if (!out || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  const Range* range = driver().addresses.find(reinterpret_cast<std::uint64_t>(address));
  if (!range || (range->kind != RangeKind::host && range->kind != RangeKind::registered))
    return CUDA_ERROR_INVALID_VALUE;
  *out = reinterpret_cast<std::uint64_t>(address);
  return CUDA_SUCCESS;
}

}  // namespace

namespace simgpu {

void pay_for_pinning(const void* address, std::uint64_t size) {
  const std::uint64_t small = driver().table->get(Setting::pin_bandwidth);
  const std::uint64_t huge = driver().table->get(Setting::pin_huge_bandwidth);
  if (small == 0 && huge == 0) return;
  const std::uint64_t in_huge = huge_bytes(reinterpret_cast<std::uint64_t>(address), size);
  double seconds = 0;
  if (small != 0) seconds += static_cast<double>(size - in_huge) / static_cast<double>(small);
  if (huge != 0) seconds += static_cast<double>(in_huge) / static_cast<double>(huge);
  sleep_until_ns(now_ns() + static_cast<std::uint64_t>(seconds * 1e9));
}

CUresult free_managed(Range* range) {
  unmap(range);
  return CUDA_SUCCESS;
}

void free_host_of(Context& context) {
  std::vector<Range*> mine;
  for (const auto& [base, range] : driver().addresses.all())
    if (range->context == &context) mine.push_back(range.get());
  for (Range* range : mine) {
    if (range->kind == RangeKind::host || range->kind == RangeKind::managed) unmap(range);
    else if (range->kind == RangeKind::registered) driver().addresses.remove(range);
  }
}

}  // namespace simgpu

SIMGPU_API cuMemHostAlloc(void** out, std::size_t size, unsigned flags) {
  SIMGPU_ENTER(cuMemHostAlloc);
  return host_alloc(out, size, flags);
}
SIMGPU_API cuMemAllocHost_v2(void** out, std::size_t size) {
  SIMGPU_ENTER(cuMemAllocHost_v2);
  return host_alloc(out, size, 0);
}
SIMGPU_API cuMemFreeHost(void* address) {
  SIMGPU_ENTER(cuMemFreeHost);
  SIMGPU_CONTEXT();
  const auto base = reinterpret_cast<std::uint64_t>(address);
  Range* range = driver().addresses.find(base);
  if (!range || range->kind != RangeKind::host || range->base != base) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = wait_for_context(lock, *range->context); result != CUDA_SUCCESS) return result;
  range = driver().addresses.find(base);
  if (!range || range->kind != RangeKind::host || range->base != base) return CUDA_ERROR_INVALID_VALUE;
  unmap(range);
  return CUDA_SUCCESS;
}
SIMGPU_API cuMemHostGetFlags(unsigned* flags, void* address) {
  SIMGPU_ENTER(cuMemHostGetFlags);
  SIMGPU_CONTEXT();
  const Range* range = driver().addresses.find(reinterpret_cast<std::uint64_t>(address));
  if (!flags || !range || (range->kind != RangeKind::host && range->kind != RangeKind::registered))
    return CUDA_ERROR_INVALID_VALUE;
  *flags = range->flags | CU_MEMHOSTALLOC_DEVICEMAP;
  return CUDA_SUCCESS;
}
SIMGPU_API cuMemHostGetDevicePointer_v2(CUdeviceptr* out, void* address, unsigned flags) {
  SIMGPU_ENTER(cuMemHostGetDevicePointer_v2);
  return device_pointer(out, address, flags);
}
SIMGPU_API cuMemHostRegister_v2(void* address, std::size_t size, unsigned flags) {
  SIMGPU_ENTER(cuMemHostRegister_v2);
  return host_register(address, size, flags);
}
SIMGPU_API cuMemHostRegister(void* address, std::size_t size, unsigned flags) {
  SIMGPU_ENTER(cuMemHostRegister);
  return host_register(address, size, flags);
}
SIMGPU_API cuMemHostUnregister(void* address) {
  SIMGPU_ENTER(cuMemHostUnregister);
  SIMGPU_CONTEXT();
  const auto base = reinterpret_cast<std::uint64_t>(address);
  Range* range = driver().addresses.find(base);
  if (!address) return CUDA_ERROR_INVALID_VALUE;
  if (!range || range->kind != RangeKind::registered || range->base != base)
    return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  if (pending_touch(base, range->size)) driver().table->violation("unregister under pending work");
  driver().addresses.remove(range);
  return CUDA_SUCCESS;
}

// ------------------------------------------------------------------------------------------- managed memory

SIMGPU_API cuMemAllocManaged(CUdeviceptr* out, std::size_t size, unsigned flags) {
  SIMGPU_ENTER(cuMemAllocManaged);
  SIMGPU_CONTEXT();
  if (!out || size == 0 || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST))
    return CUDA_ERROR_INVALID_VALUE;
  if (driver().table->meet(FaultKind::alloc_fail, static_cast<int>(context->device))) return CUDA_ERROR_OUT_OF_MEMORY;
  Range* range = nullptr;
  const CUresult result = allocate_host(*context, size, RangeKind::managed, flags, range);
  if (result == CUDA_SUCCESS) *out = range->base;
  return result;
}

namespace {

// Managed memory stays in host memory here, so that advice and prefetching move nothing. The calls only check for
// errors that the driver would report.
CUresult check_managed(CUdeviceptr address, std::size_t size) {
  const Range* range = driver().addresses.find(address);
  const bool good = range && range->kind == RangeKind::managed && range->size - (address - range->base) >= size;
  return size != 0 && good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult prefetch(CUdeviceptr address, std::size_t size, int device, CUstream handle, bool per_thread) {
  SIMGPU_CONTEXT();
  if (device != -1 && !known_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  if (const CUresult result = check_managed(address, size); result != CUDA_SUCCESS) return result;
  std::shared_ptr<Stream> stream;
  return find_stream(handle, *context, per_thread, stream);
}

CUresult advise(CUdeviceptr address, std::size_t size, int advice, int device) {
  SIMGPU_CONTEXT();
  if (advice < 1 || advice > 6) return CUDA_ERROR_INVALID_VALUE;
  if (advice >= 3 && device != -1 && !known_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  return check_managed(address, size);
}

int device_of(const CUmemLocation& location) { return location.type == CU_MEM_LOCATION_TYPE_DEVICE ? location.id : -1; }

}  // namespace

SIMGPU_API cuMemPrefetchAsync(CUdeviceptr address, std::size_t size, CUdevice device, CUstream stream) {
  SIMGPU_ENTER(cuMemPrefetchAsync);
  return prefetch(address, size, device, stream, false);
}
SIMGPU_API cuMemPrefetchAsync_ptsz(CUdeviceptr address, std::size_t size, CUdevice device, CUstream stream) {
  SIMGPU_ENTER(cuMemPrefetchAsync_ptsz);
  return prefetch(address, size, device, stream, true);
}
SIMGPU_API cuMemPrefetchAsync_v2(CUdeviceptr address, std::size_t size, CUmemLocation location, unsigned flags,
                                 CUstream stream) {
  SIMGPU_ENTER(cuMemPrefetchAsync_v2);
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  return prefetch(address, size, device_of(location), stream, false);
}
SIMGPU_API cuMemPrefetchAsync_v2_ptsz(CUdeviceptr address, std::size_t size, CUmemLocation location, unsigned flags,
                                      CUstream stream) {
  SIMGPU_ENTER(cuMemPrefetchAsync_v2_ptsz);
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  return prefetch(address, size, device_of(location), stream, true);
}
SIMGPU_API cuMemAdvise(CUdeviceptr address, std::size_t size, int advice, CUdevice device) {
  SIMGPU_ENTER(cuMemAdvise);
  return advise(address, size, advice, device);
}
SIMGPU_API cuMemAdvise_v2(CUdeviceptr address, std::size_t size, int advice, CUmemLocation location) {
  SIMGPU_ENTER(cuMemAdvise_v2);
  return advise(address, size, advice, device_of(location));
}
