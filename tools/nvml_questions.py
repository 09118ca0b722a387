# SPDX-License-Identifier: Apache-2.0
"""Questions to NVML, in the form of tools/driver_questions.py; result codes are nvmlReturn_t."""
import ctypes
import os

from driver_questions import MIB, Cuda, Library, question


class ProcessInfo(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("used", ctypes.c_ulonglong), ("instances", ctypes.c_uint * 2)]


class Memory(ctypes.Structure):
    _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]


class MemoryV2(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint)] + [
        (name, ctypes.c_ulonglong) for name in ("total", "reserved", "free", "used")
    ]


def nvml_and_card():
    nvml, card = Library("libnvidia-ml.so.1"), ctypes.c_void_p()
    if nvml.nvmlInit_v2() != 0 or nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(card)) != 0:
        raise RuntimeError("NVML does not start")
    return nvml, card


@question
def nvml_refusals():
    """NVML before init; no such card; too small a buffer for a name; a wrong structure version."""
    nvml, out = Library("libnvidia-ml.so.1"), ctypes.c_void_p()
    before = nvml.nvmlDeviceGetCount_v2(ctypes.byref(ctypes.c_uint()))
    nvml, card = nvml_and_card()
    memory = MemoryV2(version=1)
    return {
        "before_init": before,
        "index_1000": nvml.nvmlDeviceGetHandleByIndex_v2(1000, ctypes.byref(out)),
        "unknown_uuid": nvml.nvmlDeviceGetHandleByUUID(
            b"GPU-00000000-0000-0000-0000-000000000000", ctypes.byref(out)
        ),
        "short_name": nvml.nvmlDeviceGetName(card, ctypes.create_string_buffer(4), 4),
        "null_handle": nvml.nvmlDeviceGetIndex(None, ctypes.byref(ctypes.c_uint())),
        "memory_version": nvml.nvmlDeviceGetMemoryInfo_v2(card, ctypes.byref(memory)),
        "shutdown": nvml.nvmlShutdown(),
        "shutdown_twice": nvml.nvmlShutdown(),
    }


@question
def nvml_memory_versions():
    """Memory info v1 against v2: where the driver's reserve is counted."""
    nvml, card = nvml_and_card()
    one, two = Memory(), MemoryV2(version=0x02000028)
    codes = [
        nvml.nvmlDeviceGetMemoryInfo(card, ctypes.byref(one)),
        nvml.nvmlDeviceGetMemoryInfo_v2(card, ctypes.byref(two)),
    ]
    return {
        "codes": codes,
        "same_total": one.total == two.total,
        "v1_used_is_v2_used_and_reserved": abs(one.used - two.used - two.reserved) < MIB,
        "v2_adds_up": two.used + two.free + two.reserved == two.total,
        "reserved_bytes": two.reserved,
    }


@question
def nvml_process_list():
    """The list of processes with one of them: sizes, counts, and what a context costs."""
    nvml, card = nvml_and_card()
    cuda = Cuda().start()
    cuda.number("cuMemAlloc_v2", 64 * MIB)
    count = ctypes.c_uint(0)
    answer = {
        "no_room": nvml.nvmlDeviceGetComputeRunningProcesses_v3(card, ctypes.byref(count), None),
        "needs_room": count.value >= 1,
    }
    count, infos = ctypes.c_uint(256), (ProcessInfo * 256)()
    answer["code"] = nvml.nvmlDeviceGetComputeRunningProcesses_v3(card, ctypes.byref(count), infos)
    mine = [info for info in infos[: count.value] if info.pid == os.getpid()]
    if mine:
        answer |= {
            "instance": mine[0].instances[0],
            "used_bytes": mine[0].used,
            "context_counts": mine[0].used > 64 * MIB,
        }
    return {**answer, "own_pid_is_listed": bool(mine)}
