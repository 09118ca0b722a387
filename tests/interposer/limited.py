# SPDX-License-Identifier: Apache-2.0
"""The pages of src/wire/limit.h, and a program with a limit: it adopts a page of limits from the preloaded library, and
compares the library's account with what the first simulated card says of this process.
"""
import ctypes
import json
import os
import subprocess

MIB = 1 << 20
BLOCK = 2 * MIB
ABI = 2  # of the pages
OK, INVALID_VALUE, OUT_OF_MEMORY = 0, 1, 2
CONTEXT, LIMIT = 100 * MIB, 512 * MIB
size_t, address_t = ctypes.c_size_t, ctypes.c_uint64


class LimitDevice(ctypes.Structure):
    _fields_ = [("uuid", ctypes.c_ubyte * 16), ("limit", address_t), ("credit", address_t), ("others", address_t),
                ("context", address_t), ("share", ctypes.c_uint32), ("gain", ctypes.c_uint32)]


class LimitPage(ctypes.Structure):
    _fields_ = [("size", ctypes.c_uint32), ("abi", ctypes.c_uint32), ("devices", ctypes.c_uint32),
                ("reserved", ctypes.c_uint32), ("device", LimitDevice * 16)]


class UseDevice(ctypes.Structure):
    _fields_ = [("charged", address_t), ("most", address_t), ("refused", address_t), ("busy", address_t),
                ("held", address_t)]


class UseError(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint32), ("reserved", ctypes.c_uint32), ("count", address_t)]


class UseShard(ctypes.Structure):
    _fields_ = [("launches", address_t), ("copied", address_t), ("allocated", address_t), ("reserved", address_t * 5)]


class UsePage(ctypes.Structure):
    _fields_ = [("size", ctypes.c_uint32), ("abi", ctypes.c_uint32), ("devices", ctypes.c_uint32),
                ("is_uncovered", ctypes.c_uint32), ("device", UseDevice * 16), ("error", UseError * 16),
                ("other_errors", address_t), ("reserved", address_t * 5), ("shard", UseShard * 32)]

    def counts(self):
        """-> launches, bytes copied, bytes allocated, errors by code"""
        sums = [sum(getattr(shard, name) for shard in self.shard) for name in ("launches", "copied", "allocated")]
        return (*sums, {error.code: error.count for error in self.error if error.count})


class Properties(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("handles", ctypes.c_int), ("location", ctypes.c_int),
                ("device", ctypes.c_int), ("win32", ctypes.c_void_p), ("flags", ctypes.c_ubyte * 8)]


class PoolProperties(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("handles", ctypes.c_int), ("location", ctypes.c_int),
                ("device", ctypes.c_int), ("more", ctypes.c_ubyte * 72)]


def card():
    words = [os.environ["SIMGPU_CTL"], "show", "--json"]
    env = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    return json.loads(subprocess.run(words, env=env, check=True, capture_output=True, text=True).stdout)


class Gpu:
    def __init__(self, limit=LIMIT, credit=None):
        self.ours = ctypes.CDLL(None)
        self.driver = ctypes.CDLL("libcuda.so.1")
        self.page = LimitPage(ctypes.sizeof(LimitPage), ABI, 1)
        [device] = card()["devices"]
        self.row = self.page.device[0]
        self.row.uuid[:] = bytes.fromhex(device["uuid"].removeprefix("GPU-").replace("-", ""))
        self.row.limit, self.row.credit, self.row.context = limit, limit if credit is None else credit, CONTEXT
        assert self.ours.sublet_cuda_adopt(ctypes.byref(self.page)) == 0
        assert self.ours.sublet_cuda_adopt(ctypes.byref(self.page)) == -1, "the first page stays"

    def begin(self):
        assert self.driver.cuInit(0) == OK
        context = ctypes.c_void_p()
        result = self.driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
        if result == OK:
            assert self.driver.cuCtxSetCurrent(context) == OK
        return result

    def use(self):
        page = UsePage(ctypes.sizeof(UsePage))
        assert self.ours.sublet_cuda_use(ctypes.byref(page)) == 0
        return page.device[0]

    def on_card(self):
        """Bytes that the card says this process has."""
        mine = [process for process in card()["processes"] if process["pid"] == os.getpid()]
        return sum(use["bytes"] for process in mine for use in process["devices"])

    def check(self, beyond=0, slack=0):
        charged = self.use().charged
        assert charged == self.on_card() + beyond, (charged // MIB, self.on_card() // MIB)
        assert charged <= self.use().most <= self.row.limit + slack
        return charged

    def info(self):
        free, total = size_t(), size_t()
        assert self.driver.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == OK
        return free.value, total.value

    def alloc(self, size):
        out = address_t()
        return self.driver.cuMemAlloc_v2(ctypes.byref(out), size_t(size)), out.value

    def free(self, address):
        return self.driver.cuMemFree_v2(address_t(address))

    def create(self, size):
        out, wanted = address_t(), Properties(1, 0, 1, 0)
        return self.driver.cuMemCreate(ctypes.byref(out), size_t(size), ctypes.byref(wanted), address_t(0)), out.value

    def release(self, handle):
        return self.driver.cuMemRelease(address_t(handle))

    def reserve(self, size):
        out = address_t()
        assert self.driver.cuMemAddressReserve(ctypes.byref(out), size_t(size), size_t(0), address_t(0),
                                               address_t(0)) == OK
        return out.value

    def map(self, address, size, handle):
        return self.driver.cuMemMap(address_t(address), size_t(size), size_t(0), address_t(handle), address_t(0))

    def unmap(self, address, size):
        return self.driver.cuMemUnmap(address_t(address), size_t(size))

    def alloc_async(self, size, pool=None):
        out = address_t()
        if pool is None:
            return self.driver.cuMemAllocAsync(ctypes.byref(out), size_t(size), None), out.value
        return self.driver.cuMemAllocFromPoolAsync(ctypes.byref(out), size_t(size), pool, None), out.value

    def free_async(self, address):
        return self.driver.cuMemFreeAsync(address_t(address), None)

    def pool(self):
        out, wanted = ctypes.c_void_p(), PoolProperties(1, 0, 1, 0)
        assert self.driver.cuMemPoolCreate(ctypes.byref(out), ctypes.byref(wanted)) == OK
        return out

    def keep_all(self, pool):
        threshold = address_t((1 << 64) - 1)
        assert self.driver.cuMemPoolSetAttribute(pool, 4, ctypes.byref(threshold)) == OK
