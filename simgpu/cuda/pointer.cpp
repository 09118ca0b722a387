// SPDX-License-Identifier: Apache-2.0
// Attributes of pointers.
#include "context.h"
#include "memory.h"

using namespace simgpu;

namespace {

struct Facts {
  const Range* range = nullptr;
  std::uint64_t address = 0;
  const Mapping* mapping = nullptr;  // for a reservation: the mapping at this address
  std::uint64_t mapping_base = 0;
  bool host() const { return range->kind == RangeKind::host || range->kind == RangeKind::registered; }
};

Facts facts_of(CUdeviceptr address) {
  Facts facts;
  facts.address = address;
  facts.range = driver().addresses.find(address);
  if (facts.range && facts.range->ending) facts.range = nullptr;
  if (!facts.range || facts.range->kind != RangeKind::reservation) return facts;
  auto at = facts.range->mappings.upper_bound(address);
  if (at != facts.range->mappings.begin() && address - (--at)->first < at->second.size) {
    facts.mapping = &at->second;
    facts.mapping_base = at->first;
  }
  return facts;
}

template <typename T>
CUresult give(void* data, T value) {
  *static_cast<T*>(data) = value;
  return CUDA_SUCCESS;
}

int ordinal_of(unsigned card) {
  for (std::size_t i = 0; i < driver().cards.size(); ++i)
    if (driver().cards[i] == card) return static_cast<int>(i);
  return -2;
}

CUresult access_flags(const Facts& facts, const Context& context, void* data) {
  if (facts.range->kind != RangeKind::reservation) return give<int>(data, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  if (!facts.mapping) return CUDA_ERROR_INVALID_VALUE;
  const auto found = facts.mapping->access.find(context.device);
  return give<int>(data, found == facts.mapping->access.end() ? CU_MEM_ACCESS_FLAGS_PROT_NONE : found->second);
}

// Attributes that exist only for some kinds of range or mapping.
CUresult of_kind(const Facts& facts, const Context& context, CUpointer_attribute attribute, void* data) {
  const Range& range = *facts.range;
  const bool mapped = range.kind == RangeKind::reservation;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      if (!facts.host() && range.kind != RangeKind::managed) return CUDA_ERROR_INVALID_VALUE;
      return give<void*>(data, pointer_at(facts.address));
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS: return CUDA_ERROR_NOT_SUPPORTED;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
      return mapped ? CUDA_ERROR_NOT_SUPPORTED : give<int>(data, range.sync_memops ? 1 : 0);
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE: return give<int>(data, range.kind == RangeKind::device);
    case CU_POINTER_ATTRIBUTE_MAPPED: return give<int>(data, !mapped || facts.mapping ? 1 : 0);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES: {
      std::uint64_t types = 0;
      if (facts.mapping) types = facts.mapping->physical->properties.requestedHandleTypes;
      if (range.kind == RangeKind::pooled) types = range.pool->properties.requestedHandleTypes;
      return give<std::uint64_t>(data, types);
    }
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE: return give<int>(data, 0);
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS: return access_flags(facts, context, data);
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      return give<CUmemoryPool>(data, reinterpret_cast<CUmemoryPool>(range.pool));
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
      return give<std::size_t>(data, facts.mapping ? facts.mapping->size : range.size);
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
      return give<CUdeviceptr>(data, facts.mapping ? facts.mapping_base : range.base);
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID: return give<unsigned long long>(data, range.id);
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE: return give<int>(data, 0);
    default: return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult attribute_of(const Facts& facts, const Context& context, CUpointer_attribute attribute, void* data) {
  const Range& range = *facts.range;
  const bool mapped = range.kind == RangeKind::reservation;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      // Mapped and pooled memory belong to no context.
      if (mapped || range.kind == RangeKind::pooled) return give<CUcontext>(data, nullptr);
      return give<CUcontext>(data, handle_of(range.context));
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return give<unsigned>(data, facts.host() ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE);
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER: return give<CUdeviceptr>(data, facts.address);
    case CU_POINTER_ATTRIBUTE_BUFFER_ID: return give<unsigned long long>(data, range.id);
    case CU_POINTER_ATTRIBUTE_IS_MANAGED: return give<int>(data, range.kind == RangeKind::managed ? 1 : 0);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return give<int>(data, ordinal_of(facts.mapping ? facts.mapping->physical->device : range.device));
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      return give<CUdeviceptr>(data, facts.mapping ? facts.mapping_base : range.base);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      return give<std::size_t>(data, facts.mapping ? facts.mapping->size : range.size);
    default: return of_kind(facts, context, attribute, data);
  }
}

// Values that cuPointerGetAttributes returns for an unknown pointer: zeroes, and no error.
void say_unknown(CUpointer_attribute attribute, void* data) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE: give<int>(data, 0); break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: give<int>(data, -2); break;
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS: break;
    default: give<std::uint64_t>(data, 0);
  }
}

}  // namespace

SIMGPU_API cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr address) {
  SIMGPU_ENTER(cuPointerGetAttribute);
  SIMGPU_CONTEXT();
  if (!data) return CUDA_ERROR_INVALID_VALUE;
  const Facts facts = facts_of(address);
  return facts.range ? attribute_of(facts, *context, attribute, data) : CUDA_ERROR_INVALID_VALUE;
}

SIMGPU_API cuPointerGetAttributes(unsigned count, CUpointer_attribute* attributes, void** data, CUdeviceptr address) {
  SIMGPU_ENTER(cuPointerGetAttributes);
  SIMGPU_CONTEXT();
  if (count == 0 || !attributes || !data) return CUDA_ERROR_INVALID_VALUE;
  const Facts facts = facts_of(address);
  for (unsigned i = 0; i < count; ++i) {
    if (!data[i]) return CUDA_ERROR_INVALID_VALUE;
    if (!facts.range || attribute_of(facts, *context, attributes[i], data[i]) != CUDA_SUCCESS)
      say_unknown(attributes[i], data[i]);
  }
  return CUDA_SUCCESS;
}

SIMGPU_API cuPointerSetAttribute(const void* value, CUpointer_attribute attribute, CUdeviceptr address) {
  SIMGPU_ENTER(cuPointerSetAttribute);
  SIMGPU_CONTEXT();
  if (!value || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS) return CUDA_ERROR_INVALID_VALUE;
  Range* range = driver().addresses.find(address);
  if (!range || range->ending) return CUDA_ERROR_INVALID_VALUE;
  if (range->kind == RangeKind::reservation || range->kind == RangeKind::pooled) return CUDA_ERROR_NOT_SUPPORTED;
  range->sync_memops = *static_cast<const int*>(value) != 0;
  return CUDA_SUCCESS;
}
