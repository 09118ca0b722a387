// SPDX-License-Identifier: Apache-2.0
#include "simgpu/tools/cuda_driver.h"

#include <fmt/format.h>

#include <dlfcn.h>

#include <algorithm>
#include <array>

namespace simgpu::tools {

template <typename Function>
void CudaDriver::find(Function& into, const char* name) {
  void* symbol = dlsym(library_, name);
  if (symbol == nullptr) throw CudaError(fmt::format("the CUDA driver has no {}", name), -1);
  into = reinterpret_cast<Function>(symbol);
}

CudaDriver::CudaDriver() {
  library_ = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library_ == nullptr) {
    const char* why = dlerror();  // NOLINT(concurrency-mt-unsafe): one thread, by contract
    throw CudaError(fmt::format("no CUDA driver: {}", why != nullptr ? why : "libcuda.so.1 does not load"), -1);
  }
  find(init_, "cuInit");
  find(get_error_name_, "cuGetErrorName");
  find(get_error_string_, "cuGetErrorString");
  find(device_get_count_, "cuDeviceGetCount");
  find(device_get_, "cuDeviceGet");
  find(device_get_name_, "cuDeviceGetName");
  find(primary_retain_, "cuDevicePrimaryCtxRetain");
  find(primary_release_, "cuDevicePrimaryCtxRelease_v2");
  find(set_current_, "cuCtxSetCurrent");
  find(mem_get_info_, "cuMemGetInfo_v2");
  find(mem_alloc_, "cuMemAlloc_v2");
  find(mem_free_, "cuMemFree_v2");
  find(copy_to_host_, "cuMemcpyDtoH_v2");
  find(copy_to_device_, "cuMemcpyHtoD_v2");
  find(memset_, "cuMemsetD8_v2");
  find(stream_create_, "cuStreamCreate");
  find(stream_destroy_, "cuStreamDestroy_v2");
  find(stream_synchronize_, "cuStreamSynchronize");
  find(context_synchronize_, "cuCtxSynchronize");
  find(module_load_, "cuModuleLoadData");
  find(module_unload_, "cuModuleUnload");
  find(module_get_function_, "cuModuleGetFunction");
  find(launch_, "cuLaunchKernel");
  check(init_(0), "cuInit");
}

void CudaDriver::check(int result, const char* call) const {
  if (result == 0) return;
  const char* name = nullptr;
  const char* text = nullptr;
  if (get_error_name_(result, &name) != 0 || name == nullptr) name = "unknown error";
  if (get_error_string_(result, &text) != 0 || text == nullptr) text = "no description";
  throw CudaError(fmt::format("{}: {} ({}): {}", call, name, result, text), result);
}

int CudaDriver::device_count() const {
  int count = 0;
  check(device_get_count_(&count), "cuDeviceGetCount");
  return count;
}

Device CudaDriver::device(int ordinal) const {
  Device device = 0;
  check(device_get_(&device, ordinal), "cuDeviceGet");
  return device;
}

std::string CudaDriver::name(Device device) const {
  std::array<char, 256> name{};
  check(device_get_name_(name.data(), static_cast<int>(name.size()), device), "cuDeviceGetName");
  return name.data();
}

Handle CudaDriver::retain_primary_context(Device device) const {
  Handle context = nullptr;
  check(primary_retain_(&context, device), "cuDevicePrimaryCtxRetain");
  check(set_current_(context), "cuCtxSetCurrent");
  return context;
}

void CudaDriver::release_primary_context(Device device) const {
  check(primary_release_(device), "cuDevicePrimaryCtxRelease");
}

void CudaDriver::memory_info(std::size_t& free_bytes, std::size_t& total_bytes) const {
  check(mem_get_info_(&free_bytes, &total_bytes), "cuMemGetInfo");
}

DevicePointer CudaDriver::allocate(std::size_t bytes) const {
  DevicePointer pointer = 0;
  check(mem_alloc_(&pointer, bytes), "cuMemAlloc");
  return pointer;
}

void CudaDriver::free(DevicePointer pointer) const { check(mem_free_(pointer), "cuMemFree"); }

void CudaDriver::copy_to_host(void* to, DevicePointer from, std::size_t bytes) const {
  check(copy_to_host_(to, from, bytes), "cuMemcpyDtoH");
}

void CudaDriver::copy_to_device(DevicePointer to, const void* from, std::size_t bytes) const {
  check(copy_to_device_(to, from, bytes), "cuMemcpyHtoD");
}

void CudaDriver::clear(DevicePointer to, std::size_t bytes) const {
  check(memset_(to, 0, bytes), "cuMemsetD8");
  // The memset is on the legacy stream, which a non-blocking stream does not wait for.
  check(context_synchronize_(), "cuCtxSynchronize");
}

Handle CudaDriver::create_stream() const {
  constexpr unsigned non_blocking = 1;
  Handle stream = nullptr;
  check(stream_create_(&stream, non_blocking), "cuStreamCreate");
  return stream;
}

void CudaDriver::destroy_stream(Handle stream) const { check(stream_destroy_(stream), "cuStreamDestroy"); }
void CudaDriver::synchronize(Handle stream) const { check(stream_synchronize_(stream), "cuStreamSynchronize"); }

Handle CudaDriver::load_module(const char* text) const {
  Handle module = nullptr;
  check(module_load_(&module, text), "cuModuleLoadData");
  return module;
}

void CudaDriver::unload_module(Handle module) const { check(module_unload_(module), "cuModuleUnload"); }

Handle CudaDriver::function(Handle module, const char* name) const {
  Handle function = nullptr;
  check(module_get_function_(&function, module, name), "cuModuleGetFunction");
  return function;
}

void CudaDriver::launch(Handle function, std::uint64_t threads, Handle stream, std::uint64_t* arguments,
                        int count) const {
  constexpr std::uint64_t block = 256, most_blocks = 4096;
  std::array<void*, 8> pointers{};
  for (int i = 0; i < count; ++i) pointers.at(static_cast<std::size_t>(i)) = arguments + i;
  const auto size = static_cast<unsigned>(std::clamp<std::uint64_t>(threads, 1, block));
  const auto blocks = static_cast<unsigned>(std::clamp<std::uint64_t>((threads + block - 1) / block, 1, most_blocks));
  check(launch_(function, blocks, 1, 1, size, 1, 1, 0, stream, pointers.data(), nullptr), "cuLaunchKernel");
}

}  // namespace simgpu::tools
