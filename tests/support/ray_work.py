# SPDX-License-Identifier: Apache-2.0
"""Work on simulated cards for the workers of Ray. Only the standard library is used."""
import ctypes
import os

MIB = 1 << 20


class Card:
    """A CUDA context with some memory on the first visible device."""

    def __init__(self, mib=64):
        self.cuda = ctypes.CDLL("libcuda.so.1")
        device, context, self.address = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
        self._call("cuInit", 0)
        self._call("cuDeviceGet", ctypes.byref(device), 0)
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.context = context
        self._call("cuCtxSetCurrent", context)
        self._call("cuMemAlloc_v2", ctypes.byref(self.address), ctypes.c_size_t(mib * MIB))

    def _call(self, name, *arguments):
        result = getattr(self.cuda, name)(*arguments)
        if result != 0:
            raise RuntimeError(f"{name}: {result}")

    def write(self, number):
        """Keeps a number on the card."""
        self._call("cuCtxSetCurrent", self.context)
        self._call("cuMemcpyHtoD_v2", self.address, ctypes.byref(ctypes.c_uint64(number)), ctypes.c_size_t(8))

    def read(self):
        """Reads the number from the card. Blocks while the process is parked."""
        value = ctypes.c_uint64()
        self._call("cuCtxSetCurrent", self.context)
        self._call("cuMemcpyDtoH_v2", ctypes.byref(value), self.address, ctypes.c_size_t(8))
        return value.value


def wait_for(path):
    """Works on nothing until the file is there; the test makes it."""
    import select
    while not os.path.exists(path):
        select.select([], [], [], 0.02)
