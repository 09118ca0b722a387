/* SPDX-License-Identifier: Apache-2.0 */
/* The size and the free memory of a device for the program: those of its lease, if these are smaller. */
#include "limit.h"

typedef int (*info_function)(size_t*, size_t*);
typedef int (*info_function_v1)(uint32_t*, uint32_t*);
typedef int (*total_function)(size_t*, int);
typedef int (*total_function_v1)(uint32_t*, int);

EXPORTED int cuMemGetInfo(uint32_t* free, uint32_t* total);
EXPORTED int cuMemGetInfo_v2(size_t* free, size_t* total);
EXPORTED int cuDeviceTotalMem(uint32_t* out, int device);
EXPORTED int cuDeviceTotalMem_v2(size_t* out, int device);

static uint64_t smaller(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* Pools may have given memory back since they were looked at. */
static int account_now(void) {
  const int account = sublet_here().account;
  if (account >= 0) sublet_look_at_pools(account);
  return account;
}

int cuMemGetInfo_v2(size_t* free, size_t* total) {
  SUBLET_NEXT(cuMemGetInfo_v2);
  const int result = SUBLET_CALL(info_function)(free, total);
  const int account = is_hooked && result == CUDA_SUCCESS ? account_now() : NO_ACCOUNT;
  if (account < 0) return result;
  *total = smaller(*total, sublet_limit_of(account));
  *free = smaller(*free, smaller(*total, sublet_free_of(account)));
  return result;
}

int cuMemGetInfo(uint32_t* free, uint32_t* total) {
  SUBLET_NEXT(cuMemGetInfo);
  const int result = SUBLET_CALL(info_function_v1)(free, total);
  const int account = is_hooked && result == CUDA_SUCCESS ? account_now() : NO_ACCOUNT;
  if (account < 0) return result;
  *total = (uint32_t)smaller(*total, sublet_limit_of(account));
  *free = (uint32_t)smaller(*free, smaller(*total, sublet_free_of(account)));
  return result;
}

int cuDeviceTotalMem_v2(size_t* out, int device) {
  SUBLET_NEXT(cuDeviceTotalMem_v2);
  const int result = SUBLET_CALL(total_function)(out, device);
  const int account = is_hooked && result == CUDA_SUCCESS ? sublet_account_of(device) : NO_ACCOUNT;
  if (account >= 0) *out = smaller(*out, sublet_limit_of(account));
  return result;
}

int cuDeviceTotalMem(uint32_t* out, int device) {
  SUBLET_NEXT(cuDeviceTotalMem);
  const int result = SUBLET_CALL(total_function_v1)(out, device);
  const int account = is_hooked && result == CUDA_SUCCESS ? sublet_account_of(device) : NO_ACCOUNT;
  if (account >= 0) *out = (uint32_t)smaller(*out, sublet_limit_of(account));
  return result;
}
