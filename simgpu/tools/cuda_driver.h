// SPDX-License-Identifier: Apache-2.0
// The CUDA driver API as a client sees it: any libcuda.so.1 that is found at run time, with its calls as members. The
// declarations are our own. A failing call throws CudaError. Used on one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace simgpu::tools {

using DevicePointer = unsigned long long;
using Device = int;
using Handle = void*;  // context, stream, module or function: opaque

class CudaError : public std::runtime_error {
 public:
  CudaError(const std::string& what, int code) : std::runtime_error(what), code_(code) {}
  int code() const { return code_; }  // CUresult; -1 if the library itself is at fault

 private:
  int code_;
};

inline constexpr int out_of_memory = 2;  // CUDA_ERROR_OUT_OF_MEMORY

class CudaDriver {
 public:
  CudaDriver();             // calls dlopen, looks up every function, and calls cuInit
  ~CudaDriver() = default;  // the library stays loaded: a driver does not survive dlclose
  CudaDriver(const CudaDriver&) = delete;
  CudaDriver& operator=(const CudaDriver&) = delete;

  int device_count() const;
  Device device(int ordinal) const;
  std::string name(Device device) const;
  Handle retain_primary_context(Device device) const;  // makes the context and makes it current
  void release_primary_context(Device device) const;
  void memory_info(std::size_t& free_bytes, std::size_t& total_bytes) const;

  DevicePointer allocate(std::size_t bytes) const;
  void free(DevicePointer pointer) const;
  void copy_to_host(void* to, DevicePointer from, std::size_t bytes) const;
  void copy_to_device(DevicePointer to, const void* from, std::size_t bytes) const;
  void clear(DevicePointer to, std::size_t bytes) const;  // writes zeroes, before anything that is launched later

  Handle create_stream() const;  // non-blocking
  void destroy_stream(Handle stream) const;
  void synchronize(Handle stream) const;
  Handle load_module(const char* text) const;
  void unload_module(Handle module) const;
  Handle function(Handle module, const char* name) const;
  // Launches a kernel. Arguments are 8 bytes each; `threads` is the total, in blocks of at most 256.
  void launch(Handle function, std::uint64_t threads, Handle stream, std::uint64_t* arguments, int count) const;

 private:
  template <typename Function>
  void find(Function& into, const char* name);
  void check(int result, const char* call) const;

  void* library_ = nullptr;
  int (*init_)(unsigned) = nullptr;
  int (*get_error_name_)(int, const char**) = nullptr;
  int (*get_error_string_)(int, const char**) = nullptr;
  int (*device_get_count_)(int*) = nullptr;
  int (*device_get_)(Device*, int) = nullptr;
  int (*device_get_name_)(char*, int, Device) = nullptr;
  int (*primary_retain_)(Handle*, Device) = nullptr;
  int (*primary_release_)(Device) = nullptr;
  int (*set_current_)(Handle) = nullptr;
  int (*mem_get_info_)(std::size_t*, std::size_t*) = nullptr;
  int (*mem_alloc_)(DevicePointer*, std::size_t) = nullptr;
  int (*mem_free_)(DevicePointer) = nullptr;
  int (*copy_to_host_)(void*, DevicePointer, std::size_t) = nullptr;
  int (*copy_to_device_)(DevicePointer, const void*, std::size_t) = nullptr;
  int (*memset_)(DevicePointer, unsigned char, std::size_t) = nullptr;
  int (*stream_create_)(Handle*, unsigned) = nullptr;
  int (*stream_destroy_)(Handle) = nullptr;
  int (*stream_synchronize_)(Handle) = nullptr;
  int (*context_synchronize_)() = nullptr;
  int (*module_load_)(Handle*, const void*) = nullptr;
  int (*module_unload_)(Handle) = nullptr;
  int (*module_get_function_)(Handle*, Handle, const char*) = nullptr;
  int (*launch_)(Handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Handle, void**,
                 void**) = nullptr;
};

}  // namespace simgpu::tools
