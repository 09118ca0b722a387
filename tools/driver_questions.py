# SPDX-License-Identifier: Apache-2.0
"""Questions to a CUDA driver. The answers are the rules of the simulated driver.

Each question is a function: its docstring is the question, its answer is a dict of numbers and truth values. Result
codes are the driver's own (CUresult). Names that end in _bytes are recorded and not compared, because they differ from
card to card. tools/record-driver asks each question in a process of its own, because some end the context.
"""

import ctypes
import os
import pathlib
import signal
import re
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
MIB = 1 << 20
QUESTIONS = {}


def question(function):
    QUESTIONS[function.__name__] = function
    return function


def fork_program(work):
    """Runs `work` in a child and returns the child's pid. The child ends with this process, however either ends, and
    never returns into the code of its caller.
    """
    parent, child = os.getpid(), os.fork()
    if child != 0:
        return child
    try:
        ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG
        if os.getppid() == parent:
            work()
    finally:
        os._exit(0)


class Library:
    """Calls by name. Arguments are ints, bytes or ctypes objects; a result is the library's code."""

    def __init__(self, soname):
        self.library = ctypes.CDLL(soname)

    def __getattr__(self, name):
        function = getattr(self.library, name)

        def call(*arguments):
            return function(
                *(ctypes.c_uint64(value) if isinstance(value, int) else value for value in arguments)
            )

        return call


class Location(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int)]


class AllocationProperties(ctypes.Structure):
    _fields_ = [
        ("type", ctypes.c_int),
        ("handle_types", ctypes.c_int),
        ("location", Location),
        ("security", ctypes.c_void_p),
        ("flags", ctypes.c_ubyte * 8),
    ]


class Access(ctypes.Structure):
    _fields_ = [("location", Location), ("flags", ctypes.c_int)]


def device_properties(handle_types=0):
    return AllocationProperties(type=1, handle_types=handle_types, location=Location(1, 0))


class Cuda(Library):
    def __init__(self):
        super().__init__("libcuda.so.1")

    def must(self, name, *arguments):
        code = getattr(self, name)(*arguments)
        if code != 0:
            raise RuntimeError(f"{name} -> {code}")

    def start(self):
        self.must("cuInit", 0)
        context = ctypes.c_void_p()
        self.must("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self.must("cuCtxSetCurrent", context)
        return self

    def number(self, name, *arguments):
        value = ctypes.c_uint64()
        self.must(name, ctypes.byref(value), *arguments)
        return value.value

    def free_bytes(self):
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.must("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value

    def granularity(self, recommended=False):
        return self.number(
            "cuMemGetAllocationGranularity", ctypes.byref(device_properties()), int(recommended)
        )

    def create(self, size, handle_types=0):
        return self.number("cuMemCreate", size, ctypes.byref(device_properties(handle_types)), 0)

    def reserve(self, size):
        return self.number("cuMemAddressReserve", size, 0, 0, 0)

    def allow(self, address, size):
        return self.cuMemSetAccess(address, size, ctypes.byref(Access(Location(1, 0), 3)), 1)

    def mapped(self, size):
        """-> an address with accessible memory behind it, and the memory's handle."""
        address, handle = self.reserve(size), self.create(size)
        self.must("cuMemMap", address, size, 0, handle, 0)
        if self.allow(address, size) != 0:
            raise RuntimeError("cuMemSetAccess")
        return address, handle

    def read(self, address, size=4):
        return self.cuMemcpyDtoH_v2(ctypes.create_string_buffer(size), address, size)

    def kernel(self, name):
        text = re.search(
            r'R"ptx\((.*?)\)ptx"', (ROOT / "simgpu/tools/kernels_ptx.h").read_text(), re.S
        ).group(1)
        self.module = self.number("cuModuleLoadData", text.strip().encode() + b"\0")
        return self.number("cuModuleGetFunction", self.module, name.encode())

    def launch(self, function, *arguments):
        values = [ctypes.c_uint64(value) for value in arguments]
        pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        one = ctypes.c_uint(1)
        return self.cuLaunchKernel(
            function, one, one, one, one, one, one, ctypes.c_uint(0), 0, pointers, None
        )

    def waits_for_pending_work(self, call):
        """Whether the call returns only when a kernel that was launched before it has ended."""
        busy = self.kernel("sublet_busy")
        self.must("cuCtxSynchronize")
        if self.launch(busy, 200_000_000) != 0:
            raise RuntimeError("cuLaunchKernel")
        start = time.monotonic()
        code = call()
        return {"code": code, "waits": time.monotonic() - start > 0.1}


# ------------------------------------------------------------------------------------------- start


@question
def before_init():
    """Calls before cuInit."""
    cuda, count = Cuda(), ctypes.c_int()
    return {
        "device_count": cuda.cuDeviceGetCount(ctypes.byref(count)),
        "alloc": cuda.cuMemAlloc_v2(ctypes.byref(ctypes.c_uint64()), 4096),
    }


@question
def without_context():
    """Calls when no context is current."""
    cuda = Cuda()
    cuda.must("cuInit", 0)
    return {
        "alloc": cuda.cuMemAlloc_v2(ctypes.byref(ctypes.c_uint64()), 4096),
        "synchronize": cuda.cuCtxSynchronize(),
    }


@question
def forked_child():
    """A call in a forked child after the parent's cuInit."""
    cuda = Cuda().start()
    read_end, write_end = os.pipe()

    def alloc():
        os.write(write_end, bytes([cuda.cuMemAlloc_v2(ctypes.byref(ctypes.c_uint64()), 4096) & 0xFF]))

    child = fork_program(alloc)
    os.close(write_end)
    os.waitpid(child, 0)
    answer = os.read(read_end, 1)
    return {"alloc": answer[0] if answer else "died"}


@question
def lookup_by_version():
    """cuGetProcAddress: one name at two versions, and an unknown name."""
    cuda = Cuda()
    cuda.must("cuInit", 0)

    def find(name, version, flags=0):
        pointer, status = ctypes.c_void_p(), ctypes.c_int(-1)
        code = cuda.cuGetProcAddress_v2(
            name, ctypes.byref(pointer), ctypes.c_int(version), flags, ctypes.byref(status)
        )
        return code, pointer.value, status.value

    unknown = find(b"cuNobodyKnowsThis", 12000)
    return {
        "mem_alloc_differs_2000_3020": find(b"cuMemAlloc", 2000)[1] != find(b"cuMemAlloc", 3020)[1],
        "per_thread_differs": find(b"cuMemcpyDtoH", 12000, 1)[1] != find(b"cuMemcpyDtoH", 12000, 2)[1],
        "unknown_code": unknown[0],
        "unknown_is_null": unknown[1] is None,
        "unknown_status": unknown[2],
    }


# ------------------------------------------------------------------------------------------- memory


@question
def allocation_sizes():
    """cuMemAlloc of nothing and of more than there is; whether the second spoils the context."""
    cuda, pointer = Cuda().start(), ctypes.c_uint64()
    return {
        "zero": cuda.cuMemAlloc_v2(ctypes.byref(pointer), 0),
        "too_much": cuda.cuMemAlloc_v2(ctypes.byref(pointer), 1 << 45),
        "after_that": cuda.cuMemAlloc_v2(ctypes.byref(pointer), 4096),
    }


@question
def freeing():
    """cuMemFree of null, of a pointer into an allocation, and twice."""
    cuda = Cuda().start()
    address = cuda.number("cuMemAlloc_v2", 4 * MIB)
    return {
        "null": cuda.cuMemFree_v2(0),
        "inside": cuda.cuMemFree_v2(address + 4096),
        "once": cuda.cuMemFree_v2(address),
        "twice": cuda.cuMemFree_v2(address),
    }


@question
def free_waits():
    """cuMemFree while a kernel runs."""
    cuda = Cuda().start()
    address = cuda.number("cuMemAlloc_v2", 4 * MIB)
    return cuda.waits_for_pending_work(lambda: cuda.cuMemFree_v2(address))


@question
def address_range_of_an_allocation():
    """cuMemGetAddressRange in the middle of an allocation that is no multiple of anything."""
    cuda = Cuda().start()
    address = cuda.number("cuMemAlloc_v2", 5 * MIB + 12)
    base, size = ctypes.c_uint64(), ctypes.c_size_t()
    code = cuda.cuMemGetAddressRange_v2(ctypes.byref(base), ctypes.byref(size), address + 4097)
    return {"code": code, "base_is_start": base.value == address, "size": size.value}


@question
def beyond_an_allocation():
    """A copy that runs over the end of an allocation by far."""
    cuda = Cuda().start()
    address = cuda.number("cuMemAlloc_v2", 2 * MIB)
    return {"copy": cuda.read(address + 2 * MIB - 4096, 64 * MIB), "afterwards": cuda.read(address)}


@question
def stream_query_while_busy():
    """cuStreamQuery while a kernel runs, and when it has ended."""
    cuda = Cuda().start()
    busy = cuda.kernel("sublet_busy")
    cuda.must("cuCtxSynchronize")
    cuda.launch(busy, 200_000_000)
    answer = {"busy": cuda.cuStreamQuery(0)}
    return {**answer, "synchronize": cuda.cuCtxSynchronize(), "idle": cuda.cuStreamQuery(0)}


@question
def illegal_address_is_sticky():
    """A kernel that writes where nothing is mapped, and what follows."""
    cuda = Cuda().start()
    address, fill = cuda.reserve(cuda.granularity()), cuda.kernel("sublet_fill")
    return {
        "launch": cuda.launch(fill, address, 512, 1),
        "synchronize": cuda.cuCtxSynchronize(),
        "alloc": cuda.cuMemAlloc_v2(ctypes.byref(ctypes.c_uint64()), 4096),
        "again": cuda.cuCtxSynchronize(),
    }


# ------------------------------------------------------------------------------------------- virtual memory


@question
def granularity():
    """The granularity of physical memory on the card."""
    cuda = Cuda().start()
    return {"minimum": cuda.granularity(), "recommended": cuda.granularity(True)}


@question
def sizes_off_the_granularity():
    """cuMemCreate and cuMemAddressReserve of sizes that are no multiple of the granularity."""
    cuda, out = Cuda().start(), ctypes.c_uint64()
    size = cuda.granularity() + 4096
    return {
        "create": cuda.cuMemCreate(ctypes.byref(out), size, ctypes.byref(device_properties()), 0),
        "reserve": cuda.cuMemAddressReserve(ctypes.byref(out), size, 0, 0, 0),
    }


@question
def mapping_rules():
    """cuMemMap at an offset, of a part, over something mapped, and outside a reservation."""
    cuda = Cuda().start()
    size = cuda.granularity()
    address, handle = cuda.reserve(4 * size), cuda.create(2 * size)
    answer = {
        "offset": cuda.cuMemMap(address, size, size, handle, 0),
        "part": cuda.cuMemMap(address, size, 0, handle, 0),
    }
    cuda.cuMemUnmap(address, size)
    answer["whole"] = cuda.cuMemMap(address, 2 * size, 0, handle, 0)
    answer["over"] = cuda.cuMemMap(address, 2 * size, 0, cuda.create(2 * size), 0)
    answer["outside"] = cuda.cuMemMap(address + 64 * size, 2 * size, 0, cuda.create(2 * size), 0)
    return answer


@question
def access_rules():
    """Reading mapped memory before access is set; setting access on half of it, and on nothing mapped."""
    cuda = Cuda().start()
    size = cuda.granularity()
    address, handle = cuda.reserve(4 * size), cuda.create(2 * size)
    cuda.must("cuMemMap", address, 2 * size, 0, handle, 0)
    return {
        "read_before": cuda.read(address),
        "unmapped": cuda.allow(address + 2 * size, size),
        "beyond": cuda.allow(address, 4 * size),
        "half": cuda.allow(address, size),
        "whole": cuda.allow(address, 2 * size),
        "read_after": cuda.read(address),
    }


@question
def unmapping_rules():
    """cuMemUnmap of a part, of the whole, twice; freeing a reservation that is still mapped."""
    cuda = Cuda().start()
    size = cuda.granularity()
    address, _ = cuda.mapped(2 * size)
    return {
        "part": cuda.cuMemUnmap(address, size),
        "free_while_mapped": cuda.cuMemAddressFree(address, 2 * size),
        "whole": cuda.cuMemUnmap(address, 2 * size),
        "twice": cuda.cuMemUnmap(address, 2 * size),
        "free": cuda.cuMemAddressFree(address, 2 * size),
    }


@question
def release_before_unmap():
    """Whether memory whose handle was released stays until it is unmapped."""
    cuda = Cuda().start()
    size = 64 * MIB
    address, handle = cuda.mapped(size)
    before = cuda.free_bytes()
    answer = {
        "release": cuda.cuMemRelease(handle),
        "kept_after_release": cuda.free_bytes() == before,
        "read": cuda.read(address),
        "release_twice": cuda.cuMemRelease(handle),
    }
    return {
        **answer,
        "unmap": cuda.cuMemUnmap(address, size),
        "returned_by_unmap": cuda.free_bytes() - before == size,
    }


@question
def address_range_stops_at_a_segment():
    """cuMemGetAddressRange where two handles are mapped one after the other."""
    cuda = Cuda().start()
    size = cuda.granularity()
    address = cuda.reserve(2 * size)
    for i in range(2):
        cuda.must("cuMemMap", address + i * size, size, 0, cuda.create(size), 0)
    cuda.allow(address, 2 * size)
    base, length = ctypes.c_uint64(), ctypes.c_size_t()
    code = cuda.cuMemGetAddressRange_v2(ctypes.byref(base), ctypes.byref(length), address + size + 16)
    return {
        "code": code,
        "base_offset_in_granules": (base.value - address) // size,
        "granules": length.value // size,
    }


@question
def what_mapped_memory_cannot_do():
    """Legacy IPC and SYNC_MEMOPS on mapped memory; exporting what was not made for it."""
    cuda = Cuda().start()
    size = cuda.granularity()
    address, handle = cuda.mapped(size)
    flag, descriptor = ctypes.c_int(1), ctypes.c_int(-1)
    return {
        "ipc": cuda.cuIpcGetMemHandle(ctypes.create_string_buffer(64), address),
        "sync_memops": cuda.cuPointerSetAttribute(ctypes.byref(flag), 6, address),
        "export": cuda.cuMemExportToShareableHandle(ctypes.byref(descriptor), handle, 1, 0),
        "free": cuda.cuMemFree_v2(address),
    }


@question
def export_by_descriptor():
    """A handle exported and imported again within one process: one memory or two?"""
    cuda = Cuda().start()
    size = cuda.granularity()
    handle, descriptor, imported = cuda.create(size, 1), ctypes.c_int(-1), ctypes.c_uint64()
    before = cuda.free_bytes()
    answer = {
        "export": cuda.cuMemExportToShareableHandle(ctypes.byref(descriptor), handle, 1, 0),
        "import": cuda.cuMemImportFromShareableHandle(
            ctypes.byref(imported), ctypes.c_void_p(descriptor.value), 1
        ),
    }
    return {**answer, "takes_no_more": cuda.free_bytes() == before}
