# SPDX-License-Identifier: Apache-2.0
"""Takes memory of the card in blocks of 64 MiB until it is refused, twice, and prints how many blocks there were and
what the refusal said. `fill_client.py WAY`: through cuda-bindings, numba or tinygrad.
"""
import sys

BLOCK = 64 << 20


def by_bindings():
    from cuda.bindings import driver

    assert driver.cuInit(0)[0] == driver.cuDevicePrimaryCtxRetain(0)[0] == driver.CUresult.CUDA_SUCCESS
    assert driver.cuCtxSetCurrent(driver.cuDevicePrimaryCtxRetain(0)[1])[0] == driver.CUresult.CUDA_SUCCESS

    def fill():
        held = []
        while (answer := driver.cuMemAlloc(BLOCK))[0] == driver.CUresult.CUDA_SUCCESS:
            held.append(answer[1])
        for block in held:
            assert driver.cuMemFree(block)[0] == driver.CUresult.CUDA_SUCCESS
        return len(held), answer[0].name
    return fill


def until_refused(take, error):
    """-> how often it was taken, and the words of the refusal"""
    held = []
    try:
        while True:
            held.append(take())
    except error as refusal:
        return len(held), f"{refusal}; {refusal.__cause__}"


def by_numba():
    import numpy
    from numba import cuda
    from numba.cuda.cudadrv.driver import CudaAPIError

    return lambda: until_refused(lambda: cuda.device_array(BLOCK, numpy.uint8), CudaAPIError)


def by_tinygrad():
    from tinygrad import dtypes
    from tinygrad.device import Buffer

    return lambda: until_refused(lambda: Buffer("CUDA", BLOCK, dtypes.uint8).allocate(), (MemoryError, RuntimeError))


def main():
    fill = {"bindings": by_bindings, "numba": by_numba, "tinygrad": by_tinygrad}[sys.argv[1]]()
    for _ in range(2):
        print("full after %d: %s" % fill())


main()
