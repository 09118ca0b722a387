# SPDX-License-Identifier: Apache-2.0
"""Makes arrays on the driver of null_driver.c under a limit, and checks what the library has charged."""
import ctypes

import limited

MIB = 1 << 20
FLOAT, BYTE, HALF, COMPRESSED = 0x20, 0x01, 0x10, 0x91
SPARSE = 0x40


class Flat(ctypes.Structure):
    _fields_ = [("width", ctypes.c_size_t), ("height", ctypes.c_size_t), ("format", ctypes.c_int),
                ("channels", ctypes.c_uint)]


class Deep(ctypes.Structure):
    _fields_ = [("width", ctypes.c_size_t), ("height", ctypes.c_size_t), ("depth", ctypes.c_size_t),
                ("format", ctypes.c_int), ("channels", ctypes.c_uint), ("flags", ctypes.c_uint)]


def main():
    ours, driver = ctypes.CDLL(None), ctypes.CDLL("libcuda.so.1")
    page = limited.LimitPage(ctypes.sizeof(limited.LimitPage), limited.ABI, 1)
    page.device[0].uuid[0] = 1
    page.device[0].limit = page.device[0].credit = 100 * MIB
    assert ours.sublet_cuda_adopt(ctypes.byref(page)) == 0 and driver.cuInit(0) == 0
    made = []

    def charged():
        use = limited.UsePage(ctypes.sizeof(limited.UsePage))
        assert ours.sublet_cuda_use(ctypes.byref(use)) == 0
        return use.device[0].charged

    def make(function, *arguments):
        out = ctypes.c_void_p()
        before = charged()
        result = getattr(driver, function)(ctypes.byref(out), *arguments)
        if result == 0:
            made.append(out)
        return result, charged() - before

    assert make("cuArrayCreate_v2", ctypes.byref(Flat(1024, 1024, FLOAT, 4))) == (0, 16 * MIB)
    assert make("cuArrayCreate_v2", ctypes.byref(Flat(1000, 0, BYTE, 1))) == (0, 2 * MIB)
    assert make("cuArray3DCreate_v2", ctypes.byref(Deep(1024, 1024, 8, HALF, 1, 0))) == (0, 16 * MIB)
    assert make("cuArray3DCreate_v2", ctypes.byref(Deep(1024, 1024, 8, HALF, 1, SPARSE))) == (0, 0)
    assert make("cuArray3DCreate_v2", ctypes.byref(Deep(2048, 1024, 0, COMPRESSED, 4, 0))) == (0, 2 * MIB)
    flat = [made.pop() for _ in range(5)]
    deep = ctypes.byref(Deep(1024, 1024, 0, FLOAT, 1, 0))
    assert make("cuMipmappedArrayCreate", deep, 1) == (0, 4 * MIB)
    assert make("cuMipmappedArrayCreate", deep, 11) == (0, 6 * MIB)
    assert charged() == 46 * MIB
    assert make("cuArrayCreate_v2", ctypes.byref(Flat(1 << 14, 1 << 12, BYTE, 1))) == (2, 0), "over the limit"
    for huge in (Deep(1 << 60, 1, 1, FLOAT, 4, 0), Deep(1 << 20, 1 << 20, 1 << 30, FLOAT, 4, 0)):
        assert make("cuArray3DCreate_v2", ctypes.byref(huge)) == (2, 0)
        assert make("cuMipmappedArrayCreate", ctypes.byref(huge), 20) == (2, 0)
    assert make("cuArrayCreate_v2", None)[1] == 0 and make("cuMipmappedArrayCreate", deep, 0) == (1, 0)
    for array in flat[1:]:
        assert driver.cuArrayDestroy(array) == 0
    for array in made:
        assert driver.cuMipmappedArrayDestroy(array) == 0
    assert charged() == 2 * MIB, "that of the array which was made last"
    # The end of the context frees the rest.
    context = ctypes.c_void_p()
    assert driver.cuCtxGetCurrent(ctypes.byref(context)) == 0 and driver.cuCtxDestroy_v2(context) == 0
    assert charged() == 0


if __name__ == "__main__":
    main()
