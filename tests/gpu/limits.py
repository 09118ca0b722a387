# SPDX-License-Identifier: Apache-2.0
"""A ceiling, the enforcer's record, and utilisation on a real card. Nothing that others started is ended here."""
import ctypes
import os
import time

GIB, MIB = 1 << 30, 1 << 20
NOT_SUPPORTED = 3


class Limits:
    """Runs with a Job of run.py, which has the stage and counts the steps."""

    def __init__(self, job):
        self.job, self.stage = job, job.stage

    def play(self):
        self.ceiling()
        self.verdict()
        self.utilisation()

    def ceiling(self):
        job, began = self.job, time.monotonic()
        program = self.stage.spawn("greedy", "sublet", "run", "--vram", str(GIB), "--memory", str(GIB), "--name",
                                   "greedy", "--", "simgpu-load", "--alloc", "1792MiB", "--step", "64MiB", "--rate",
                                   "512MiB/s", "--seconds", "600")
        job.until(lambda: job.lease("greedy").get("state") == "ended", "a program above its ceiling ends", 30)
        job.end(program)  # it has ended, unless the ceiling failed
        lease = job.lease("greedy")
        job.step("a program above its ceiling is ended as over_limit", lease.get("end_reason") == "over_limit",
                 f"{lease.get('end_reason')} after {time.monotonic() - began:.1f} s, highest use "
                 f"{(lease.get('peak_used_bytes') or 0) / MIB:.0f} MiB of 1024 MiB",
                 peak_bytes=lease.get("peak_used_bytes"))
        if lease:
            self.stage.sublet("why", lease["id"])

    def verdict(self):
        job = self.job
        unleased = self.stage.spawn("unleased", "simgpu-load", "--alloc", "512MiB", "--seconds", "600")

        def found():
            rows = self.job.ask("verdicts")["verdicts"]
            return [row for row in rows if row["pid"] == unleased.pid]
        job.until(found, "a process without a lease gets a verdict", 30)
        row = (found() or [{}])[0]
        job.step("a process without a lease gets a verdict, with its user and memory",
                 row.get("uid") == os.getuid() and (row.get("used_bytes") or row.get("peak_bytes") or 0) >= 512 * MIB,
                 f"stage {row.get('stage')}")
        self.stage.sublet("why", f"pid:{unleased.pid}")
        self.stage.sublet("enforce", "--preview", "--since", "1h")
        job.end(unleased)
        job.until(lambda: not found(), "its verdict is closed", 30)

    def utilisation(self):
        job, seen = self.job, []
        program = self.stage.spawn("busy", "sublet", "run", "--vram", str(GIB), "--name", "busy", "--", "simgpu-load",
                                   "--alloc", "256MiB", "--busy", "90", "--seconds", "600")
        job.until(lambda: job.lease("busy").get("used_bytes", 0) > 0, "a program that computes has its memory", 30)

        def told():
            found = [p for p in job.ask("proclist")["processes"] if p["lease"] == job.lease("busy").get("id")]
            seen.extend(p["busy_percent"] for p in found if p["busy_percent"] is not None)
            return seen and max(seen) >= 20 or samples(self.stage)[0] == NOT_SUPPORTED
        good = job.until(told, "the utilisation of a program that computes is told", 20)
        code, times = samples(self.stage)
        gaps = sorted(b - a for a, b in zip(times, times[1:]) if b > a)
        length = gaps[len(gaps) // 2] / 1000 if gaps else None
        known = f"{len(times)} samples" + (f", {length:.0f} ms apart" if length else "")
        job.step("the utilisation of a program that computes is told", good,
                 "the driver does not tell it for processes" if code == NOT_SUPPORTED
                 else f"readings {sorted(set(seen))}; {known}; the card {job.device()['busy_percent']} %",
                 nvml=code, sample_ms=length)
        self.stage.sublet("stop", job.lease("busy")["id"], quiet=True)
        job.end_of(program, 60)


class Sample(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("timestamp_us", ctypes.c_ulonglong)] + [
        (name, ctypes.c_uint) for name in ("sm", "memory", "encoder", "decoder")]


def samples(stage):
    """Returns NVML's code, and the times of the samples of all processes in microseconds."""
    library = "libnvidia-ml.so.1"
    if "SIMGPU_DIR" in stage.env:
        os.environ["SIMGPU_DIR"] = stage.env["SIMGPU_DIR"]
        library = f"{stage.env['LD_LIBRARY_PATH'].split(':')[0]}/{library}"
    nvml, card, count, found = ctypes.CDLL(library), ctypes.c_void_p(), ctypes.c_uint(4096), (Sample * 4096)()
    code = nvml.nvmlInit_v2() or nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(card))
    code = code or nvml.nvmlDeviceGetProcessUtilization(card, found, ctypes.byref(count), ctypes.c_ulonglong(0))
    return code, sorted({sample.timestamp_us for sample in found[:count.value]}) if code == 0 else []
