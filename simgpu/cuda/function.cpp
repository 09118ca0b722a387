// SPDX-License-Identifier: Apache-2.0
// Functions and kernels: their attributes, occupancy, and linking.
#include <algorithm>
#include <memory>
#include <string>

#include "context.h"
#include "module.h"

using namespace simgpu;

namespace {

CUresult get_attribute(int* out, CUfunction_attribute attribute, const void* handle) {
  const Lock lock(driver_mutex());
  const Function* function = known_function(handle);
  if (!function) return CUDA_ERROR_INVALID_HANDLE;
  if (!out || attribute < 0 || attribute > CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE)
    return CUDA_ERROR_INVALID_VALUE;
  *out = function_attribute(*function, attribute);
  return CUDA_SUCCESS;
}

CUresult set_attribute(const void* handle, CUfunction_attribute attribute, int value) {
  const Lock lock(driver_mutex());
  Function* function = known_function(handle);
  if (!function) return CUDA_ERROR_INVALID_HANDLE;
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      if (value < 0 || value > max_shared_opt_in) return CUDA_ERROR_INVALID_VALUE;
      break;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      if (value < -1 || value > 100) return CUDA_ERROR_INVALID_VALUE;
      break;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE: break;
    default: return CUDA_ERROR_INVALID_VALUE;  // the others are facts of the code
  }
  function->attributes[attribute] = value;
  return CUDA_SUCCESS;
}

CUresult name_of(const char** out, const void* handle) {
  const Lock lock(driver_mutex());
  const Function* function = known_function(handle);
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  if (!function) return CUDA_ERROR_INVALID_HANDLE;
  *out = function->entry.name.c_str();
  return CUDA_SUCCESS;
}

CUresult parameter_of(const void* handle, std::size_t index, std::size_t* offset, std::size_t* size) {
  const Lock lock(driver_mutex());
  const Function* function = known_function(handle);
  if (!offset) return CUDA_ERROR_INVALID_VALUE;
  if (!function) return CUDA_ERROR_INVALID_HANDLE;
  if (index >= function->entry.parameters.size()) return CUDA_ERROR_INVALID_VALUE;
  *offset = function->entry.parameters[index].offset;
  if (size) *size = function->entry.parameters[index].size;
  return CUDA_SUCCESS;
}

CUresult known(const void* handle) {
  const Lock lock(driver_mutex());
  return known_function(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

// Threads, registers, shared memory and blocks limit the number; the scarcest decides.
int blocks_per_processor(const Function& function, int threads, std::size_t shared) {
  const int warps = (threads + 31) / 32;
  const int registers = function_attribute(function, CU_FUNC_ATTRIBUTE_NUM_REGS) * warps * 32;
  int blocks = std::min(max_threads_per_processor / (warps * 32), max_blocks_per_processor);
  blocks = std::min(blocks, registers_per_processor / std::max(registers, 1));
  const std::size_t need = shared + 1024;  // the driver's own share of every block
  if (need > max_shared_per_processor) return 0;
  return std::min(blocks, static_cast<int>(max_shared_per_processor / need));
}

CUresult occupancy(int* out, CUfunction handle, int threads, std::size_t shared, unsigned flags) {
  SIMGPU_CONTEXT();
  const Function* function = known_function(handle);
  if (!function) return CUDA_ERROR_INVALID_HANDLE;
  if (!out || threads <= 0 || flags > 1) return CUDA_ERROR_INVALID_VALUE;
  *out = threads > max_threads_per_block ? 0 : blocks_per_processor(*function, threads, shared);
  return CUDA_SUCCESS;
}

CUresult best_block(int* grid, int* block, CUfunction handle, CUoccupancyB2DSize shared_of, std::size_t shared,
                    int limit, unsigned flags) {
  SIMGPU_CONTEXT();
  const Function* function = known_function(handle);
  if (!function) return CUDA_ERROR_INVALID_HANDLE;
  if (!grid || !block || limit < 0 || flags > 1) return CUDA_ERROR_INVALID_VALUE;
  const int most = limit == 0 ? max_threads_per_block : std::min(limit, max_threads_per_block);
  int best = 0, best_threads = 0;
  for (int threads = most; threads > 0; threads = (threads - 1) / 32 * 32) {
    const std::size_t need = shared_of ? shared_of(threads) : shared;
    const int resident = blocks_per_processor(*function, threads, need) * threads;
    if (resident > best_threads) best = threads, best_threads = resident;
  }
  if (best == 0) return CUDA_ERROR_INVALID_VALUE;
  *block = best;
  *grid = best_threads / best * static_cast<int>(driver().table->get(Setting::multiprocessors));
  return CUDA_SUCCESS;
}

// ------------------------------------------------------------------------------------------- linking

// Linking joins PTX texts one after the other. Other inputs cannot be linked here.
struct Linker {
  std::string text;
};

Linker* linker_of(CUlinkState state) { return reinterpret_cast<Linker*>(state); }

CUresult link_create(CUlinkState* out) {
  SIMGPU_CONTEXT();
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  *out = reinterpret_cast<CUlinkState>(new Linker);
  return CUDA_SUCCESS;
}

CUresult link_add(CUlinkState state, int type, const void* data, std::size_t size) {
  constexpr int ptx = 1;
  if (!state) return CUDA_ERROR_INVALID_HANDLE;
  if (!data || size == 0) return CUDA_ERROR_INVALID_VALUE;
  if (type != ptx) return CUDA_ERROR_NOT_SUPPORTED;
  std::string text(static_cast<const char*>(data), size);
  text.resize(std::min(text.find('\0'), text.size()));
  Image image;
  if (const CUresult result = read_ptx(text, image); result != CUDA_SUCCESS) return result;
  linker_of(state)->text += text + "\n";
  return CUDA_SUCCESS;
}

}  // namespace

SIMGPU_API cuFuncGetAttribute(int* out, CUfunction_attribute attribute, CUfunction function) {
  SIMGPU_ENTER(cuFuncGetAttribute);
  return get_attribute(out, attribute, function);
}
SIMGPU_API cuKernelGetAttribute(int* out, CUfunction_attribute attribute, CUkernel kernel, CUdevice device) {
  SIMGPU_ENTER(cuKernelGetAttribute);
  if (!known_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  return get_attribute(out, attribute, kernel);
}
SIMGPU_API cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
  SIMGPU_ENTER(cuFuncSetAttribute);
  return set_attribute(function, attribute, value);
}
SIMGPU_API cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel kernel, CUdevice device) {
  SIMGPU_ENTER(cuKernelSetAttribute);
  if (!known_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  return set_attribute(kernel, attribute, value);
}
SIMGPU_API cuFuncSetCacheConfig(CUfunction function, int) {
  SIMGPU_ENTER(cuFuncSetCacheConfig);
  return known(function);
}
SIMGPU_API cuFuncSetSharedMemConfig(CUfunction function, int) {
  SIMGPU_ENTER(cuFuncSetSharedMemConfig);
  return known(function);
}
SIMGPU_API cuKernelSetCacheConfig(CUkernel kernel, int, CUdevice device) {
  SIMGPU_ENTER(cuKernelSetCacheConfig);
  return known_device(device) ? known(kernel) : CUDA_ERROR_INVALID_DEVICE;
}
SIMGPU_API cuFuncGetModule(CUmodule* out, CUfunction handle) {
  SIMGPU_ENTER(cuFuncGetModule);
  const Lock lock(driver_mutex());
  const Function* function = known_function(handle);
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  if (!function) return CUDA_ERROR_INVALID_HANDLE;
  *out = reinterpret_cast<CUmodule>(function->code);
  return CUDA_SUCCESS;
}
SIMGPU_API cuFuncGetName(const char** out, CUfunction function) {
  SIMGPU_ENTER(cuFuncGetName);
  return name_of(out, function);
}
SIMGPU_API cuKernelGetName(const char** out, CUkernel kernel) {
  SIMGPU_ENTER(cuKernelGetName);
  return name_of(out, kernel);
}
SIMGPU_API cuFuncGetParamInfo(CUfunction function, std::size_t index, std::size_t* offset, std::size_t* size) {
  SIMGPU_ENTER(cuFuncGetParamInfo);
  return parameter_of(function, index, offset, size);
}
SIMGPU_API cuKernelGetParamInfo(CUkernel kernel, std::size_t index, std::size_t* offset, std::size_t* size) {
  SIMGPU_ENTER(cuKernelGetParamInfo);
  return parameter_of(kernel, index, offset, size);
}
SIMGPU_API cuFuncIsLoaded(int* state, CUfunction function) {
  SIMGPU_ENTER(cuFuncIsLoaded);
  if (!state) return CUDA_ERROR_INVALID_VALUE;
  *state = 1;
  return known(function);
}
SIMGPU_API cuFuncLoad(CUfunction function) {
  SIMGPU_ENTER(cuFuncLoad);
  return known(function);
}

SIMGPU_API cuOccupancyMaxActiveBlocksPerMultiprocessor(int* out, CUfunction function, int threads, std::size_t shared) {
  SIMGPU_ENTER(cuOccupancyMaxActiveBlocksPerMultiprocessor);
  return occupancy(out, function, threads, shared, 0);
}
SIMGPU_API cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* out, CUfunction function, int threads,
                                                                std::size_t shared, unsigned flags) {
  SIMGPU_ENTER(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags);
  return occupancy(out, function, threads, shared, flags);
}
SIMGPU_API cuOccupancyMaxPotentialBlockSize(int* grid, int* block, CUfunction function, CUoccupancyB2DSize shared_of,
                                            std::size_t shared, int limit) {
  SIMGPU_ENTER(cuOccupancyMaxPotentialBlockSize);
  return best_block(grid, block, function, shared_of, shared, limit, 0);
}
SIMGPU_API cuOccupancyMaxPotentialBlockSizeWithFlags(int* grid, int* block, CUfunction function,
                                                     CUoccupancyB2DSize shared_of, std::size_t shared, int limit,
                                                     unsigned flags) {
  SIMGPU_ENTER(cuOccupancyMaxPotentialBlockSizeWithFlags);
  return best_block(grid, block, function, shared_of, shared, limit, flags);
}
SIMGPU_API cuOccupancyAvailableDynamicSMemPerBlock(std::size_t* out, CUfunction handle, int blocks, int threads) {
  SIMGPU_ENTER(cuOccupancyAvailableDynamicSMemPerBlock);
  SIMGPU_CONTEXT();
  if (!known_function(handle)) return CUDA_ERROR_INVALID_HANDLE;
  if (!out || blocks <= 0 || threads <= 0 || threads > max_threads_per_block) return CUDA_ERROR_INVALID_VALUE;
  const int each = max_shared_per_processor / blocks - 1024;
  *out = static_cast<std::size_t>(std::clamp(each, 0, max_shared_opt_in));
  return CUDA_SUCCESS;
}

SIMGPU_API cuLinkCreate_v2(unsigned, int*, void**, CUlinkState* out) {
  SIMGPU_ENTER(cuLinkCreate_v2);
  return link_create(out);
}
SIMGPU_API cuLinkCreate(unsigned, int*, void**, CUlinkState* out) {
  SIMGPU_ENTER(cuLinkCreate);
  return link_create(out);
}
SIMGPU_API cuLinkAddData_v2(CUlinkState state, int type, void* data, std::size_t size, const char*, unsigned, int*,
                            void**) {
  SIMGPU_ENTER(cuLinkAddData_v2);
  return link_add(state, type, data, size);
}
SIMGPU_API cuLinkAddData(CUlinkState state, int type, void* data, std::size_t size, const char*, unsigned, int*,
                         void**) {
  SIMGPU_ENTER(cuLinkAddData);
  return link_add(state, type, data, size);
}
SIMGPU_API cuLinkComplete(CUlinkState state, void** image, std::size_t* size) {
  SIMGPU_ENTER(cuLinkComplete);
  if (!state) return CUDA_ERROR_INVALID_HANDLE;
  if (!image || !size) return CUDA_ERROR_INVALID_VALUE;
  *image = linker_of(state)->text.data();
  *size = linker_of(state)->text.size() + 1;
  return CUDA_SUCCESS;
}
SIMGPU_API cuLinkDestroy(CUlinkState state) {
  SIMGPU_ENTER(cuLinkDestroy);
  if (!state) return CUDA_ERROR_INVALID_HANDLE;
  delete linker_of(state);
  return CUDA_SUCCESS;
}
