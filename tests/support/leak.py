# SPDX-License-Identifier: Apache-2.0
"""A CUDA program that takes more and more memory: `leak.py RATE FILE [deaf | saves]`, RATE in MiB a second.

FILE gets the MiB that the program holds. An unresponsive program ignores SIGTERM. One that saves its work at SIGTERM
takes 512 MiB more for it, at the same rate, and ends.
"""
import ctypes
import os
import signal
import sys
import time

from cuda_calls import Cuda, begin

STEP = 16 << 20


def main():
    rate, path, way = int(sys.argv[1]), sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else ""
    left = [1 << 40]
    if way == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if way == "saves":
        signal.signal(signal.SIGTERM, lambda *_: left.__setitem__(0, 32))
    cuda, taken = Cuda(), 0
    begin(cuda)
    began = time.monotonic()
    while left[0] > 0:
        address = ctypes.c_uint64()
        cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(STEP))
        taken, left[0] = taken + 16, left[0] - 1
        with open(path + ".new", "w") as file:
            file.write(str(taken))
        os.replace(path + ".new", path)
        time.sleep(max(began + taken / rate - time.monotonic(), 0))


if __name__ == "__main__":
    main()
