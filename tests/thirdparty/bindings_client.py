# SPDX-License-Identifier: Apache-2.0
"""A program of the driver API through cuda-bindings and cuda-core, which look every function up by name and version.
Prints its results as JSON; a failed assertion is the only other end.
"""

import ctypes
import json
import os

from cuda.bindings import driver
from cuda.core import Device

MIB = 1 << 20


def ok(answer):
    error, *values = answer
    assert error == driver.CUresult.CUDA_SUCCESS, error
    return values[0] if len(values) == 1 else tuple(values)


def refused(answer):
    assert answer[0] != driver.CUresult.CUDA_SUCCESS
    return answer[0].name


def memory():
    pointer = ok(driver.cuMemAlloc(3 * MIB))
    ok(driver.cuMemsetD8(pointer, 0x5A, 3 * MIB))
    host = ctypes.create_string_buffer(16)
    ok(driver.cuMemcpyDtoH(host, int(pointer) + MIB, 16))
    assert host.raw == b"\x5a" * 16
    base, size = ok(driver.cuMemGetAddressRange(int(pointer) + 5))
    assert int(base) == int(pointer) and size == 3 * MIB
    kind = ok(driver.cuPointerGetAttribute(driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pointer))
    ok(driver.cuMemFree(pointer))
    return {"kind": int(kind), "twice": refused(driver.cuMemFree(pointer)), "none": refused(driver.cuMemAlloc(0))}


def mapped():
    prop = driver.CUmemAllocationProp()
    prop.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    prop.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    prop.location.id = 0
    prop.requestedHandleTypes = driver.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
    minimum = driver.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
    granularity = ok(driver.cuMemGetAllocationGranularity(prop, minimum))
    handle = ok(driver.cuMemCreate(granularity, prop, 0))
    base = ok(driver.cuMemAddressReserve(2 * granularity, 0, 0, 0))
    ok(driver.cuMemMap(base, granularity, 0, handle, 0))
    access = driver.CUmemAccessDesc()
    access.location = prop.location
    access.flags = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    ok(driver.cuMemSetAccess(base, granularity, [access], 1))
    ok(driver.cuMemsetD32(base, 7, granularity // 4))
    ok(driver.cuCtxSynchronize())
    posix = driver.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
    shared = ok(driver.cuMemExportToShareableHandle(handle, posix, 0))
    other = ok(driver.cuMemImportFromShareableHandle(int(shared), posix))
    ok(driver.cuMemMap(int(base) + granularity, granularity, 0, other, 0))
    ok(driver.cuMemSetAccess(int(base) + granularity, granularity, [access], 1))
    os.close(int(shared))  # holds the memory as long as it is open
    word = ctypes.c_uint32()
    ok(driver.cuMemcpyDtoH(ctypes.addressof(word), int(base) + 2 * granularity - 4, 4))
    assert word.value == 7
    partly = refused(driver.cuMemUnmap(base, granularity // 2))
    ok(driver.cuMemUnmap(base, 2 * granularity))
    ok(driver.cuMemRelease(handle))
    ok(driver.cuMemRelease(other))
    ok(driver.cuMemAddressFree(base, 2 * granularity))
    return {"granularity": granularity, "partly": partly}


def ordered():
    stream = ok(driver.cuStreamCreate(driver.CUstream_flags.CU_STREAM_NON_BLOCKING))
    begin, end = ok(driver.cuEventCreate(0)), ok(driver.cuEventCreate(0))
    ok(driver.cuEventRecord(begin, stream))
    pointer = ok(driver.cuMemAllocAsync(MIB, stream))
    ok(driver.cuMemsetD32Async(pointer, 3, MIB // 4, stream))
    ok(driver.cuMemFreeAsync(pointer, stream))
    ok(driver.cuEventRecord(end, stream))
    ok(driver.cuStreamSynchronize(stream))
    pool = ok(driver.cuDeviceGetDefaultMemPool(0))
    used = ok(driver.cuMemPoolGetAttribute(pool, driver.CUmemPool_attribute.CU_MEMPOOL_ATTR_USED_MEM_CURRENT))
    elapsed = ok(driver.cuEventElapsedTime(begin, end))
    ok(driver.cuStreamDestroy(stream))
    return {"used": int(used), "elapsed": elapsed >= 0}


def code():
    text = b".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry mine(.param .u64 a)\n{ ret; }\n\0"
    module = ok(driver.cuModuleLoadData(text))
    function = ok(driver.cuModuleGetFunction(module, b"mine"))
    ok(driver.cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, 0, ((5,), (ctypes.c_uint64,)), 0))
    ok(driver.cuCtxSynchronize())
    return {"absent": refused(driver.cuModuleGetFunction(module, b"other"))}


def core():
    card = Device(0)
    card.set_current()
    stream = card.create_stream()
    buffer = card.allocate(2 * MIB, stream=stream)
    size = buffer.size
    buffer.close(stream)
    stream.sync()
    return {"name": card.name, "uuid": card.uuid, "capability": list(card.compute_capability), "size": size}


ok(driver.cuInit(0))
said = {"version": ok(driver.cuDriverGetVersion()), "count": ok(driver.cuDeviceGetCount())}
context = ok(driver.cuDevicePrimaryCtxRetain(0))
ok(driver.cuCtxSetCurrent(context))
free, total = ok(driver.cuMemGetInfo())
for part in (memory, mapped, ordered, code):
    said[part.__name__] = part()
    assert ok(driver.cuMemGetInfo()) == (free, total), f"{part.__name__} has not given everything back"
said["core"] = core()  # a pool that keeps its memory
said["total"] = total
print(json.dumps(said))
