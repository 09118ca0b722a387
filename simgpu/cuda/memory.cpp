// SPDX-License-Identifier: Apache-2.0
// Device memory: allocations of contexts, and the memory behind an address.
#include "memory.h"

#include <algorithm>

#include "context.h"
#include "work.h"

using namespace simgpu;

namespace simgpu {
namespace {

constexpr std::uint64_t small_unit = 512;
constexpr std::uint64_t small_limit = 1 << 20;  // up to this size allocations share blocks of a granule
constexpr std::uint64_t units_per_block = granule / small_unit;

// First run of free units, or the number of units if there is none.
std::uint64_t find_run(const SmallBlock& block, std::uint64_t units) {
  if (block.free_units < units) return units_per_block;
  std::uint64_t run = 0;
  for (std::uint64_t i = 0; i < units_per_block; ++i) {
    run = block.taken[i] ? 0 : run + 1;
    if (run == units) return i + 1 - units;
  }
  return units_per_block;
}

SmallBlock* new_block(Context& context) {
  auto physical = Physical::create(context.device, granule);
  if (!physical) return nullptr;
  const std::uint64_t base = driver().addresses.reserve(granule, granule);
  if (base == 0) return nullptr;
  auto block = std::make_unique<SmallBlock>();
  block->physical = std::move(physical);
  block->base = base;
  block->taken.assign(units_per_block, false);
  block->free_units = units_per_block;
  context.small.push_back(std::move(block));
  return context.small.back().get();
}

Range* make_range(Context& context, std::uint64_t base, std::uint64_t size, std::uint64_t reserved) {
  auto range = std::make_unique<Range>();
  range->base = base;
  range->size = size;
  range->reserved = reserved;
  range->context = &context;
  range->device = context.device;
  return driver().addresses.add(std::move(range));
}

CUresult allocate_small(Context& context, std::uint64_t size, Range*& range) {
  const std::uint64_t units = round_up(size, small_unit) / small_unit;
  SmallBlock* block = nullptr;
  std::uint64_t at = units_per_block;
  for (const auto& candidate : context.small)
    if ((at = find_run(*candidate, units)) != units_per_block) {
      block = candidate.get();
      break;
    }
  if (!block) {
    block = new_block(context);
    if (!block) return CUDA_ERROR_OUT_OF_MEMORY;
    at = 0;
  }
  std::fill_n(block->taken.begin() + static_cast<std::ptrdiff_t>(at), units, true);
  block->free_units -= units;
  range = make_range(context, block->base + at * small_unit, size, units * small_unit);
  range->physical = block->physical;
  range->offset = at * small_unit;
  return CUDA_SUCCESS;
}

void deallocate_small(Context& context, const Range& range) {
  const auto at = std::find_if(context.small.begin(), context.small.end(),
                               [&](const auto& block) { return block->physical == range.physical; });
  if (at == context.small.end()) return;
  auto& block = **at;
  const std::uint64_t units = range.reserved / small_unit;
  std::fill_n(block.taken.begin() + static_cast<std::ptrdiff_t>(range.offset / small_unit), units, false);
  block.free_units += units;
  if (block.free_units != units_per_block) return;
  driver().addresses.release(block.base, granule);
  context.small.erase(at);
}

bool resolve_reservation(const Range& range, std::uint64_t address, std::uint64_t size, bool write, unsigned card,
                         std::vector<Segment>& segments) {
  while (size != 0) {
    auto at = range.mappings.upper_bound(address);
    if (at == range.mappings.begin()) return false;
    const auto& [base, mapping] = *--at;
    if (address - base >= mapping.size) return false;
    const auto access = mapping.access.find(card);
    const int needed = write ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_READ;
    if (access == mapping.access.end() || (access->second & needed) != needed) return false;
    const std::uint64_t part = std::min(size, base + mapping.size - address);
    segments.push_back({mapping.physical, address - base, nullptr, part, mapping.physical->device, true});
    address += part, size -= part;
  }
  return true;
}

}  // namespace

CUresult allocate(Context& context, std::uint64_t size, Range*& range) {
  if (driver().table->meet(FaultKind::alloc_fail, static_cast<int>(context.device))) return CUDA_ERROR_OUT_OF_MEMORY;
  if (size > std::uint64_t{1} << 46) return CUDA_ERROR_OUT_OF_MEMORY;
  if (size <= small_limit) return allocate_small(context, size, range);
  const std::uint64_t bytes = round_up(size, granule);
  auto physical = Physical::create(context.device, bytes);
  if (!physical) return CUDA_ERROR_OUT_OF_MEMORY;
  const std::uint64_t base = driver().addresses.reserve(bytes, granule);
  if (base == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  range = make_range(context, base, size, bytes);
  range->physical = std::move(physical);
  return CUDA_SUCCESS;
}

void deallocate(Range* range) {
  if (range->kind == RangeKind::device && range->reserved < granule) deallocate_small(*range->context, *range);
  else driver().addresses.release(range->base, range->reserved);
  driver().addresses.remove(range);
}

void free_all_of(Context& context) {
  std::vector<Range*> mine;
  for (const auto& [base, range] : driver().addresses.all())
    if (range->context == &context && range->kind == RangeKind::device) mine.push_back(range.get());
  for (Range* range : mine) deallocate(range);
  free_host_of(context);
}

bool nameable(std::uint64_t address, std::uint64_t size) {
  const Range* range = driver().addresses.find(address);
  return range && !range->ending && range->size - (address - range->base) >= size;
}

bool pinned(std::uint64_t address, std::uint64_t size) {
  const Range* range = driver().addresses.find(address);
  return range && (range->kind == RangeKind::host || range->kind == RangeKind::registered) &&
         range->size - (address - range->base) >= size;
}

bool resolve(std::uint64_t address, std::uint64_t size, bool write, const Context& by, std::vector<Segment>& segments) {
  while (size != 0) {
    const Range* range = driver().addresses.find(address);
    if (!range) {
      // Ordinary memory of the program, up to the next range of the driver.
      if (driver().addresses.ours(address)) return false;
      const auto after = driver().addresses.all().upper_bound(address);
      std::uint64_t part = size;
      if (after != driver().addresses.all().end()) part = std::min(part, after->first - address);
      segments.push_back({nullptr, 0, bytes_at(address), part, by.device});
      address += part, size -= part;
      continue;
    }
    const std::uint64_t within = address - range->base, part = std::min(size, range->size - within);
    switch (range->kind) {
      case RangeKind::reservation:
        if (!resolve_reservation(*range, address, part, write, by.device, segments)) return false;
        break;
      case RangeKind::device:
      case RangeKind::pooled:
        segments.push_back({range->physical, range->offset + within, nullptr, part, range->device});
        break;
      default: segments.push_back({nullptr, 0, bytes_at(address), part, by.device});
    }
    address += part, size -= part;
  }
  return true;
}

}  // namespace simgpu

namespace {

CUresult free_range(Lock& lock, CUdeviceptr address) {
  if (address == 0) return CUDA_SUCCESS;
  Range* range = driver().addresses.find(address);
  if (!range || range->base != address || range->ending) return CUDA_ERROR_INVALID_VALUE;
  Context* owner = range->context;
  switch (range->kind) {
    case RangeKind::device:
    case RangeKind::managed:
    case RangeKind::pooled: break;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
  // No work may still use the memory: freeing waits for all work of the context.
  if (const CUresult result = wait_for_context(lock, *owner); result != CUDA_SUCCESS) return result;
  range = driver().addresses.find(address);
  if (!range || range->base != address) return CUDA_ERROR_INVALID_VALUE;  // another thread freed it meanwhile
  if (range->kind == RangeKind::pooled) return free_pooled(range, nullptr);
  if (range->kind == RangeKind::managed) return free_managed(range);
  deallocate(range);
  return CUDA_SUCCESS;
}

CUresult get_info(std::size_t* free_bytes, std::size_t* total) {
  SIMGPU_CONTEXT();
  const auto use = driver().table->use(context->device);
  if (free_bytes) *free_bytes = use.available();
  if (total) *total = use.capacity();
  return free_bytes && total ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

SIMGPU_API cuMemGetInfo_v2(std::size_t* free_bytes, std::size_t* total) {
  SIMGPU_ENTER(cuMemGetInfo_v2);
  return get_info(free_bytes, total);
}

SIMGPU_API cuMemAlloc_v2(CUdeviceptr* out, std::size_t size) {
  SIMGPU_ENTER(cuMemAlloc_v2);
  SIMGPU_CONTEXT();
  if (const CUresult result = refuse_unsafe(); result != CUDA_SUCCESS) return result;
  if (!out || size == 0) return CUDA_ERROR_INVALID_VALUE;
  Range* range = nullptr;
  const CUresult result = allocate(*context, size, range);
  if (result == CUDA_SUCCESS) *out = range->base;
  return result;
}

SIMGPU_API cuMemAllocPitch_v2(CUdeviceptr* out, std::size_t* pitch, std::size_t width, std::size_t height,
                              unsigned element) {
  SIMGPU_ENTER(cuMemAllocPitch_v2);
  SIMGPU_CONTEXT();
  if (!out || !pitch || width == 0 || height == 0) return CUDA_ERROR_INVALID_VALUE;
  if (element != 4 && element != 8 && element != 16) return CUDA_ERROR_INVALID_VALUE;
  const std::uint64_t row = round_up(width, 512);
  if (row < width || height > (std::uint64_t{1} << 46) / row) return CUDA_ERROR_OUT_OF_MEMORY;
  Range* range = nullptr;
  const CUresult result = allocate(*context, row * height, range);
  if (result != CUDA_SUCCESS) return result;
  *out = range->base;
  *pitch = row;
  return CUDA_SUCCESS;
}

SIMGPU_API cuMemFree_v2(CUdeviceptr address) {
  SIMGPU_ENTER(cuMemFree_v2);
  SIMGPU_CONTEXT();
  return free_range(lock, address);
}

SIMGPU_API cuMemGetAddressRange_v2(CUdeviceptr* base, std::size_t* size, CUdeviceptr address) {
  SIMGPU_ENTER(cuMemGetAddressRange_v2);
  SIMGPU_CONTEXT();
  const Range* range = driver().addresses.find(address);
  if (!range || range->ending) return CUDA_ERROR_NOT_FOUND;
  std::uint64_t from = range->base, bytes = range->size;
  if (range->kind == RangeKind::reservation) {
    // For mapped memory only the mapping itself is known, not its neighbours.
    auto at = range->mappings.upper_bound(address);
    if (at == range->mappings.begin() || address - (--at)->first >= at->second.size) return CUDA_ERROR_NOT_FOUND;
    from = at->first, bytes = at->second.size;
  }
  if (base) *base = from;
  if (size) *size = bytes;
  return CUDA_SUCCESS;
}
