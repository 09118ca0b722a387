# SPDX-License-Identifier: Apache-2.0
"""A CUDA program of a few calls: `cuda_calls.py alloc
create
map
register
copy`.

Reports that it is ready, waits for a line and makes its calls. Then it prints the first error (or 0), which also
decides its exit status.
"""
import ctypes
import mmap
import sys

SIZE = 64 << 20


class Location(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int)]


class AllocationProperties(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("handles", ctypes.c_int), ("location", Location), ("win32", ctypes.c_void_p),
                ("flags", ctypes.c_ubyte * 8)]


class Failed(Exception):
    pass


class Cuda:
    def __init__(self):
        self.library = ctypes.CDLL("libcuda.so.1")

    def __getattr__(self, name):
        function = getattr(self.library, name)

        def call(*arguments):
            result = function(*arguments)
            if result != 0:
                raise Failed(result)
        return call


def begin(cuda):
    device, context = ctypes.c_int(), ctypes.c_void_p()
    cuda.cuInit(0)
    cuda.cuDeviceGet(ctypes.byref(device), 0)
    cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
    cuda.cuCtxSetCurrent(context)


def alloc(cuda):
    address = ctypes.c_uint64()
    cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(SIZE))
    return address


def create(cuda):
    handle = ctypes.c_uint64()
    pinned_on_device = AllocationProperties(type=1, location=Location(1, 0))
    cuda.cuMemCreate(ctypes.byref(handle), ctypes.c_size_t(SIZE), ctypes.byref(pinned_on_device), ctypes.c_uint64(0))
    return handle


def map_memory(cuda):
    handle, address = create(cuda), ctypes.c_uint64()
    cuda.cuMemAddressReserve(ctypes.byref(address), ctypes.c_size_t(SIZE), ctypes.c_size_t(0), ctypes.c_uint64(0),
                             ctypes.c_uint64(0))
    cuda.cuMemMap(address, ctypes.c_size_t(SIZE), ctypes.c_size_t(0), handle, ctypes.c_uint64(0))


def host_memory():
    memory = mmap.mmap(-1, SIZE)
    return memory, ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(memory)))


def register(cuda):
    memory, address = host_memory()
    cuda.cuMemHostRegister_v2(address, ctypes.c_size_t(SIZE), 0)
    return memory


def copy(cuda):
    _, source = host_memory()
    cuda.cuMemcpyHtoD_v2(alloc(cuda), source, ctypes.c_size_t(SIZE))
    cuda.cuCtxSynchronize()


CALLS = {"alloc": alloc, "create": create, "map": map_memory, "register": register, "copy": copy}


def main():
    cuda, result = Cuda(), 0
    try:
        begin(cuda)
        print("ready", flush=True)
        sys.stdin.readline()
        CALLS[sys.argv[1]](cuda)
    except Failed as failed:
        result = failed.args[0]
    print(result, flush=True)
    return 0 if result == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
