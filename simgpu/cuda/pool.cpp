// SPDX-License-Identifier: Apache-2.0
// Stream-ordered memory: pools, and allocation and freeing in a stream's order. An allocation is usable as soon as the
// call returns. Freed memory returns to the pool when its stream gets there. It returns to the card when a
// synchronisation finds more idle memory than the release threshold, or when another allocation would fail.
#include <algorithm>

#include "context.h"
#include "memory.h"
#include "work.h"

using namespace simgpu;

namespace simgpu {
namespace {

constexpr std::uint64_t block_bytes = 32 << 20;  // a pool grows by this size, or by the size of a larger request
constexpr std::uint64_t unit = 512;

// Gives free blocks back to the card until the pool holds no more than `keep`.
void trim(Pool& pool, std::uint64_t keep) {
  for (auto at = pool.blocks.begin(); at != pool.blocks.end() && pool.reserved > keep;) {
    PoolBlock& block = **at;
    if (block.used != 0) {
      ++at;
      continue;
    }
    pool.reserved -= block.bytes;
    driver().addresses.release(block.base, block.bytes);
    at = pool.blocks.erase(at);
  }
}

PoolBlock* grow(Pool& pool, std::uint64_t size) {
  std::uint64_t bytes = round_up(size, block_bytes);
  const auto create = [&] {
    if (pool.max_size != 0 && pool.reserved + bytes > pool.max_size) return std::shared_ptr<Physical>();
    return Physical::create(pool.device, bytes);
  };
  auto physical = create();
  if (!physical) {
    trim(pool, 0);
    bytes = round_up(size, granule);
    physical = create();
  }
  const std::uint64_t base = physical ? driver().addresses.reserve(bytes, granule) : 0;
  if (base == 0) return nullptr;
  auto block = std::make_unique<PoolBlock>();
  block->base = base;
  block->bytes = bytes;
  block->physical = std::move(physical);
  block->gaps[0] = bytes;
  pool.reserved += bytes;
  pool.reserved_high = std::max(pool.reserved_high, pool.reserved);
  pool.blocks.push_back(std::move(block));
  return pool.blocks.back().get();
}

bool take_gap(PoolBlock& block, std::uint64_t bytes, std::uint64_t& offset) {
  for (auto gap = block.gaps.begin(); gap != block.gaps.end(); ++gap) {
    if (gap->second < bytes) continue;
    offset = gap->first;
    const std::uint64_t rest = gap->second - bytes;
    block.gaps.erase(gap);
    if (rest != 0) block.gaps[offset + bytes] = rest;
    block.used += bytes;
    return true;
  }
  return false;
}

void give_gap(PoolBlock& block, std::uint64_t offset, std::uint64_t bytes) {
  block.used -= bytes;
  auto at = block.gaps.emplace(offset, bytes).first;
  if (const auto after = std::next(at); after != block.gaps.end() && offset + bytes == after->first) {
    at->second += after->second;
    block.gaps.erase(after);
  }
  if (at != block.gaps.begin())
    if (const auto before = std::prev(at); before->first + before->second == offset) {
      before->second += at->second;
      block.gaps.erase(at);
    }
}

void put_back(Range* range) {
  Pool& pool = *range->pool;
  pool.used -= range->reserved;
  for (const auto& block : pool.blocks)
    if (block->physical == range->physical) give_gap(*block, range->offset, range->reserved);
  driver().addresses.remove(range);
  if (pool.destroyed) trim(pool, 0);
}

// Finds a place for the range in the pool; grows the pool if there is none.
bool place(Pool& pool, Range& range) {
  PoolBlock* in = nullptr;
  for (const auto& block : pool.blocks)
    if (take_gap(*block, range.reserved, range.offset)) {
      in = block.get();
      break;
    }
  if (!in) {
    in = grow(pool, range.reserved);
    if (!in || !take_gap(*in, range.reserved, range.offset)) return false;
  }
  range.physical = in->physical;
  range.base = in->base + range.offset;
  return true;
}

CUresult allocate_pooled(Context& context, Pool& pool, std::uint64_t size, CUdeviceptr* out) {
  if (driver().table->meet(FaultKind::alloc_fail, static_cast<int>(pool.device))) return CUDA_ERROR_OUT_OF_MEMORY;
  if (size > std::uint64_t{1} << 46) return CUDA_ERROR_OUT_OF_MEMORY;
  auto range = std::make_unique<Range>();
  range->size = size;
  range->reserved = round_up(size, unit);
  if (!place(pool, *range)) return CUDA_ERROR_OUT_OF_MEMORY;
  range->kind = RangeKind::pooled;
  range->context = &context;
  range->device = pool.device;
  range->pool = &pool;
  pool.used += range->reserved;
  pool.used_high = std::max(pool.used_high, pool.used);
  *out = driver().addresses.add(std::move(range))->base;
  return CUDA_SUCCESS;
}

Pool* known_pool(CUmemoryPool handle) {
  for (const auto& pool : driver().pools)
    if (pool.get() == reinterpret_cast<Pool*>(handle) && !pool->destroyed) return pool.get();
  return nullptr;
}

CUmemoryPool handle_of_pool(Pool* pool) { return reinterpret_cast<CUmemoryPool>(pool); }

Pool* new_pool(int ordinal, bool standard) {
  auto pool = std::make_unique<Pool>();
  pool->device = driver().cards[static_cast<std::size_t>(ordinal)];
  pool->standard = standard;
  pool->properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  pool->properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, ordinal};
  pool->access[pool->device] = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  driver().pools.push_back(std::move(pool));
  return driver().pools.back().get();
}

}  // namespace

void prepare_pool(int ordinal) {
  Pool* pool = new_pool(ordinal, true);
  driver().default_pool.push_back(pool);
  driver().current_pool.push_back(pool);
}

CUresult free_pooled(Range* range, const std::shared_ptr<Stream>& stream) {
  range->ending = true;
  const std::uint64_t base = range->base, id = range->id;
  const auto give_back = [base, id] {
    Range* found = driver().addresses.find(base);
    if (found && found->id == id) put_back(found);
    return CUDA_SUCCESS;
  };
  if (!stream) return give_back();
  submit(stream, make_work([give_back] {
           const Lock lock(driver_mutex());
           return give_back();
         }));
  return CUDA_SUCCESS;
}

void trim_pools(unsigned device) {
  for (const auto& pool : driver().pools)
    if (pool->device == device) trim(*pool, std::max(pool->threshold, pool->used));
}

}  // namespace simgpu

namespace {

CUresult alloc_async(CUdeviceptr* out, std::size_t size, CUmemoryPool handle, bool from_pool, CUstream stream_handle,
                     bool per_thread) {
  SIMGPU_CONTEXT();
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Stream> stream;
  if (const CUresult result = find_stream(stream_handle, *context, per_thread, stream); result != CUDA_SUCCESS)
    return result;
  Pool* pool =
      from_pool ? known_pool(handle) : driver().current_pool[static_cast<std::size_t>(stream->context->ordinal)];
  if (!pool || size == 0) return CUDA_ERROR_INVALID_VALUE;
  return allocate_pooled(*stream->context, *pool, size, out);
}

CUresult free_async(CUdeviceptr address, CUstream handle, bool per_thread) {
  SIMGPU_CONTEXT();
  std::shared_ptr<Stream> stream;
  if (const CUresult result = find_stream(handle, *context, per_thread, stream); result != CUDA_SUCCESS) return result;
  if (address == 0) return CUDA_SUCCESS;
  Range* range = driver().addresses.find(address);
  if (!range || range->base != address || range->ending) return CUDA_ERROR_INVALID_VALUE;
  if (range->kind == RangeKind::pooled) return free_pooled(range, stream);
  if (range->kind != RangeKind::device) return CUDA_ERROR_INVALID_VALUE;
  // Memory of cuMemAlloc may be freed in stream order too.
  range->ending = true;
  submit(stream, make_work([address, id = range->id] {
           const Lock inner(driver_mutex());
           Range* found = driver().addresses.find(address);
           if (found && found->id == id) deallocate(found);
           return CUDA_SUCCESS;
         }));
  return CUDA_SUCCESS;
}

int* reuse_policy(Pool& pool, CUmemPool_attribute attribute) {
  switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES: return &pool.follow_events;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC: return &pool.opportunistic;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES: return &pool.internal;
    default: return nullptr;
  }
}

std::uint64_t* amount(Pool& pool, CUmemPool_attribute attribute) {
  switch (attribute) {
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD: return &pool.threshold;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT: return &pool.reserved;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH: return &pool.reserved_high;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT: return &pool.used;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH: return &pool.used_high;
    default: return nullptr;
  }
}

CUresult get_pool(CUmemoryPool* out, CUdevice device, const std::vector<Pool*>& of) {
  const Lock lock(driver_mutex());
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  if (!known_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  *out = handle_of_pool(of[static_cast<std::size_t>(device)]);
  return CUDA_SUCCESS;
}

}  // namespace

SIMGPU_API cuMemAllocAsync(CUdeviceptr* out, std::size_t size, CUstream stream) {
  SIMGPU_ENTER(cuMemAllocAsync);
  return alloc_async(out, size, nullptr, false, stream, false);
}
SIMGPU_API cuMemAllocAsync_ptsz(CUdeviceptr* out, std::size_t size, CUstream stream) {
  SIMGPU_ENTER(cuMemAllocAsync_ptsz);
  return alloc_async(out, size, nullptr, false, stream, true);
}
SIMGPU_API cuMemAllocFromPoolAsync(CUdeviceptr* out, std::size_t size, CUmemoryPool pool, CUstream stream) {
  SIMGPU_ENTER(cuMemAllocFromPoolAsync);
  return alloc_async(out, size, pool, true, stream, false);
}
SIMGPU_API cuMemAllocFromPoolAsync_ptsz(CUdeviceptr* out, std::size_t size, CUmemoryPool pool, CUstream stream) {
  SIMGPU_ENTER(cuMemAllocFromPoolAsync_ptsz);
  return alloc_async(out, size, pool, true, stream, true);
}
SIMGPU_API cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
  SIMGPU_ENTER(cuMemFreeAsync);
  return free_async(address, stream, false);
}
SIMGPU_API cuMemFreeAsync_ptsz(CUdeviceptr address, CUstream stream) {
  SIMGPU_ENTER(cuMemFreeAsync_ptsz);
  return free_async(address, stream, true);
}

SIMGPU_API cuDeviceGetDefaultMemPool(CUmemoryPool* out, CUdevice device) {
  SIMGPU_ENTER(cuDeviceGetDefaultMemPool);
  return get_pool(out, device, driver().default_pool);
}
SIMGPU_API cuDeviceGetMemPool(CUmemoryPool* out, CUdevice device) {
  SIMGPU_ENTER(cuDeviceGetMemPool);
  return get_pool(out, device, driver().current_pool);
}
SIMGPU_API cuDeviceSetMemPool(CUdevice device, CUmemoryPool handle) {
  SIMGPU_ENTER(cuDeviceSetMemPool);
  const Lock lock(driver_mutex());
  Pool* pool = known_pool(handle);
  if (!known_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  if (!pool || pool->device != driver().cards[static_cast<std::size_t>(device)]) return CUDA_ERROR_INVALID_VALUE;
  driver().current_pool[static_cast<std::size_t>(device)] = pool;
  return CUDA_SUCCESS;
}

SIMGPU_API cuMemPoolCreate(CUmemoryPool* out, const CUmemPoolProps* properties) {
  SIMGPU_ENTER(cuMemPoolCreate);
  const Lock lock(driver_mutex());
  if (!out || !properties || properties->allocType != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
  if (properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
  if (!known_device(properties->location.id)) return CUDA_ERROR_INVALID_DEVICE;
  if (properties->handleTypes != CU_MEM_HANDLE_TYPE_NONE &&
      properties->handleTypes != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
    return CUDA_ERROR_INVALID_VALUE;
  Pool* pool = new_pool(properties->location.id, false);
  pool->properties.requestedHandleTypes = properties->handleTypes;
  pool->max_size = properties->maxSize;
  *out = handle_of_pool(pool);
  return CUDA_SUCCESS;
}
SIMGPU_API cuMemPoolDestroy(CUmemoryPool handle) {
  SIMGPU_ENTER(cuMemPoolDestroy);
  const Lock lock(driver_mutex());
  Pool* pool = known_pool(handle);
  if (!pool || pool->standard) return CUDA_ERROR_INVALID_VALUE;
  pool->destroyed = true;  // allocations from the pool stay until they are freed
  trim(*pool, 0);
  for (std::size_t i = 0; i < driver().cards.size(); ++i)
    if (driver().current_pool[i] == pool) driver().current_pool[i] = driver().default_pool[i];
  return CUDA_SUCCESS;
}
SIMGPU_API cuMemPoolTrimTo(CUmemoryPool handle, std::size_t keep) {
  SIMGPU_ENTER(cuMemPoolTrimTo);
  const Lock lock(driver_mutex());
  Pool* pool = known_pool(handle);
  if (!pool) return CUDA_ERROR_INVALID_VALUE;
  trim(*pool, keep);
  return CUDA_SUCCESS;
}
SIMGPU_API cuMemPoolGetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void* value) {
  SIMGPU_ENTER(cuMemPoolGetAttribute);
  const Lock lock(driver_mutex());
  Pool* pool = known_pool(handle);
  if (!pool || !value) return CUDA_ERROR_INVALID_VALUE;
  if (const int* policy = reuse_policy(*pool, attribute)) *static_cast<int*>(value) = *policy;
  else if (const std::uint64_t* bytes = amount(*pool, attribute)) *static_cast<std::uint64_t*>(value) = *bytes;
  else return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}
SIMGPU_API cuMemPoolSetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void* value) {
  SIMGPU_ENTER(cuMemPoolSetAttribute);
  const Lock lock(driver_mutex());
  Pool* pool = known_pool(handle);
  if (!pool || !value) return CUDA_ERROR_INVALID_VALUE;
  if (int* policy = reuse_policy(*pool, attribute)) {
    *policy = *static_cast<const int*>(value) != 0;
    return CUDA_SUCCESS;
  }
  const std::uint64_t wanted = *static_cast<const std::uint64_t*>(value);
  switch (attribute) {
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD: pool->threshold = wanted; return CUDA_SUCCESS;
    // A high-water mark can only be reset.
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
      if (wanted != 0) return CUDA_ERROR_INVALID_VALUE;
      pool->reserved_high = pool->reserved;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      if (wanted != 0) return CUDA_ERROR_INVALID_VALUE;
      pool->used_high = pool->used;
      return CUDA_SUCCESS;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
}
SIMGPU_API cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc* access, std::size_t count) {
  SIMGPU_ENTER(cuMemPoolSetAccess);
  const Lock lock(driver_mutex());
  Pool* pool = known_pool(handle);
  if (!pool || (!access && count != 0)) return CUDA_ERROR_INVALID_VALUE;
  for (std::size_t i = 0; i < count; ++i) {
    if (access[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
    if (!known_device(access[i].location.id)) return CUDA_ERROR_INVALID_DEVICE;
    const unsigned card = driver().cards[static_cast<std::size_t>(access[i].location.id)];
    // The card that has the memory always has access.
    if (card == pool->device && access[i].flags == CU_MEM_ACCESS_FLAGS_PROT_NONE) return CUDA_ERROR_INVALID_VALUE;
    pool->access[card] = access[i].flags;
  }
  return CUDA_SUCCESS;
}
SIMGPU_API cuMemPoolGetAccess(CUmemAccess_flags* flags, CUmemoryPool handle, CUmemLocation* location) {
  SIMGPU_ENTER(cuMemPoolGetAccess);
  const Lock lock(driver_mutex());
  const Pool* pool = known_pool(handle);
  if (!flags || !pool || !location || location->type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
  if (!known_device(location->id)) return CUDA_ERROR_INVALID_DEVICE;
  const auto at = pool->access.find(driver().cards[static_cast<std::size_t>(location->id)]);
  *flags = at == pool->access.end() ? CU_MEM_ACCESS_FLAGS_PROT_NONE : at->second;
  return CUDA_SUCCESS;
}
