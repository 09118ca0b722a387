// SPDX-License-Identifier: Apache-2.0
#include "module.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <unordered_set>

#include "context.h"
#include "memory.h"

using namespace simgpu;

namespace simgpu {
namespace {

std::vector<std::unique_ptr<Code>>& codes() {
  static auto* all = new std::vector<std::unique_ptr<Code>>;
  return *all;
}

// All functions of all modules and libraries: launches look here.
std::unordered_set<const void*>& function_handles() {
  static auto* all = new std::unordered_set<const void*>;
  return *all;
}

Code* known_code(const void* handle, bool library) {
  for (const auto& code : codes())
    if (code.get() == handle && code->library == library) return code.get();
  return nullptr;
}

void forget(Code* code) {
  for (const auto& [key, address] : code->variables)
    if (Range* range = driver().addresses.find(address)) deallocate(range);
  for (const auto& [name, function] : code->functions) function_handles().erase(function.get());
  std::erase_if(codes(), [&](const auto& one) { return one.get() == code; });
}

Function* function_of(Code& code, const char* name) {
  auto& found = code.functions[name];
  if (found) return found.get();
  const auto at = std::find_if(code.image.entries.begin(), code.image.entries.end(),
                               [&](const Entry& entry) { return entry.name == name; });
  if (at == code.image.entries.end() && !code.image.any_name) {
    code.functions.erase(name);
    return nullptr;
  }
  found = std::make_unique<Function>();
  function_handles().insert(found.get());
  found->code = &code;
  found->entry = at == code.image.entries.end() ? Entry{name, {}, false, 0, 0, 0} : *at;
  return found.get();
}

// Options that return a log return an empty log.
void answer_options(unsigned count, const int* options, void** values) {
  constexpr int info_log_bytes = 4, error_log_bytes = 6;
  for (unsigned i = 0; options && values && i < count; ++i)
    if (options[i] == info_log_bytes || options[i] == error_log_bytes) values[i] = nullptr;
}

CUresult load(const void* image, Context* context, bool library, Code*& out) {
  auto code = std::make_unique<Code>();
  if (const CUresult result = read_image(image, code->image); result != CUDA_SUCCESS) return result;
  code->context = context;
  code->library = library;
  out = code.get();
  codes().push_back(std::move(code));
  return CUDA_SUCCESS;
}

CUresult variable_of(Code& code, Context& context, const char* name, CUdeviceptr* address, std::size_t* bytes) {
  const auto at = std::find_if(code.image.variables.begin(), code.image.variables.end(),
                               [&](const Variable& variable) { return variable.name == name; });
  if (at == code.image.variables.end()) return CUDA_ERROR_NOT_FOUND;
  auto& known = code.variables[{&context, name}];
  if (known == 0) {
    Range* range = nullptr;
    if (const CUresult result = allocate(context, std::max<std::uint64_t>(at->size, 1), range); result != CUDA_SUCCESS)
      return result;
    known = range->base;
  }
  if (address) *address = known;
  if (bytes) *bytes = at->size;
  return CUDA_SUCCESS;
}

CUresult load_module(CUmodule* out, const void* image) {
  SIMGPU_CONTEXT();
  if (!out || !image) return CUDA_ERROR_INVALID_VALUE;
  Code* code = nullptr;
  const CUresult result = load(image, context, false, code);
  if (result == CUDA_SUCCESS) *out = reinterpret_cast<CUmodule>(code);
  return result;
}

bool read_file(const char* name, std::string& text) {
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(name, "rbe"), &std::fclose);
  if (!file) return false;
  char buffer[65536];
  for (std::size_t n; (n = std::fread(buffer, 1, sizeof buffer, file.get())) != 0;) text.append(buffer, n);
  return true;
}

CUresult load_library(CUlibrary* out, const void* image) {
  const Lock lock(driver_mutex());
  if (!out || !image) return CUDA_ERROR_INVALID_VALUE;
  Code* code = nullptr;
  const CUresult result = load(image, nullptr, true, code);
  if (result == CUDA_SUCCESS) *out = reinterpret_cast<CUlibrary>(code);
  return result;
}

CUresult enumerate(void** out, unsigned count, Code* code) {
  if (!code) return CUDA_ERROR_INVALID_HANDLE;
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < count && i < code->image.entries.size(); ++i)
    out[i] = function_of(*code, code->image.entries[i].name.c_str());
  return CUDA_SUCCESS;
}

}  // namespace

Function* known_function(const void* handle) {
  if (!function_handles().contains(handle)) return nullptr;
  return static_cast<Function*>(const_cast<void*>(handle));
}

void forget_images_of(Context& context) {
  std::vector<Code*> gone;
  for (const auto& code : codes()) {
    if (code->context == &context) gone.push_back(code.get());
    // The memory of a library's variables was freed with the context.
    std::erase_if(code->variables, [&](const auto& variable) { return variable.first.first == &context; });
  }
  for (Code* code : gone) forget(code);
}

int function_attribute(const Function& function, CUfunction_attribute attribute) {
  if (const auto at = function.attributes.find(attribute); at != function.attributes.end()) return at->second;
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: return max_threads_per_block;
    case CU_FUNC_ATTRIBUTE_NUM_REGS: return function.entry.registers ? function.entry.registers : 32;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES: return function.entry.shared_bytes;
    case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES: return function.entry.constant_bytes;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION: return static_cast<int>(driver().table->get(Setting::compute_capability));
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: return max_shared_per_block;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT: return -1;
    default: return 0;
  }
}

}  // namespace simgpu

// ------------------------------------------------------------------------------------------- modules

SIMGPU_API cuModuleLoadData(CUmodule* out, const void* image) {
  SIMGPU_ENTER(cuModuleLoadData);
  return load_module(out, image);
}
SIMGPU_API cuModuleLoadDataEx(CUmodule* out, const void* image, unsigned count, int* options, void** values) {
  SIMGPU_ENTER(cuModuleLoadDataEx);
  answer_options(count, options, values);
  return load_module(out, image);
}
SIMGPU_API cuModuleLoadFatBinary(CUmodule* out, const void* image) {
  SIMGPU_ENTER(cuModuleLoadFatBinary);
  return load_module(out, image);
}
SIMGPU_API cuModuleLoad(CUmodule* out, const char* name) {
  SIMGPU_ENTER(cuModuleLoad);
  if (!name) return CUDA_ERROR_INVALID_VALUE;
  std::string text;
  if (!read_file(name, text)) return CUDA_ERROR_FILE_NOT_FOUND;
  return load_module(out, text.c_str());
}
SIMGPU_API cuModuleUnload(CUmodule handle) {
  SIMGPU_ENTER(cuModuleUnload);
  SIMGPU_CONTEXT();
  Code* code = known_code(handle, false);
  if (!code) return CUDA_ERROR_INVALID_HANDLE;
  forget(code);
  return CUDA_SUCCESS;
}
SIMGPU_API cuModuleGetLoadingMode(int* mode) {
  SIMGPU_ENTER(cuModuleGetLoadingMode);
  constexpr int eager = 1, lazy = 2;
  if (!mode) return CUDA_ERROR_INVALID_VALUE;
  const char* wanted = std::getenv("CUDA_MODULE_LOADING");
  *mode = wanted && std::strcmp(wanted, "EAGER") == 0 ? eager : lazy;
  return CUDA_SUCCESS;
}
SIMGPU_API cuModuleGetFunction(CUfunction* out, CUmodule handle, const char* name) {
  SIMGPU_ENTER(cuModuleGetFunction);
  SIMGPU_CONTEXT();
  if (!out || !name) return CUDA_ERROR_INVALID_VALUE;
  Code* code = known_code(handle, false);
  if (!code) code = known_code(handle, true);  // a library's module is the library itself here
  if (!code) return CUDA_ERROR_INVALID_HANDLE;
  Function* function = function_of(*code, name);
  if (!function) return CUDA_ERROR_NOT_FOUND;
  *out = reinterpret_cast<CUfunction>(function);
  return CUDA_SUCCESS;
}
SIMGPU_API cuModuleGetFunctionCount(unsigned* count, CUmodule handle) {
  SIMGPU_ENTER(cuModuleGetFunctionCount);
  const Lock lock(driver_mutex());
  const Code* code = known_code(handle, false);
  if (!count) return CUDA_ERROR_INVALID_VALUE;
  if (!code) return CUDA_ERROR_INVALID_HANDLE;
  *count = static_cast<unsigned>(code->image.entries.size());
  return CUDA_SUCCESS;
}
SIMGPU_API cuModuleEnumerateFunctions(CUfunction* out, unsigned count, CUmodule handle) {
  SIMGPU_ENTER(cuModuleEnumerateFunctions);
  const Lock lock(driver_mutex());
  return enumerate(reinterpret_cast<void**>(out), count, known_code(handle, false));
}
SIMGPU_API cuModuleGetGlobal_v2(CUdeviceptr* address, std::size_t* bytes, CUmodule handle, const char* name) {
  SIMGPU_ENTER(cuModuleGetGlobal_v2);
  SIMGPU_CONTEXT();
  Code* code = known_code(handle, false);
  if (!code) code = known_code(handle, true);
  if (!code) return CUDA_ERROR_INVALID_HANDLE;
  return name ? variable_of(*code, *context, name, address, bytes) : CUDA_ERROR_INVALID_VALUE;
}

// ------------------------------------------------------------------------------------------- libraries

SIMGPU_API cuLibraryLoadData(CUlibrary* out, const void* image, int* options, void** values, unsigned count, int*,
                             void**, unsigned) {
  SIMGPU_ENTER(cuLibraryLoadData);
  answer_options(count, options, values);
  return load_library(out, image);
}
SIMGPU_API cuLibraryLoadFromFile(CUlibrary* out, const char* name, int* options, void** values, unsigned count, int*,
                                 void**, unsigned) {
  SIMGPU_ENTER(cuLibraryLoadFromFile);
  answer_options(count, options, values);
  if (!name) return CUDA_ERROR_INVALID_VALUE;
  std::string text;
  if (!read_file(name, text)) return CUDA_ERROR_FILE_NOT_FOUND;
  return load_library(out, text.c_str());
}
SIMGPU_API cuLibraryUnload(CUlibrary handle) {
  SIMGPU_ENTER(cuLibraryUnload);
  const Lock lock(driver_mutex());
  Code* code = known_code(handle, true);
  if (!code) return CUDA_ERROR_INVALID_HANDLE;
  forget(code);
  return CUDA_SUCCESS;
}
SIMGPU_API cuLibraryGetKernel(CUkernel* out, CUlibrary handle, const char* name) {
  SIMGPU_ENTER(cuLibraryGetKernel);
  const Lock lock(driver_mutex());
  Code* code = known_code(handle, true);
  if (!out || !name) return CUDA_ERROR_INVALID_VALUE;
  if (!code) return CUDA_ERROR_INVALID_HANDLE;
  Function* function = function_of(*code, name);
  if (!function) return CUDA_ERROR_NOT_FOUND;
  *out = reinterpret_cast<CUkernel>(function);
  return CUDA_SUCCESS;
}
SIMGPU_API cuLibraryGetKernelCount(unsigned* count, CUlibrary handle) {
  SIMGPU_ENTER(cuLibraryGetKernelCount);
  const Lock lock(driver_mutex());
  const Code* code = known_code(handle, true);
  if (!count) return CUDA_ERROR_INVALID_VALUE;
  if (!code) return CUDA_ERROR_INVALID_HANDLE;
  *count = static_cast<unsigned>(code->image.entries.size());
  return CUDA_SUCCESS;
}
SIMGPU_API cuLibraryEnumerateKernels(CUkernel* out, unsigned count, CUlibrary handle) {
  SIMGPU_ENTER(cuLibraryEnumerateKernels);
  const Lock lock(driver_mutex());
  return enumerate(reinterpret_cast<void**>(out), count, known_code(handle, true));
}
SIMGPU_API cuLibraryGetModule(CUmodule* out, CUlibrary handle) {
  SIMGPU_ENTER(cuLibraryGetModule);
  SIMGPU_CONTEXT();
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  if (!known_code(handle, true)) return CUDA_ERROR_INVALID_HANDLE;
  *out = reinterpret_cast<CUmodule>(handle);
  return CUDA_SUCCESS;
}
SIMGPU_API cuLibraryGetGlobal(CUdeviceptr* address, std::size_t* bytes, CUlibrary handle, const char* name) {
  SIMGPU_ENTER(cuLibraryGetGlobal);
  SIMGPU_CONTEXT();
  Code* code = known_code(handle, true);
  if (!code) return CUDA_ERROR_INVALID_HANDLE;
  return name ? variable_of(*code, *context, name, address, bytes) : CUDA_ERROR_INVALID_VALUE;
}
SIMGPU_API cuLibraryGetManaged(CUdeviceptr*, std::size_t*, CUlibrary handle, const char* name) {
  SIMGPU_ENTER(cuLibraryGetManaged);
  const Lock lock(driver_mutex());
  if (!known_code(handle, true)) return CUDA_ERROR_INVALID_HANDLE;
  return name ? CUDA_ERROR_NOT_FOUND : CUDA_ERROR_INVALID_VALUE;
}
SIMGPU_API cuKernelGetFunction(CUfunction* out, CUkernel handle) {
  SIMGPU_ENTER(cuKernelGetFunction);
  SIMGPU_CONTEXT();
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  if (!known_function(handle)) return CUDA_ERROR_INVALID_HANDLE;
  *out = reinterpret_cast<CUfunction>(handle);
  return CUDA_SUCCESS;
}
SIMGPU_API cuKernelGetLibrary(CUlibrary* out, CUkernel handle) {
  SIMGPU_ENTER(cuKernelGetLibrary);
  const Lock lock(driver_mutex());
  const Function* function = known_function(handle);
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  if (!function) return CUDA_ERROR_INVALID_HANDLE;
  *out = reinterpret_cast<CUlibrary>(function->code);
  return CUDA_SUCCESS;
}
