// SPDX-License-Identifier: Apache-2.0
// Virtual memory management: reservations, physical handles, mappings, access, and export between processes. They
// belong to no context and wait for no work. Unmapping under pending work is the program's error, which the table
// counts.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>

#include "context.h"
#include "memory.h"
#include "work.h"

using namespace simgpu;

namespace {

bool aligned(std::uint64_t value) { return value % granule == 0; }

// A card named by a location, or an error.
CUresult card_of(const CUmemLocation& location, unsigned& card) {
  if (location.type == CU_MEM_LOCATION_TYPE_HOST || location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA ||
      location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT)
    return CUDA_ERROR_NOT_SUPPORTED;
  if (location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
  if (!known_device(location.id)) return CUDA_ERROR_INVALID_DEVICE;
  card = driver().cards[static_cast<std::size_t>(location.id)];
  return CUDA_SUCCESS;
}

CUresult check_properties(const CUmemAllocationProp* properties, unsigned& card) {
  if (!properties || properties->type != CU_MEM_ALLOCATION_TYPE_PINNED || properties->win32HandleMetaData)
    return CUDA_ERROR_INVALID_VALUE;
  const int types = properties->requestedHandleTypes;
  if ((types & (CU_MEM_HANDLE_TYPE_WIN32 | CU_MEM_HANDLE_TYPE_WIN32_KMT)) != 0 || types < 0 || types > 15)
    return CUDA_ERROR_INVALID_VALUE;
  if ((types & CU_MEM_HANDLE_TYPE_FABRIC) != 0) return CUDA_ERROR_NOT_PERMITTED;
  return card_of(properties->location, card);
}

CUmemGenericAllocationHandle handle_for(const std::shared_ptr<Physical>& physical) {
  auto& d = driver();
  if (const auto at = d.handles.find(physical->handle); physical->handle != 0 && at != d.handles.end()) {
    ++at->second.second;
    return physical->handle;
  }
  physical->handle = d.next_handle++;
  d.handles[physical->handle] = {physical, 1};
  return physical->handle;
}

Physical* known(CUmemGenericAllocationHandle handle) {
  const auto at = driver().handles.find(handle);
  return at == driver().handles.end() ? nullptr : at->second.first.get();
}

void pay_for_handle(Lock& lock) {
  if (const std::uint64_t cost = driver().table->get(Setting::handle_ns)) {
    lock.unlock();
    sleep_until_ns(now_ns() + cost);
    lock.lock();
  }
}

// Finds the reservation that holds all of [address, address + size).
Range* reservation(CUdeviceptr address, std::uint64_t size) {
  Range* range = driver().addresses.find(address);
  if (!range || range->kind != RangeKind::reservation || range->size - (address - range->base) < size) return nullptr;
  return range;
}

// Tells whether [address, address + size) consists of whole mappings without a gap.
bool whole_mappings(const Range& range, std::uint64_t address, std::uint64_t size) {
  const std::uint64_t end = address + size;
  while (address < end) {
    const auto at = range.mappings.find(address);
    if (at == range.mappings.end()) return false;
    address += at->second.size;
  }
  return address == end;
}

bool any_mapping(const Range& range, std::uint64_t address, std::uint64_t size) {
  auto at = range.mappings.lower_bound(address);
  if (at != range.mappings.end() && at->first < address + size) return true;
  return at != range.mappings.begin() && (--at)->first + at->second.size > address;
}

}  // namespace

SIMGPU_API cuMemGetAllocationGranularity(std::size_t* out, const CUmemAllocationProp* properties,
                                         CUmemAllocationGranularity_flags option) {
  SIMGPU_ENTER(cuMemGetAllocationGranularity);
  const Lock lock(driver_mutex());
  unsigned card = 0;
  if (!out || (option != CU_MEM_ALLOC_GRANULARITY_MINIMUM && option != CU_MEM_ALLOC_GRANULARITY_RECOMMENDED))
    return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = check_properties(properties, card); result != CUDA_SUCCESS) return result;
  *out = granule;
  return CUDA_SUCCESS;
}

// ------------------------------------------------------------------------------------------- addresses

SIMGPU_API cuMemAddressReserve(CUdeviceptr* out, std::size_t size, std::size_t alignment, CUdeviceptr hint,
                               unsigned long long flags) {
  SIMGPU_ENTER(cuMemAddressReserve);
  const Lock lock(driver_mutex());
  if (!out || size == 0 || !aligned(size) || flags != 0 || (alignment & (alignment - 1)) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  const std::uint64_t base = driver().addresses.reserve(size, std::max<std::uint64_t>(alignment, granule), hint);
  if (base == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  auto range = std::make_unique<Range>();
  range->base = base;
  range->size = range->reserved = size;
  range->kind = RangeKind::reservation;
  *out = driver().addresses.add(std::move(range))->base;
  return CUDA_SUCCESS;
}

SIMGPU_API cuMemAddressFree(CUdeviceptr address, std::size_t size) {
  SIMGPU_ENTER(cuMemAddressFree);
  const Lock lock(driver_mutex());
  Range* range = reservation(address, size);
  // The whole of one reservation, with nothing mapped in it.
  if (!range || range->base != address || range->size != size || !range->mappings.empty())
    return CUDA_ERROR_INVALID_VALUE;
  driver().addresses.release(address, size);
  driver().addresses.remove(range);
  return CUDA_SUCCESS;
}

// ------------------------------------------------------------------------------------------- physical memory

SIMGPU_API cuMemCreate(CUmemGenericAllocationHandle* out, std::size_t size, const CUmemAllocationProp* properties,
                       unsigned long long flags) {
  SIMGPU_ENTER(cuMemCreate);
  Lock lock(driver_mutex());
  unsigned card = 0;
  if (!out || size == 0 || !aligned(size) || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = check_properties(properties, card); result != CUDA_SUCCESS) return result;
  if (driver().table->is_lost(card)) return CUDA_ERROR_UNKNOWN;
  if (driver().table->meet(FaultKind::create_fail, static_cast<int>(card))) return CUDA_ERROR_OUT_OF_MEMORY;
  auto physical = size >> 46 ? nullptr : Physical::create(card, size);
  if (!physical) return CUDA_ERROR_OUT_OF_MEMORY;
  physical->properties = *properties;
  *out = handle_for(physical);
  pay_for_handle(lock);
  return CUDA_SUCCESS;
}

SIMGPU_API cuMemRelease(CUmemGenericAllocationHandle handle) {
  SIMGPU_ENTER(cuMemRelease);
  const Lock lock(driver_mutex());
  const auto at = driver().handles.find(handle);
  if (at == driver().handles.end()) return CUDA_ERROR_INVALID_VALUE;
  // Memory that is still mapped stays until it is unmapped.
  if (--at->second.second == 0) driver().handles.erase(at);
  return CUDA_SUCCESS;
}

SIMGPU_API cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* out, void* pointer) {
  SIMGPU_ENTER(cuMemRetainAllocationHandle);
  const Lock lock(driver_mutex());
  const auto address = reinterpret_cast<std::uint64_t>(pointer);
  const Range* range = reservation(address, 1);
  if (!out || !range) return CUDA_ERROR_INVALID_VALUE;
  auto at = range->mappings.upper_bound(address);
  if (at == range->mappings.begin() || address - (--at)->first >= at->second.size) return CUDA_ERROR_INVALID_VALUE;
  *out = handle_for(at->second.physical);
  return CUDA_SUCCESS;
}

SIMGPU_API cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* out, CUmemGenericAllocationHandle handle) {
  SIMGPU_ENTER(cuMemGetAllocationPropertiesFromHandle);
  const Lock lock(driver_mutex());
  const Physical* physical = known(handle);
  if (!out || !physical) return CUDA_ERROR_INVALID_VALUE;
  *out = physical->properties;
  return CUDA_SUCCESS;
}

// ------------------------------------------------------------------------------------------- mappings

SIMGPU_API cuMemMap(CUdeviceptr address, std::size_t size, std::size_t offset, CUmemGenericAllocationHandle handle,
                    unsigned long long flags) {
  SIMGPU_ENTER(cuMemMap);
  Lock lock(driver_mutex());
  const auto at = driver().handles.find(handle);
  if (at == driver().handles.end()) return CUDA_ERROR_INVALID_VALUE;
  const std::shared_ptr<Physical> physical = at->second.first;
  // The whole of an allocation from its beginning: parts of it cannot be mapped.
  if (size == 0 || !aligned(size) || !aligned(address) || offset != 0 || flags != 0 || size != physical->bytes)
    return CUDA_ERROR_INVALID_VALUE;
  Range* range = reservation(address, size);
  if (!range || any_mapping(*range, address, size)) return CUDA_ERROR_INVALID_VALUE;
  if (driver().table->meet(FaultKind::map_fail, static_cast<int>(physical->device))) return CUDA_ERROR_OUT_OF_MEMORY;
  auto& mapping = range->mappings[address];
  mapping.size = size;
  mapping.physical = physical;
  pay_for_handle(lock);
  return CUDA_SUCCESS;
}

SIMGPU_API cuMemUnmap(CUdeviceptr address, std::size_t size) {
  SIMGPU_ENTER(cuMemUnmap);
  const Lock lock(driver_mutex());
  Range* range = reservation(address, size);
  if (!range || size == 0 || !aligned(size) || !whole_mappings(*range, address, size)) return CUDA_ERROR_INVALID_VALUE;
  // No wait: work that still needs the memory will not find it.
  if (pending_touch(address, size)) driver().table->violation("unmap under pending work");
  range->mappings.erase(range->mappings.lower_bound(address), range->mappings.lower_bound(address + size));
  return CUDA_SUCCESS;
}

SIMGPU_API cuMemSetAccess(CUdeviceptr address, std::size_t size, const CUmemAccessDesc* access, std::size_t count) {
  SIMGPU_ENTER(cuMemSetAccess);
  const Lock lock(driver_mutex());
  Range* range = reservation(address, size);
  if (!access || count == 0 || size == 0 || !range || !whole_mappings(*range, address, size))
    return CUDA_ERROR_INVALID_VALUE;
  std::map<unsigned, CUmemAccess_flags> wanted;
  for (std::size_t i = 0; i < count; ++i) {
    unsigned card = 0;
    if (const CUresult result = card_of(access[i].location, card); result != CUDA_SUCCESS) return result;
    const auto flags = access[i].flags;
    if (flags != CU_MEM_ACCESS_FLAGS_PROT_NONE && flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
        flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
      return CUDA_ERROR_INVALID_VALUE;
    if (!wanted.emplace(card, flags).second) return CUDA_ERROR_INVALID_VALUE;  // a card is named twice
  }
  for (auto at = range->mappings.find(address); at != range->mappings.end() && at->first < address + size; ++at)
    for (const auto& [card, flags] : wanted) at->second.access[card] = flags;
  return CUDA_SUCCESS;
}

SIMGPU_API cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location, CUdeviceptr address) {
  SIMGPU_ENTER(cuMemGetAccess);
  const Lock lock(driver_mutex());
  const Range* range = reservation(address, 1);
  unsigned card = 0;
  if (!flags || !location || !range) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = card_of(*location, card); result != CUDA_SUCCESS) return result;
  auto at = range->mappings.upper_bound(address);
  if (at == range->mappings.begin() || address - (--at)->first >= at->second.size) return CUDA_ERROR_INVALID_VALUE;
  const auto found = at->second.access.find(card);
  *flags = found == at->second.access.end() ? CU_MEM_ACCESS_FLAGS_PROT_NONE : found->second;
  return CUDA_SUCCESS;
}

// ------------------------------------------------------------------------------------------- between
// processes

SIMGPU_API cuMemExportToShareableHandle(void* out, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,
                                        unsigned long long flags) {
  SIMGPU_ENTER(cuMemExportToShareableHandle);
  const Lock lock(driver_mutex());
  Physical* physical = known(handle);
  if (!out || !physical || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || (physical->properties.requestedHandleTypes & type) == 0)
    return CUDA_ERROR_INVALID_VALUE;
  int fd = -1;
  try {
    fd = physical->export_fd();
  } catch (const std::bad_alloc&) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (fd < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  *static_cast<int*>(out) = fd;
  return CUDA_SUCCESS;
}

SIMGPU_API cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* out, void* os_handle,
                                          CUmemAllocationHandleType type) {
  SIMGPU_ENTER(cuMemImportFromShareableHandle);
  const Lock lock(driver_mutex());
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
  auto physical = Physical::import(static_cast<int>(reinterpret_cast<std::intptr_t>(os_handle)));
  if (!physical) return CUDA_ERROR_INVALID_VALUE;
  const auto at = std::find(driver().cards.begin(), driver().cards.end(), physical->device);
  if (at == driver().cards.end()) return CUDA_ERROR_INVALID_DEVICE;  // a card that is not visible to this process
  physical->properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  physical->properties.requestedHandleTypes = type;
  physical->properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, static_cast<int>(at - driver().cards.begin())};
  *out = handle_for(physical);
  return CUDA_SUCCESS;
}
