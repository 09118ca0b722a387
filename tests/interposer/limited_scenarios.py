# SPDX-License-Identifier: Apache-2.0
"""`python3 -m tests.interposer.limited_scenarios SCENARIO` plays a scenario under a limit, and fails unless the account
of the library is what the card says.
"""
import contextlib
import ctypes
import os
import random
import subprocess
import sys
import threading

from tests.interposer.limited import (BLOCK, CONTEXT, INVALID_VALUE, LIMIT, MIB, OK, OUT_OF_MEMORY, Gpu, Properties,
                                      address_t, card, size_t)

SEED = 60


def linear(gpu):
    """Blocks of small allocations are shared, large ones are rounded up; the limit is exact and the error is the
    driver's."""
    assert gpu.check() == CONTEXT
    small = [gpu.alloc(512 * (i + 1)) for i in range(100)]
    assert all(result == OK for result, _ in small) and gpu.check() == CONTEXT + 2 * BLOCK
    result, large = gpu.alloc(3 * MIB)
    assert result == OK and gpu.check() == CONTEXT + 4 * BLOCK
    rest = LIMIT - gpu.use().charged
    assert gpu.alloc(rest + 1) == (OUT_OF_MEMORY, 0) and gpu.use().refused == 1
    result, all_of_it = gpu.alloc(rest)
    assert result == OK and gpu.check() == LIMIT
    assert gpu.alloc(512)[0] == OUT_OF_MEMORY
    assert gpu.free(all_of_it) == OK and gpu.free(all_of_it) == INVALID_VALUE and gpu.free(0) == OK
    assert gpu.alloc(0)[0] == INVALID_VALUE and gpu.alloc((1 << 64) - 1)[0] == OUT_OF_MEMORY
    assert gpu.alloc(1 << 50)[0] == OUT_OF_MEMORY
    assert gpu.free(large + 512) == INVALID_VALUE and gpu.free(large) == OK
    for _, address in small:
        assert gpu.free(address) == OK
    assert gpu.check() == CONTEXT


def pitched(gpu):
    out, pitch = address_t(), size_t()

    def make(width, height, element=4):
        return gpu.driver.cuMemAllocPitch_v2(ctypes.byref(out), ctypes.byref(pitch), size_t(width), size_t(height),
                                             element)
    assert make(1000, 10000) == OK and gpu.check() == CONTEXT + 10 * MIB
    assert make(1000, 1 << 40) == OUT_OF_MEMORY and make((1 << 64) - 1, 3) == OUT_OF_MEMORY
    assert make(1000, 1000, 5) == INVALID_VALUE and gpu.check() == CONTEXT + 10 * MIB
    assert gpu.free(out.value) == OK and gpu.check() == CONTEXT


def managed(gpu):
    out = address_t()
    assert gpu.driver.cuMemAllocManaged(ctypes.byref(out), size_t(64 * MIB), 1) == OK
    # It may all move to the card, although the simulated card never gets it.
    gpu.check(beyond=64 * MIB)
    assert gpu.driver.cuMemAllocManaged(ctypes.byref(address_t()), size_t(LIMIT), 1) == OUT_OF_MEMORY
    assert gpu.free(out.value) == OK and gpu.check() == CONTEXT


def mappings(gpu):
    """Physical memory stays charged until its last handle and its last mapping are gone."""
    size, place = 32 * MIB, gpu.reserve(256 * MIB)
    result, handle = gpu.create(size)
    assert result == OK and gpu.check() == CONTEXT + size
    assert gpu.map(place, size, handle) == OK and gpu.release(handle) == OK
    assert gpu.check() == CONTEXT + size, "released, and still mapped"
    again = address_t()
    for inside in (0, BLOCK):
        assert gpu.driver.cuMemRetainAllocationHandle(ctypes.byref(again), ctypes.c_void_p(place + inside)) == OK
    assert gpu.map(place + size, size, again.value) == OK
    assert gpu.unmap(place, 2 * size) == OK and gpu.check() == CONTEXT + size, "its handles are left"
    assert gpu.release(again.value) == OK and gpu.check() == CONTEXT + size
    assert gpu.release(again.value) == OK and gpu.check() == CONTEXT
    assert gpu.release(again.value) == INVALID_VALUE and gpu.unmap(place, size) == INVALID_VALUE
    assert gpu.unmap(place, 0) == INVALID_VALUE and gpu.map(place, size, 4711) == INVALID_VALUE
    assert gpu.create(LIMIT)[0] == OUT_OF_MEMORY and gpu.create(1)[0] == INVALID_VALUE
    for _ in range(3000):
        result, handle = gpu.create(256 * MIB)
        assert result == OK and gpu.map(place, 256 * MIB, handle) == OK
        assert gpu.release(handle) == OK and gpu.create(256 * MIB)[0] == OUT_OF_MEMORY
        assert gpu.unmap(place, 256 * MIB) == OK
    assert gpu.check() == CONTEXT


def exported(gpu):
    """The memory of an import belongs to the process that made it."""
    wanted, handle, other, place = Properties(1, 1, 1, 0), address_t(), address_t(), gpu.reserve(BLOCK)
    assert gpu.driver.cuMemCreate(ctypes.byref(handle), size_t(BLOCK), ctypes.byref(wanted), address_t(0)) == OK
    fd = ctypes.c_int()
    assert gpu.driver.cuMemExportToShareableHandle(ctypes.byref(fd), handle, 1, address_t(0)) == OK
    assert gpu.driver.cuMemImportFromShareableHandle(ctypes.byref(other), ctypes.c_void_p(fd.value), 1) == OK
    assert gpu.use().charged == CONTEXT + BLOCK
    assert gpu.map(place, BLOCK, other.value) == OK and gpu.release(other.value) == OK
    assert gpu.unmap(place, BLOCK) == OK and gpu.use().charged == CONTEXT + BLOCK
    assert gpu.release(handle.value) == OK and gpu.use().charged == CONTEXT


def pools(gpu):
    """Pools are charged by what they reserve. Their idle memory is given back before anything is refused."""
    default = ctypes.c_void_p()
    assert gpu.driver.cuDeviceGetDefaultMemPool(ctypes.byref(default), 0) == OK
    gpu.keep_all(default)
    result, first = gpu.alloc_async(MIB)
    assert result == OK and gpu.check() == CONTEXT + 32 * MIB
    result, second = gpu.alloc_async(31 * MIB)
    assert result == OK and gpu.check() == CONTEXT + 32 * MIB
    result, third = gpu.alloc_async(300 * MIB)
    assert result == OK and gpu.check() == CONTEXT + 352 * MIB
    assert gpu.alloc_async(100 * MIB)[0] == OUT_OF_MEMORY
    assert gpu.free_async(third) == OK and gpu.driver.cuCtxSynchronize() == OK
    assert gpu.check() == CONTEXT + 352 * MIB, "the pool keeps it"
    result, again = gpu.alloc_async(300 * MIB)
    assert result == OK and gpu.check() == CONTEXT + 352 * MIB, "the pool has it already"
    assert gpu.free_async(again) == OK and gpu.driver.cuCtxSynchronize() == OK
    result, linear_memory = gpu.alloc(200 * MIB)
    assert result == OK and gpu.check() == CONTEXT + 232 * MIB, "the idle part of the pool was given back"
    assert gpu.free(linear_memory) == OK
    for address in (first, second):
        assert gpu.free_async(address) == OK
    assert gpu.driver.cuCtxSynchronize() == OK and gpu.driver.cuMemPoolTrimTo(default, size_t(0)) == OK
    assert gpu.info() == (LIMIT - CONTEXT, LIMIT) and gpu.check() == CONTEXT


def made_pools(gpu):
    pool = gpu.pool()
    result, address = gpu.alloc_async(40 * MIB, pool)
    assert result == OK and gpu.check() == CONTEXT + 64 * MIB
    assert gpu.alloc_async(LIMIT, pool)[0] == OUT_OF_MEMORY
    assert gpu.free(address) == OK and gpu.driver.cuMemPoolDestroy(pool) == OK and gpu.check() == CONTEXT


def in_order(gpu):
    """cuMemAlloc's memory that is freed in the order of a stream: charged until the stream has come to it."""
    result, address = gpu.alloc(64 * MIB)
    assert result == OK
    go = threading.Event()
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: go.wait(60) and None)
    assert gpu.driver.cuLaunchHostFunc(None, function, None) == OK
    assert gpu.free_async(address) == OK and gpu.use().charged == CONTEXT + 64 * MIB
    go.set()
    assert gpu.driver.cuCtxSynchronize() == OK and gpu.check() == CONTEXT


def contexts(gpu):
    """The end of a context gives back what it took, and the linear memory in it."""
    driver, made = gpu.driver, ctypes.c_void_p()
    assert driver.cuCtxCreate_v2(ctypes.byref(made), 0, 0) == OK and gpu.check() == 2 * CONTEXT
    for size in (512, 3 * MIB, 70 * MIB):
        assert gpu.alloc(size)[0] == OK
    result, handle = gpu.create(40 * MIB)
    assert result == OK
    gpu.check()
    assert driver.cuCtxCreate_v4(ctypes.byref(ctypes.c_void_p()), None, 0, 0) == OK
    gpu.check()
    assert driver.cuCtxCreate_v4(ctypes.byref(ctypes.c_void_p()), None, 0, 0) == OUT_OF_MEMORY
    last = ctypes.c_void_p()
    assert driver.cuCtxGetCurrent(ctypes.byref(last)) == OK and driver.cuCtxDestroy_v2(last) == OK
    assert driver.cuCtxDestroy_v2(made) == OK and driver.cuCtxDestroy_v2(made) != OK
    assert gpu.check() == CONTEXT + 40 * MIB, "physical memory has no context"
    assert gpu.release(handle) == OK
    # The primary context ends with its last user.
    primary = ctypes.c_void_p()
    assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(primary), 0) == OK and gpu.check() == CONTEXT
    assert driver.cuCtxSetCurrent(primary) == OK and gpu.alloc(5 * MIB)[0] == OK
    assert driver.cuDevicePrimaryCtxRelease_v2(0) == OK and gpu.check() == CONTEXT + 6 * MIB
    assert driver.cuDevicePrimaryCtxRelease_v2(0) == OK and gpu.check() == 0
    assert gpu.begin() == OK and gpu.alloc(5 * MIB)[0] == OK and gpu.check() == CONTEXT + 6 * MIB
    assert driver.cuDevicePrimaryCtxReset_v2(0) == OK and gpu.check() == 0
    assert gpu.begin() == OK


def no_context_fits(gpu):
    gpu.row.credit = CONTEXT - 1
    assert gpu.driver.cuDevicePrimaryCtxRelease_v2(0) == OK
    assert gpu.begin() == OUT_OF_MEMORY and gpu.check() == 0
    gpu.row.credit = CONTEXT
    assert gpu.begin() == OK and gpu.check() == CONTEXT


def limits_of_contexts(gpu):
    value, stack, heap = size_t(), 0, 2
    assert gpu.driver.cuCtxGetLimit(ctypes.byref(value), heap) == OK
    assert gpu.driver.cuCtxSetLimit(heap, size_t(value.value + 100 * MIB)) == OK
    assert gpu.use().charged == CONTEXT + 100 * MIB
    assert gpu.driver.cuCtxSetLimit(heap, size_t(1 << 40)) == OUT_OF_MEMORY
    assert gpu.driver.cuCtxSetLimit(stack, size_t(1 << 20)) == OUT_OF_MEMORY
    assert gpu.driver.cuCtxSetLimit(stack, size_t((1 << 64) - 1)) == OUT_OF_MEMORY
    assert gpu.driver.cuCtxSetLimit(99, size_t(1)) == 215
    assert gpu.driver.cuCtxSetLimit(heap, value) == OK and gpu.use().charged == CONTEXT
    assert gpu.driver.cuCtxSetLimit(heap, size_t(MIB)) == OK and gpu.use().charged == CONTEXT


def sizes(gpu):
    """Total and free memory are those of the lease, and never wrap around."""
    total = size_t()
    assert gpu.driver.cuDeviceTotalMem_v2(ctypes.byref(total), 0) == OK and total.value == LIMIT
    assert gpu.driver.cuDeviceTotalMem_v2(ctypes.byref(total), 7) != OK
    assert gpu.info() == (LIMIT - CONTEXT, LIMIT)
    gpu.row.others = 200 * MIB
    assert gpu.info() == (LIMIT - CONTEXT - 200 * MIB, LIMIT)
    for others, limit in ((LIMIT, LIMIT), (1 << 63, LIMIT), (0, CONTEXT), (0, MIB), (MIB, 0)):
        gpu.row.others, gpu.row.limit = others, limit
        assert gpu.info() == (0, limit)
    gpu.row.others, gpu.row.limit = 0, 1 << 50
    free, total = gpu.info()
    [device] = card()["devices"]
    assert total == device["total_bytes"] - device["driver_reserved_bytes"] and free == device["free_bytes"]
    gpu.row.limit = LIMIT


def credit(gpu):
    """The writer of the page may change the credit at any time. A smaller one takes nothing away."""
    gpu.row.credit = CONTEXT + 10 * MIB
    assert gpu.alloc(12 * MIB)[0] == OUT_OF_MEMORY
    result, address = gpu.alloc(10 * MIB)
    assert result == OK
    gpu.row.credit = 0
    assert gpu.alloc(1)[0] == OUT_OF_MEMORY and gpu.info()[0] == LIMIT - CONTEXT - 10 * MIB
    assert gpu.free(address) == OK and gpu.check() == CONTEXT
    gpu.row.credit = LIMIT


def failing_driver(gpu):
    """A call that the driver refuses is not charged."""
    for fault, call in (("alloc-fail", lambda: gpu.alloc(3 * MIB)), ("create-fail", lambda: gpu.create(4 * MIB)),
                        ("alloc-fail", lambda: gpu.alloc_async(3 * MIB))):
        subprocess.run([os.environ["SIMGPU_CTL"], "fault", fault], check=True)
        assert call()[0] == OUT_OF_MEMORY
        subprocess.run([os.environ["SIMGPU_CTL"], "clear", fault], check=True)
        assert gpu.use().refused == 0 and gpu.check() == CONTEXT
    result, handle = gpu.create(4 * MIB)
    place = gpu.reserve(4 * MIB)
    subprocess.run([os.environ["SIMGPU_CTL"], "fault", "map-fail"], check=True)
    assert result == OK and gpu.map(place, 4 * MIB, handle) == OUT_OF_MEMORY
    subprocess.run([os.environ["SIMGPU_CTL"], "clear", "map-fail"], check=True)
    assert gpu.release(handle) == OK and gpu.check() == CONTEXT


def forked(gpu):
    """A child cannot use the driver, and changes nothing of its parent's account."""
    assert gpu.alloc(10 * MIB)[0] == OK
    child = os.fork()
    if child == 0:
        os._exit(0 if gpu.alloc(20 * MIB)[0] not in (OK, OUT_OF_MEMORY) and gpu.use().charged == CONTEXT + 10 * MIB
                 else 1)
    assert os.waitpid(child, 0)[1] == 0 and gpu.check() == CONTEXT + 10 * MIB


def randomly(gpu):
    """Random calls of all kinds near the limit: the account is the card's after each hundred of them."""
    print("seed", SEED)
    chance, live, place = random.Random(SEED), [], gpu.reserve(1 << 30)
    pool, handles, at = gpu.pool(), {}, 0
    for step in range(4000):
        kind = chance.choice(("small", "large", "pooled", "physical", "free", "free", "free", "sync"))
        size = {"small": chance.randrange(1, MIB), "large": chance.randrange(MIB, 60 * MIB),
                "pooled": chance.randrange(1, 20 * MIB), "physical": BLOCK * chance.randrange(1, 20)}.get(kind)
        if kind == "sync":
            assert gpu.driver.cuCtxSynchronize() == OK
        elif kind == "free" and live:
            kind, address, size = live.pop(chance.randrange(len(live)))
            if kind == "physical":
                assert gpu.unmap(address, size) == OK
            else:
                assert (gpu.free_async if kind == "pooled" else gpu.free)(address) == OK
        elif kind in ("small", "large"):
            result, address = gpu.alloc(size)
            assert result in (OK, OUT_OF_MEMORY)
            live += [(kind, address, size)] if result == OK else []
        elif kind == "pooled":
            result, address = gpu.alloc_async(size, pool)
            assert result in (OK, OUT_OF_MEMORY)
            live += [(kind, address, size)] if result == OK else []
        elif kind == "physical":
            result, handle = gpu.create(size)
            taken = [(start, end - start) for _, start, end in
                     ((k, a, a + s) for k, a, s in live if k == "physical")]
            at = next(spot for spot in range(place, place + (1 << 30), BLOCK)
                      if all(spot + size <= start or spot >= start + length for start, length in taken))
            if result == OK:
                assert gpu.map(at, size, handle) == OK and gpu.release(handle) == OK
                live.append((kind, at, size))
        if step % 100 == 99:
            assert gpu.driver.cuCtxSynchronize() == OK
            gpu.info()
            # A pool without a large enough gap takes one step more than it may, until the call returns.
            gpu.check(slack=32 * MIB)
    assert gpu.use().refused > 50
    del handles


SCENARIOS = {function.__name__: function for function in (
    linear, pitched, managed, mappings, exported, pools, made_pools, in_order, contexts, no_context_fits,
    limits_of_contexts, sizes, credit, failing_driver, forked, randomly)}


def main():
    gpu = Gpu()
    with contextlib.suppress(KeyboardInterrupt):
        assert gpu.begin() == OK
        SCENARIOS[sys.argv[1]](gpu)


if __name__ == "__main__":
    main()
