# SPDX-License-Identifier: Apache-2.0
"""Pauses and resumes of 8, 16 and 32 GiB by the daemon, and in the same run the raw copy of as many bytes: the speed of
the link is the limit for both.
"""
import json
import subprocess
import sys
import time

from pausing import driver_version

GIB, MIB = 1 << 30, 1 << 20
SIZES = (8 * GIB, 16 * GIB, 32 * GIB)

RAW_COPY = """
import ctypes, json, sys, time
cuda, size, piece = ctypes.CDLL("libcuda.so.1"), int(sys.argv[1]), 256 << 20
def must(name, *arguments):
    code = getattr(cuda, name)(*arguments)
    assert code == 0, (name, code)
must("cuInit", 0)
context, card, host = ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_void_p()
must("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
must("cuCtxSetCurrent", context)
must("cuMemAlloc_v2", ctypes.byref(card), ctypes.c_size_t(piece))
must("cuMemHostAlloc", ctypes.byref(host), ctypes.c_size_t(piece), 0)
def copy(name, first, second):
    began = time.monotonic()
    for _ in range(max(size // piece, 1)):
        must(name, first, second, ctypes.c_size_t(piece))
    return time.monotonic() - began
copy("cuMemcpyHtoD_v2", card, host)  # not timed: the first touch of the memory
print(json.dumps([copy("cuMemcpyDtoH_v2", host, card), copy("cuMemcpyHtoD_v2", card, host)]))
"""


def available_host_bytes():
    with open("/proc/meminfo") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("MemAvailable"))


class Sizes:
    """Runs with a Job of run.py, which has the stage and counts the steps."""

    def __init__(self, job):
        self.job, self.stage = job, job.stage
        self.capacity = job.device()["effective_free_bytes"] - 2 * GIB  # a context and the headroom

    def sizes(self):
        if not self.stage.real:  # a small simulated card: the same steps with smaller numbers
            return [self.capacity // 8, self.capacity // 4]
        fitting = [size for size in SIZES if size <= self.capacity and size <= available_host_bytes() * 6 // 10]
        return fitting or [self.capacity // 2]

    def play(self):
        version, problem = driver_version(self.stage)
        if version == 0:
            print(f"SKIPPED: pauses of several sizes: {problem}")
            return
        for size in self.sizes():
            self.one(size // (2 * MIB) * (2 * MIB))

    def raw(self, size):
        try:
            done = subprocess.run([sys.executable, "-c", RAW_COPY, str(size)], env=self.stage.env, text=True,
                                  capture_output=True, timeout=60)
        except subprocess.TimeoutExpired:
            return None, "no end within 60 s"
        return (json.loads(done.stdout), "") if done.returncode == 0 else (None, done.stderr.strip()[-200:])

    def one(self, size):
        job, name = self.job, f"size-{size // MIB}"
        raw, problem = self.raw(size)
        job.step(f"the raw copy of {size / GIB:.1f} GiB is measured", raw is not None, problem)
        program = self.stage.spawn(name, "sublet", "run", "--vram", str(size + GIB), "--name", name, "--tag", name,
                                   "--pausable", "driver", "--", "simgpu-load", "--alloc", f"{size // MIB}MiB",
                                   "--seconds", "600", "--verify")
        if not job.until(lambda: job.lease(name).get("used_bytes", 0) >= size, f"{name} has its memory"):
            job.end(program)
            return
        out, back = self.timed("pause", name, "paused"), self.timed("resume", name, "active")
        self.stage.sublet("stop", job.lease(name)["id"], quiet=True)
        right = job.end_of(program, 120) == 143
        figures = {"bytes": size, "pause_s": out, "resume_s": back, "raw_out_s": raw and raw[0],
                   "raw_back_s": raw and raw[1]}
        detail = f"out in {out:.2f} s, back in {back:.2f} s" if out and back else "it was not paused and resumed"
        if raw:
            detail += f"; the raw copy takes {raw[0]:.2f} s and {raw[1]:.2f} s"
        job.step(f"{size / GIB:.1f} GiB go out and come back, right to the last byte", out and back and right, detail,
                 **figures)
        job.until(lambda: job.device()["leased_bytes"] == 0, "all bytes are measured gone")

    def timed(self, verb, name, state):
        """Returns the seconds until the lease is in the state, or None."""
        began = time.monotonic()
        self.stage.sublet(verb, name)
        reached = self.job.until(lambda: self.job.lease(name).get("state") == state, f"{name} is {state}", 120)
        return time.monotonic() - began if reached else None
