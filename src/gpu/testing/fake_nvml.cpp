// SPDX-License-Identifier: Apache-2.0
// A fake management library for tests. The environment variable FAKE_NVML, read at every call, says what it reports:
// "key=value;key=value". Keys: devices, total, reserved, used, uuid, name, stride (of listed processes), compute /
// graphics / mps = "pid:bytes,pid:bytes" ("pid:na": not told), grow (how many calls report a longer list), mig, slices
// (of each card in MIG mode), gap (index without a slice), shared (1: all slices have the same GPU instance), instance
// (of the listed processes), window (bytes of BAR1), busy (percent of the device), samples = "pid:percent,pid:percent"
// with the time `at` and the percent `encoder`, xid (of one event), says.FUNCTION = number, and fail.FUNCTION = code or
// "hang".
#include <unistd.h>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

// Handles of cards are 1, 2, …; those of the slices of a card follow this number times that of the card.
[[maybe_unused]] constexpr std::uintptr_t first_slice = 100;

int inits = 0;
int shutdowns = 0;

using u64 = unsigned long long;

std::string option(const std::string& key, const std::string& otherwise = {}) {
  const char* text = std::getenv("FAKE_NVML");
  const std::string all = std::string(";") + (text != nullptr ? text : "") + ";";
  const auto at = all.find(";" + key + "=");
  if (at == std::string::npos) return otherwise;
  const auto from = at + key.size() + 2;
  return all.substr(from, all.find(';', from) - from);
}

[[maybe_unused]] u64 number(const std::string& key, u64 otherwise) {
  const std::string text = option(key);
  return text.empty() ? otherwise : std::strtoull(text.c_str(), nullptr, 0);
}

[[maybe_unused]] int outcome(const char* function) {
  const std::string text = option(std::string("fail.") + function);
  if (text == "hang") {
    for (;;) ::pause();
  }
  if (!text.empty()) return static_cast<int>(std::strtol(text.c_str(), nullptr, 10));
  return inits > shutdowns ? 0 : 1;
}

[[maybe_unused]] int copy_text(const std::string& text, char* to, unsigned size) {
  if (text.size() + 1 > size) return 7;
  std::memcpy(to, text.c_str(), text.size() + 1);
  return 0;
}

struct Entry {
  unsigned pid;
  u64 used;
};

[[maybe_unused]] std::vector<Entry> entries(const char* kind) {
  std::vector<Entry> out;
  const std::string text = option(kind);
  for (std::size_t at = 0; at < text.size();) {
    const auto end = std::min(text.find(',', at), text.size());
    const std::string item = text.substr(at, end - at);
    const auto colon = item.find(':');
    const std::string used = item.substr(colon + 1);
    out.push_back({static_cast<unsigned>(std::strtoul(item.c_str(), nullptr, 10)),
                   used == "na" ? ~0ULL : std::strtoull(used.c_str(), nullptr, 0)});
    at = end + 1;
  }
  return out;
}

int grown = 0;

[[maybe_unused]] int list(const char* function, const char* kind, std::size_t stride, unsigned* count, void* to) {
  if (const int code = outcome(function); code != 0) return code;
  const auto all = entries(kind);
  const unsigned needed = static_cast<unsigned>(all.size());
  if (option("grow").empty()) grown = 0;
  if (static_cast<u64>(grown) < number("grow", 0)) {
    ++grown;
    *count = *count * 2 + 1;
    return 7;
  }
  if (*count < needed) {
    *count = needed;
    return 7;
  }
  stride = number("stride", stride);
  auto* at = static_cast<unsigned char*>(to);
  for (const Entry& entry : all) {
    std::memset(at, stride > 16 ? 0xff : 0, stride);
    std::memcpy(at, &entry.pid, 4);
    std::memcpy(at + 8, &entry.used, 8);
    const auto instance = static_cast<unsigned>(number("instance", ~0ULL));
    if (stride > 16) std::memcpy(at + 16, &instance, 4);
    at += stride;
  }
  *count = static_cast<unsigned>(number("count", needed));
  return 0;
}

}  // namespace

EXPORT int nvmlInit_v2() {
  const std::string text = option("fail.nvmlInit_v2");
  if (!text.empty()) return static_cast<int>(std::strtol(text.c_str(), nullptr, 10));
  ++inits;
  return 0;
}
EXPORT int nvmlShutdown() {
  if (shutdowns == inits) return 1;
  ++shutdowns;
  return 0;
}
EXPORT const char* nvmlErrorString(int code) {
  return code == 15 ? "GPU is lost" : code == 9 ? "Driver Not Loaded" : nullptr;
}

#ifndef FAKE_LACKING
EXPORT int nvmlSystemGetDriverVersion(char* to, unsigned size) { return copy_text("999.1", to, size); }
EXPORT int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = static_cast<unsigned>(number("devices", 1));
  return outcome("nvmlDeviceGetCount_v2");
}
EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  *device = reinterpret_cast<void*>(static_cast<std::uintptr_t>(index + 1));
  return outcome(("nvmlDeviceGetHandleByIndex_v2." + std::to_string(index)).c_str());
}
EXPORT int nvmlDeviceGetName(void*, char* to, unsigned size) {
  const int code = outcome("nvmlDeviceGetName");
  return code != 0 ? code : copy_text(option("name", "Simulated Test Card"), to, size);
}
EXPORT int nvmlDeviceGetUUID(void* device, char* to, unsigned size) {
  const int code = outcome("nvmlDeviceGetUUID");
  const auto number = reinterpret_cast<std::uintptr_t>(device);
  return code != 0
             ? code
             : copy_text(option("uuid", (number < first_slice ? "GPU-0000-" : "MIG-0000-") + std::to_string(number)),
                         to, size);
}
EXPORT int nvmlDeviceGetMigMode(void*, unsigned* current, unsigned* pending) {
  *current = *pending = static_cast<unsigned>(number("mig", 0));
  return outcome("nvmlDeviceGetMigMode");
}
#ifdef FAKE_V3
EXPORT int nvmlDeviceGetBAR1MemoryInfo(void*, u64* memory) {
  memory[0] = number("window", 0);
  return memory[0] == 0 ? 3 : outcome("nvmlDeviceGetBAR1MemoryInfo");
}
EXPORT int nvmlDeviceGetMaxMigDeviceCount(void*, unsigned* count) {
  *count = static_cast<unsigned>(number("says.nvmlDeviceGetMaxMigDeviceCount", 7));
  return outcome("nvmlDeviceGetMaxMigDeviceCount");
}
EXPORT int nvmlDeviceGetMigDeviceHandleByIndex(void* card, unsigned index, void** slice) {
  if (const int code = outcome("nvmlDeviceGetMigDeviceHandleByIndex"); code != 0) return code;
  if (index >= number("slices", 0) || index == number("gap", 99)) return 6;
  *slice = reinterpret_cast<void*>(first_slice * reinterpret_cast<std::uintptr_t>(card) + index);
  return 0;
}
EXPORT int nvmlDeviceGetGpuInstanceId(void* slice, unsigned* id) {
  const auto own = static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(slice) % first_slice);
  *id = static_cast<unsigned>(number("says.nvmlDeviceGetGpuInstanceId", number("shared", 0) != 0 ? 1 : own + 1));
  return outcome("nvmlDeviceGetGpuInstanceId");
}
#endif
EXPORT int nvmlDeviceGetMaxPcieLinkGeneration(void*, unsigned* generation) {
  *generation = static_cast<unsigned>(number("says.nvmlDeviceGetMaxPcieLinkGeneration", number("generation", 4)));
  return outcome("nvmlDeviceGetMaxPcieLinkGeneration");
}
EXPORT int nvmlDeviceGetCurrPcieLinkWidth(void*, unsigned* lanes) {
  *lanes = static_cast<unsigned>(number("says.nvmlDeviceGetCurrPcieLinkWidth", number("lanes", 16)));
  return outcome("nvmlDeviceGetCurrPcieLinkWidth");
}
EXPORT int nvmlDeviceGetMemoryInfo(void*, u64* memory) {
  memory[0] = number("total", 1000);
  memory[2] = number("used", 300) + number("reserved", 0);
  memory[1] = memory[0] - memory[2];
  return outcome("nvmlDeviceGetMemoryInfo");
}
#endif

#ifdef FAKE_V3
struct Sample {
  unsigned pid;
  u64 at;
  unsigned sm, memory, encoder, decoder;
};
EXPORT int nvmlDeviceGetUtilizationRates(void*, unsigned* rates) {
  rates[0] = static_cast<unsigned>(number("busy", 0));
  rates[1] = 0;
  return outcome("nvmlDeviceGetUtilizationRates");
}
EXPORT int nvmlDeviceGetProcessUtilization(void*, Sample* to, unsigned* count, u64 last_seen) {
  if (const int code = outcome("nvmlDeviceGetProcessUtilization"); code != 0) return code;
  const auto all = entries("samples");
  const u64 at = number("at", 1);
  if (all.empty() || at <= last_seen) return 6;
  if (*count < all.size()) {
    *count = static_cast<unsigned>(all.size());
    return 7;
  }
  const auto encoder = static_cast<unsigned>(number("encoder", 0));
  for (std::size_t i = 0; i < all.size(); ++i)
    to[i] = {all[i].pid, at, static_cast<unsigned>(all[i].used), 0, encoder, ~0U};
  *count = static_cast<unsigned>(all.size());
  return 0;
}
int says(const char* function, u64 otherwise, unsigned* to) {
  *to = static_cast<unsigned>(number(std::string("says.") + function, otherwise));
  return outcome(function);
}
EXPORT int nvmlDeviceGetTemperature(void*, unsigned, unsigned* to) { return says(__func__, 41, to); }
EXPORT int nvmlDeviceGetPowerUsage(void*, unsigned* to) { return says(__func__, 61'000, to); }
EXPORT int nvmlDeviceGetEnforcedPowerLimit(void*, unsigned* to) { return says(__func__, 300'000, to); }
EXPORT int nvmlDeviceGetClockInfo(void*, unsigned type, unsigned* to) {
  return says(__func__, type == 1 ? 1980 : 3201, to);
}
EXPORT int nvmlDeviceGetCurrPcieLinkGeneration(void*, unsigned* to) { return says(__func__, 4, to); }
EXPORT int nvmlDeviceGetMaxPcieLinkWidth(void*, unsigned* to) { return says(__func__, 16, to); }
EXPORT int nvmlDeviceGetPcieReplayCounter(void*, unsigned* to) { return says(__func__, 0, to); }
EXPORT int nvmlDeviceGetTotalEnergyConsumption(void*, u64* to) {
  *to = number(std::string("says.") + __func__, 7'000'000);
  return outcome(__func__);
}
EXPORT int nvmlDeviceGetNvLinkState(void*, unsigned link, unsigned* to) {
  if (link >= 6) return 2;
  return says(__func__, link < 4 ? 1 : 0, to);
}
EXPORT int nvmlDeviceGetCudaComputeCapability(void*, int* major, int* minor) {
  *major = static_cast<int>(number(std::string("says.") + __func__, 9));
  *minor = 0;
  return outcome(__func__);
}
EXPORT int nvmlDeviceGetRetiredPagesPendingStatus(void*, unsigned* to) { return says(__func__, 0, to); }
EXPORT int nvmlDeviceGetTotalEccErrors(void*, unsigned type, unsigned, u64* to) {
  *to = number(std::string("says.") + __func__, type == 0 ? 5 : 0);
  return outcome(__func__);
}
EXPORT int nvmlDeviceGetRemappedRows(void*, unsigned* corrected, unsigned* uncorrected, unsigned* pending,
                                     unsigned* failed) {
  *corrected = *uncorrected = 0;
  *failed = static_cast<unsigned>(number(std::string("says.") + __func__, 0));
  return says(__func__, 0, pending);
}
struct Event {
  void* device;
  u64 type, data;
  unsigned gpu_instance, compute_instance;
};
u64 told_xid = 0;
EXPORT int nvmlEventSetCreate(void** set) {
  *set = &told_xid;
  told_xid = 0;
  return outcome(__func__);
}
EXPORT int nvmlEventSetFree(void*) { return 0; }
EXPORT int nvmlDeviceRegisterEvents(void*, u64, void*) { return outcome(__func__); }
EXPORT int nvmlEventSetWait_v2(void*, Event* event, unsigned) {
  if (const int code = outcome(__func__); code != 0) return code;
  const u64 xid = number("xid", 0);
  if (xid == 0 || xid == told_xid) return 10;
  told_xid = xid;
  *event = {reinterpret_cast<void*>(std::uintptr_t{1}), 8, xid, ~0U, ~0U};
  return 0;
}
EXPORT int nvmlDeviceGetPciInfo_v3(void*, char* to) {
  std::memset(to, 0, 68);
  std::memcpy(to, "0000:3B:00.0", 13);
  std::memcpy(to + 36, "00000000:3B:00.0", 17);
  return outcome("nvmlDeviceGetPciInfo_v3");
}
EXPORT int nvmlDeviceGetMemoryInfo_v2(void*, void* to) {
  if (const int code = outcome("nvmlDeviceGetMemoryInfo_v2"); code != 0) return code;
  unsigned version = 0;
  std::memcpy(&version, to, 4);
  if (version != (40u | 2u << 24)) return 25;
  const u64 values[4] = {number("total", 1000), number("reserved", 0), 0, number("used", 300)};
  std::memcpy(static_cast<char*>(to) + 8, values, sizeof values);
  return 0;
}
EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(void*, unsigned* count, void* to) {
  return list("nvmlDeviceGetComputeRunningProcesses_v3", "compute", 24, count, to);
}
EXPORT int nvmlDeviceGetComputeRunningProcesses_v2(void*, unsigned* count, void* to) {
  return list("nvmlDeviceGetComputeRunningProcesses_v2", "compute", 24, count, to);
}
EXPORT int nvmlDeviceGetGraphicsRunningProcesses_v3(void*, unsigned* count, void* to) {
  return list("nvmlDeviceGetGraphicsRunningProcesses_v3", "graphics", 24, count, to);
}
EXPORT int nvmlDeviceGetMPSComputeRunningProcesses_v3(void*, unsigned* count, void* to) {
  return list("nvmlDeviceGetMPSComputeRunningProcesses_v3", "mps", 24, count, to);
}
#endif

#ifdef FAKE_V1
EXPORT int nvmlDeviceGetPciInfo(void*, char* to) {
  std::memcpy(to, "0000:3B:00.0", 13);
  return outcome("nvmlDeviceGetPciInfo");
}
EXPORT int nvmlDeviceGetComputeRunningProcesses(void*, unsigned* count, void* to) {
  return list("nvmlDeviceGetComputeRunningProcesses", "compute", 16, count, to);
}
#endif
