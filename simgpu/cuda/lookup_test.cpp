// SPDX-License-Identifier: Apache-2.0
// Cards as programs see them, and functions as programs find them.
#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "driver_test.h"

namespace simgpu {
namespace {

void* found(const char* name, int version, std::uint64_t flags, int* status = nullptr) {
  void* function = reinterpret_cast<void*>(1);
  int said = -1;
  const CUresult result = cuGetProcAddress_v2(name, &function, version, flags, &said);
  EXPECT_EQ(result, function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND) << name;
  EXPECT_EQ(said == CU_GET_PROC_ADDRESS_SUCCESS, function != nullptr) << name;
  if (status) *status = said;
  void* old = reinterpret_cast<void*>(1);
  EXPECT_EQ(cuGetProcAddress(name, &old, version, flags), result);
  EXPECT_EQ(old, function);
  return function;
}

void* exported(const std::string& symbol) {
  static void* library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  return ::dlsym(library, symbol.c_str());
}

std::vector<std::vector<std::string>> rows(const char* file) {
  std::ifstream in(std::string(SIMGPU_CUDA_SOURCE) + "/" + file);
  std::vector<std::vector<std::string>> all;
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream words(line);
    all.emplace_back();
    for (std::string word; std::getline(words, word, '\t');) all.back().push_back(word);
  }
  return all;
}

TEST_F(DriverTest, EveryExportIsThereAndFoundByNameAndVersion) {
  run([] {
    const auto exports = rows("exports.tsv");
    ASSERT_GE(exports.size(), 637u);
    std::map<void*, std::string> seen;
    for (const auto& row : exports) {
      void* function = exported(row[0]);
      ASSERT_NE(function, nullptr) << row[0];
      EXPECT_TRUE(seen.emplace(function, row[0]).second) << row[0] << " is " << seen[function];
      const bool per_thread = row[3] == "per-thread";
      EXPECT_EQ(found(row[1].c_str(), std::stoi(row[2]), per_thread ? 2 : 0), function) << row[0];
    }
  });
}

TEST_F(DriverTest, TheRuntimesLookupsAreAnswered) {
  run([] {
    const auto lookups = rows("runtime_lookups.tsv");
    ASSERT_EQ(lookups.size(), 439u);
    // Interfaces with graphics and video, which the driver's link stub lacks too.
    std::set<std::string> exported_names;
    for (const auto& row : rows("exports.tsv")) exported_names.insert(row[1]);
    unsigned absent = 0;
    for (const auto& row : lookups) {
      void* function = found(row[0].c_str(), std::stoi(row[1]), std::stoul(row[2]));
      if (!function) ++absent;
      EXPECT_EQ(function != nullptr, exported_names.contains(row[0])) << row[0];
      // A lookup for per-thread streams finds the per-thread form if there is one.
      if (!function || row[2] != "2") continue;
      Dl_info info;
      ASSERT_NE(::dladdr(function, &info), 0);
      const std::string symbol = info.dli_sname;
      const std::string base = symbol.substr(0, symbol.find("_pt"));
      const bool both = exported(base + "_ptsz") || exported(base + "_ptds");
      EXPECT_EQ(symbol == base, !both) << row[0];
    }
    EXPECT_LE(absent, 29u);
  });
}

TEST_F(DriverTest, TheVersionChoosesAmongFunctionsOfOneName) {
  run([] {
    EXPECT_EQ(found("cuCtxGetDevice", 12090, 0), exported("cuCtxGetDevice"));
    EXPECT_EQ(found("cuCtxGetDevice", 13000, 0), exported("cuCtxGetDevice_v2"));
    EXPECT_EQ(found("cuCtxCreate", 11030, 0), exported("cuCtxCreate_v2"));
    EXPECT_EQ(found("cuCtxCreate", 12040, 0), exported("cuCtxCreate_v3"));
    EXPECT_EQ(found("cuMemcpyHtoD", 13000, 2), exported("cuMemcpyHtoD_v2_ptds"));
    EXPECT_EQ(found("cuMemcpyHtoD", 13000, 1), exported("cuMemcpyHtoD_v2"));
    EXPECT_EQ(found("cuMemAlloc", 13000, 2), exported("cuMemAlloc_v2"));
    EXPECT_EQ(found("cuMemAlloc", 99999, 0), exported("cuMemAlloc_v2"));
    int status = 0;
    EXPECT_EQ(found("cuMemCreate", 9000, 0, &status), nullptr);
    EXPECT_EQ(status, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
    EXPECT_EQ(found("cuNoSuchFunction", 13000, 0, &status), nullptr);
    EXPECT_EQ(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    EXPECT_EQ(found("cuMemAlloc_v2", 13000, 0), nullptr);
    void* function;
    IS(CUDA_ERROR_INVALID_VALUE, cuGetProcAddress_v2("cuInit", &function, 13000, 3, nullptr));
    IS(CUDA_ERROR_INVALID_VALUE, cuGetProcAddress_v2("cuInit", nullptr, 13000, 0, nullptr));
  });
}

TEST_F(DriverTest, AnOlderDriverKnowsLess) {
  table_->set(Setting::driver_version, 12040);
  run([] {
    int version = 0;
    OK(cuDriverGetVersion(&version));
    EXPECT_EQ(version, 12040);
    EXPECT_EQ(found("cuCtxGetDevice", 13000, 0), exported("cuCtxGetDevice"));
    int status = 0;
    EXPECT_EQ(found("cuMemPrefetchBatchAsync", 13000, 0, &status), nullptr);
    EXPECT_EQ(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  });
}

TEST_F(DriverTest, UnsimulatedFunctionsAreRefusedAndCounted) {
  run_on_card([&] {
    const auto create = reinterpret_cast<CUresult (*)(void**, unsigned)>(exported("cuGraphCreate"));
    void* graph;
    IS(CUDA_ERROR_NOT_SUPPORTED, create(&graph, 0));
    IS(CUDA_ERROR_NOT_SUPPORTED, create(&graph, 0));
    testing::internal::CaptureStderr();
    const void* table = &graph;
    const CUuuid id{};
    IS(CUDA_ERROR_NOT_SUPPORTED, cuGetExportTable(&table, &id));
    IS(CUDA_ERROR_NOT_SUPPORTED, cuGetExportTable(&table, &id));
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_NE(said.find("runtime"), std::string::npos);
    EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1);
    EXPECT_EQ(table, nullptr);
  });
  std::map<std::string, std::uint64_t> calls;
  for (const auto& call : table_->calls()) calls[call.name] = call.count;
  EXPECT_EQ(calls["cuGraphCreate"], 2u);
  EXPECT_EQ(calls["cuInit"], 1u);
  EXPECT_EQ(calls.count("cuGraphDestroy"), 0u);
}

std::string visible(const char* variable) {
  ::setenv("CUDA_VISIBLE_DEVICES", variable, 1);
  if (cuInit(0) != CUDA_SUCCESS) return "none";
  int count = 0;
  EXPECT_EQ(cuDeviceGetCount(&count), CUDA_SUCCESS);
  std::string buses;
  for (int i = 0; i < count; ++i) {
    char id[16];
    EXPECT_EQ(cuDeviceGetPCIBusId(id, sizeof id, i), CUDA_SUCCESS);
    buses += std::string(id).substr(5, 2) + " ";
    int again = -1;
    EXPECT_EQ(cuDeviceGetByPCIBusId(&again, id), CUDA_SUCCESS);
    EXPECT_EQ(again, i);
  }
  return buses;
}

TEST_F(DriverTest, VisibleDevicesAreThoseNamed) {
  create("3x1GiB");
  const std::string first = table_->uuid_text(0), third = table_->uuid_text(2);
  const std::map<std::string, std::string> expected = {
      {"0", "17 "},     {"2,0", "37 17 "}, {"", "none"},     {"-1", "none"},           {"1,-1,2", "27 "},
      {"0,7,1", "17 "}, {"1,1", "none"},   {"junk", "none"}, {third + ",0", "37 17 "}, {third.substr(0, 10), "37 "},
      {"GPU-", "none"}};
  for (const auto& one : expected)
    run([&] { EXPECT_EQ(visible(one.first.c_str()), one.second) << "CUDA_VISIBLE_DEVICES=" << one.first; });
}

TEST_F(DriverTest, WithoutCardsThereIsNoDevice) {
  run([&] {
    ::unsetenv(directory_variable);
    IS(CUDA_ERROR_NO_DEVICE, cuInit(0));
    int count = 7;
    IS(CUDA_ERROR_NOT_INITIALIZED, cuDeviceGetCount(&count));
  });
}

TEST_F(DriverTest, CardsReportTheValuesOfTheTable) {
  create("1x4GiB,Simulated Test,reserve=100MiB");
  run([&] {
    OK(cuInit(0));
    char name[64];
    OK(cuDeviceGetName(name, sizeof name, 0));
    EXPECT_STREQ(name, "Simulated Test");
    std::size_t bytes = 0;
    OK(cuDeviceTotalMem_v2(&bytes, 0));
    EXPECT_EQ(bytes, 3996 * mib);
    CUuuid uuid;
    OK(cuDeviceGetUuid_v2(&uuid, 0));
    EXPECT_EQ(std::memcmp(uuid.bytes, table_->device(0).uuid.data(), 16), 0);
    for (int attribute = 1; attribute <= 147; ++attribute) {
      int value = 0;
      OK(cuDeviceGetAttribute(&value, attribute, 0)) << attribute;
    }
    int value = 0;
    IS(CUDA_ERROR_INVALID_VALUE, cuDeviceGetAttribute(&value, 0, 0));
    IS(CUDA_ERROR_INVALID_VALUE, cuDeviceGetAttribute(&value, 5000, 0));
    IS(CUDA_ERROR_INVALID_DEVICE, cuDeviceGetAttribute(&value, 1, 1));
  });
}

TEST_F(DriverTest, TheContextStackIsTheThreads) {
  run([] {
    OK(cuInit(0));
    CUcontext a, b, current;
    CUdevice device;
    IS(CUDA_ERROR_INVALID_CONTEXT, cuCtxGetDevice(&device));
    IS(CUDA_ERROR_INVALID_CONTEXT, cuCtxPopCurrent_v2(&current));
    OK(cuCtxCreate_v2(&a, 0, 0));
    OK(cuCtxCreate_v2(&b, 0, 1));
    OK(cuCtxGetDevice(&device));
    EXPECT_EQ(device, 1);
    OK(cuCtxGetDevice_v2(&device, a));
    EXPECT_EQ(device, 0);
    OK(cuCtxSynchronize_v2(a));
    OK(cuCtxPopCurrent_v2(&current));
    EXPECT_EQ(current, b);
    OK(cuCtxGetCurrent(&current));
    EXPECT_EQ(current, a);
    OK(cuCtxSetCurrent(b));
    OK(cuCtxDestroy_v2(b));
    OK(cuCtxGetCurrent(&current));
    EXPECT_EQ(current, nullptr);
    IS(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuCtxDestroy_v2(b));
    OK(cuCtxDestroy_v2(a));
    unsigned flags;
    int active = 1;
    OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
    EXPECT_EQ(active, 0);
  });
}

}  // namespace
}  // namespace simgpu
