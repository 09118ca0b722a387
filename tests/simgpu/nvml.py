# SPDX-License-Identifier: Apache-2.0
"""Prints the answers of NVML about the first card as JSON. It is a program, so that it can run as another user.

With a uid as argument it becomes that user after the library is loaded, because the checkout may be closed to others.
"""

import ctypes
import json
import os
import sys


class ProcessInfo(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("used", ctypes.c_ulonglong), ("instances", ctypes.c_uint * 2)]


class MemoryV2(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint)] + [
        (name, ctypes.c_ulonglong) for name in ("total", "reserved", "free", "used")
    ]


def check(result):
    if result != 0:
        raise SystemExit(f"NVML error {result}")


def main():
    nvml = ctypes.CDLL(os.path.join(os.environ["LD_LIBRARY_PATH"], "libnvidia-ml.so.1"))
    if len(sys.argv) > 1:
        os.setgroups([])
        os.setgid(int(sys.argv[1]))
        os.setuid(int(sys.argv[1]))
    check(nvml.nvmlInit_v2())
    card = ctypes.c_void_p()
    check(nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(card)))
    memory = MemoryV2(version=0x02000028)
    check(nvml.nvmlDeviceGetMemoryInfo_v2(card, ctypes.byref(memory)))
    count, infos = ctypes.c_uint(64), (ProcessInfo * 64)()
    check(nvml.nvmlDeviceGetComputeRunningProcesses_v3(card, ctypes.byref(count), infos))
    print(
        json.dumps(
            {
                "used": memory.used,
                "total": memory.total,
                "reserved": memory.reserved,
                "processes": {info.pid: info.used for info in infos[: count.value]},
            }
        )
    )


if __name__ == "__main__":
    main()
