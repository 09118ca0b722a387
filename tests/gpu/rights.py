# SPDX-License-Identifier: Apache-2.0
"""Which rights the driver asks of a helper that parks another process: each caller locks a program and unlocks it, and
the driver's answer is noted. Nothing is copied.
"""
import json
import os
import subprocess
import sys

# Becomes another user, or gives a capability up, after the driver has started.
ASK = """
import ctypes, json, os, sys
pid, uid, drop = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "drop"
cuda = ctypes.CDLL("libcuda.so.1")
libc = ctypes.CDLL(None, use_errno=True)
answer = {"init": cuda.cuInit(0)}
if uid:
    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)
elif drop:
    header, data = (ctypes.c_uint * 2)(0x20080522, 0), (ctypes.c_uint * 6)()
    libc.capget(header, data)
    data[0] = data[1] = data[2] = 0
    data[3] = data[4] = data[5] = 0
    answer["capset"] = libc.capset(header, data)
if answer["init"] == 0:
    arguments = (ctypes.c_uint * 16)(10000)
    answer["lock"] = cuda.cuCheckpointProcessLock(pid, ctypes.byref(arguments))
    if answer["lock"] == 0:
        answer["unlock"] = cuda.cuCheckpointProcessUnlock(pid, ctypes.byref((ctypes.c_uint * 16)()))
print(json.dumps(answer))
"""
NOBODY = 65534


class Rights:
    """Runs with a Job of run.py, which has the stage and counts the steps."""

    def __init__(self, job):
        self.job, self.stage = job, job.stage

    def play(self):
        root = os.getuid() == 0
        self.ask("a helper of the same user may lock a program", 0, "keep", wanted=True)
        if root:
            self.ask("a helper of root without capabilities may lock a program of root", 0, "drop")
            self.ask("a helper of another user may lock a program of root", NOBODY, "keep", wanted=False)
        else:
            print("SKIPPED: rights of other users: not root")

    def ask(self, what, uid, drop, wanted=None):
        """Without `wanted` the answer is noted, and either is right."""
        program = self.stage.spawn("asked", "simgpu-load", "--alloc", "64MiB", "--seconds", "600")
        job = self.job
        job.until(lambda: any(p["pid"] == program.pid for p in job.ask("proclist")["processes"]), "it is on the card")
        done = subprocess.run([sys.executable, "-c", ASK, str(program.pid), str(uid), drop], env=self.stage.env,
                              text=True, capture_output=True, timeout=60)
        answer = json.loads(done.stdout) if done.returncode == 0 else {"failed": done.stderr.strip()[-200:]}
        job.end(program)
        may = answer.get("lock") == 0
        told = "yes" if may else "no"
        job.step(what, "lock" in answer and (wanted is None or may == wanted), f"{told}: {answer}", answer=answer)
