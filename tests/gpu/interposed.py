# SPDX-License-Identifier: Apache-2.0
"""The library libsublet-cuda.so on a real card: a limit at the allocation itself, counts of calls, and a share."""
import sys

GIB, MIB = 1 << 30, 1 << 20
OUT_OF_MEMORY = 2

# Prints the free memory and the size of its card, as the driver tells them.
SEEN = """
import ctypes, sys
cuda, free, total = ctypes.CDLL("libcuda.so.1"), ctypes.c_size_t(), ctypes.c_size_t()
device, context = ctypes.c_int(), ctypes.c_void_p()
for code in (lambda: cuda.cuInit(0), lambda: cuda.cuDeviceGet(ctypes.byref(device), 0),
             lambda: cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device),
             lambda: cuda.cuCtxSetCurrent(context),
             lambda: cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))):
    result = code()
    if result != 0:
        sys.exit(f"the driver answers {result}")
print("seen", free.value, total.value)
"""
# A program of the CUDA runtime, whose look-ups take another way.
TORCH = """
import torch
total = torch.cuda.mem_get_info()[1]
kept = []
try:
    while True:
        kept.append(torch.ones(2**26, dtype=torch.uint8, device="cuda"))
except torch.cuda.OutOfMemoryError:
    print("seen", torch.cuda.memory_reserved(), total)
"""


def last_line(text):
    return (text.strip().splitlines() or [""])[-1]


class Interposed:
    """Runs with a Job of run.py, which has the stage and counts the steps."""

    def __init__(self, job):
        self.job, self.stage = job, job.stage

    def play(self):
        if self.job.kind == "pytorch":
            return self.torch()
        self.seen()
        self.refused()
        self.share()

    def run(self, name, *program):
        return self.stage.sublet("run", "--vram", str(GIB), "--name", name, "--interposer", "--", *program)

    def seen(self):
        done = self.run("sees", sys.executable, "-c", SEEN)
        words = done.stdout.split()
        self.job.step("a program sees the size of its lease as its card",
                      done.returncode == 0 and words[0] == "seen" and int(words[2]) == GIB,
                      done.stdout.strip() or last_line(done.stderr))

    def refused(self):
        job = self.job
        neighbour = self.stage.spawn("neighbour", "sublet", "run", "--vram", str(GIB), "--name", "neighbour",
                                     "--interposer", "--", "simgpu-load", "--alloc", "256MiB", "--seconds", "600")
        job.until(lambda: job.lease("neighbour").get("used_bytes", 0) > 0, "a neighbour has its memory", 30)
        greedy = self.run("refused", "simgpu-load", "--alloc", "1792MiB", "--step", "64MiB",
                          "--rate", "128MiB/s", "--seconds", "60")
        lease = job.lease("refused")
        told = lease.get("interposer") or {}
        counts = told.get("counts") or {}
        errors = {error["code"]: error["count"] for error in counts.get("errors", [])}
        job.step("a program above its size is refused by the driver's own error",
                 greedy.returncode == 1 and errors.get(OUT_OF_MEMORY, 0) > 0 and lease.get("end_reason") == "released",
                 f"{last_line(greedy.stderr)}; highest use {(lease.get('peak_used_bytes') or 0) / MIB:.0f} MiB",
                 peak_bytes=lease.get("peak_used_bytes"))
        job.step("its calls were counted", counts.get("launches", 0) > 0 and counts.get("allocated_bytes", 0) > 0,
                 f"{counts}")
        other = job.lease("neighbour").get("interposer") or {}
        job.step("the neighbour has its limit, and all of it is controlled",
                 other.get("processes") == 1 and not other.get("uncontrolled"), f"{other}")
        job.end(neighbour)

    def share(self):
        job, seen = self.job, []
        program = self.stage.spawn("shared", "sublet", "run", "--vram", str(GIB), "--name", "shared", "--interposer",
                                   "--share", "30", "--", "simgpu-load", "--alloc", "64MiB", "--busy", "100",
                                   "--seconds", "600")

        def settled():
            use = job.lease("shared").get("share_use") or {}
            seen.extend(device["used_percent"] for device in use.get("devices", []))
            return use.get("busy_seconds", 0) + use.get("waited_seconds", 0) >= 8
        job.until(settled, "the use of a program with a share is told", 25)
        job.step("a program that computes without a break keeps to its share of 30 %",
                 seen and seen[-1] is not None and 20 <= seen[-1] <= 40,
                 f"readings {sorted(set(filter(None, seen)))}; {job.lease('shared').get('share_use')}")
        job.end(program)

    def torch(self):
        done = self.run("torch", sys.executable, "-c", TORCH)
        words = done.stdout.split()
        self.job.step("PyTorch is refused at the size of its lease",
                      done.returncode == 0 and words[0] == "seen" and int(words[1]) < int(words[2]) == GIB,
                      done.stdout.strip() or last_line(done.stderr))
