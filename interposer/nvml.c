/* SPDX-License-Identifier: Apache-2.0 */
/* The size and the use of a device as NVML tells them: those of the lease, so that tools inside the lease agree with
 * the driver. All other functions of NVML stay as they are. A process that only reads begins with the daemon here. */
#include "limit.h"

#include <dlfcn.h>

enum { SUCCESS = 0, FUNCTION_NOT_FOUND = 13 };

struct memory {
  unsigned long long total, free, used;
};
struct memory_v2 {
  unsigned version;
  unsigned long long total, reserved, free, used;
};

typedef int (*memory_function)(void*, struct memory*);
typedef int (*memory_function_v2)(void*, struct memory_v2*);
typedef int (*uuid_function)(void*, char*, unsigned);

EXPORTED int nvmlDeviceGetMemoryInfo(void* device, struct memory* out);
EXPORTED int nvmlDeviceGetMemoryInfo_v2(void* device, struct memory_v2* out);

/* The functions of NVML, once it is loaded. */
enum { INFO, INFO_V2, UUID, FUNCTIONS };
static void* reals[FUNCTIONS];
static uint32_t is_found;

static int take_nvml(const struct sublet_object* object, void* data) {
  static const char* const names[FUNCTIONS] = {"nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMemoryInfo_v2",
                                               "nvmlDeviceGetUUID"};
  if (!sublet_begins(object->soname, "libnvidia-ml.so")) return 0;
  for (uint32_t i = 1; i < object->count; ++i)
    for (int at = 0; at < FUNCTIONS; ++at)
      if (sublet_same(object->strings + object->symbols[i].st_name, names[at])) {
        void* function = sublet_function(object, &object->symbols[i]);
        if (function != NULL) __atomic_store_n(&reals[at], function, __ATOMIC_RELEASE);
      }
  *(struct sublet_object*)data = *object;
  return 1;
}

/* NVML stays loaded from then on, because its addresses are kept. */
static void* real(int function) {
  struct sublet_object nvml = {0};
  if (!__atomic_load_n(&is_found, __ATOMIC_ACQUIRE) && sublet_objects(take_nvml, &nvml)) {
    void* (*open)(const char*, int) = (void* (*)(const char*, int))sublet_real_dlopen();
    if (open != NULL) (void)open(nvml.path, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
    __atomic_store_n(&is_found, 1, __ATOMIC_RELEASE);
  }
  return __atomic_load_n(&reals[function], __ATOMIC_ACQUIRE);
}

int sublet_is_of_nvml(const char* name) {
  return sublet_same(name, "nvmlDeviceGetMemoryInfo") || sublet_same(name, "nvmlDeviceGetMemoryInfo_v2");
}

void* sublet_nvml_hook(const char* name) {
  const int is_first = sublet_same(name, "nvmlDeviceGetMemoryInfo");
  if (real(is_first ? INFO : INFO_V2) == NULL) return NULL;
  return is_first ? (void*)nvmlDeviceGetMemoryInfo : (void*)nvmlDeviceGetMemoryInfo_v2;
}

static int digit_of(char letter) {
  if (letter >= '0' && letter <= '9') return letter - '0';
  if (letter >= 'a' && letter <= 'f') return letter - 'a' + 10;
  return letter >= 'A' && letter <= 'F' ? letter - 'A' + 10 : -1;
}

/* Reads "GPU-01234567-…" or "MIG-…" as 16 bytes. */
static int read_uuid(const char* text, uint8_t* out) {
  int digits = 0;
  if (!sublet_begins(text, "GPU-") && !sublet_begins(text, "MIG-")) return 0;
  for (text += 4; *text != '\0'; ++text) {
    if (*text == '-') continue;
    const int digit = digit_of(*text);
    if (digit < 0 || digits == 32) return 0;
    out[digits / 2] = (uint8_t)((digits % 2 == 0 ? 0 : out[digits / 2] << 4) | digit);
    ++digits;
  }
  return digits == 32;
}

static int account_of(void* device) {
  char text[96];
  uint8_t uuid[16];
  const uuid_function ask = (uuid_function)real(UUID);
  sublet_begin_limit();
  if (!sublet_is_limited() || ask == NULL || ask(device, text, sizeof text) != SUCCESS) return NO_ACCOUNT;
  text[sizeof text - 1] = '\0';
  return read_uuid(text, uuid) ? sublet_account_of_uuid(uuid) : NO_ACCOUNT;
}

static unsigned long long smaller(unsigned long long a, unsigned long long b) { return a < b ? a : b; }

int nvmlDeviceGetMemoryInfo(void* device, struct memory* out) {
  const memory_function next = (memory_function)real(INFO);
  if (next == NULL) return FUNCTION_NOT_FOUND;
  const int result = next(device, out);
  const int account = result == SUCCESS ? account_of(device) : NO_ACCOUNT;
  if (account < 0) return result;
  out->total = smaller(out->total, sublet_limit_of(account));
  out->free = smaller(out->free, smaller(out->total, sublet_free_of(account)));
  out->used = out->total - out->free;
  return result;
}

int nvmlDeviceGetMemoryInfo_v2(void* device, struct memory_v2* out) {
  const memory_function_v2 next = (memory_function_v2)real(INFO_V2);
  if (next == NULL) return FUNCTION_NOT_FOUND;
  const int result = next(device, out);
  const int account = result == SUCCESS ? account_of(device) : NO_ACCOUNT;
  if (account < 0) return result;
  out->total = smaller(out->total, sublet_limit_of(account));
  out->reserved = 0;
  out->free = smaller(out->free, smaller(out->total, sublet_free_of(account)));
  out->used = out->total - out->free;
  return result;
}
