# SPDX-License-Identifier: Apache-2.0
"""Parks a program by the driver's own calls, without a daemon. The pauses of the daemon are compared with this."""
import subprocess
import sys

PARK_AND_BACK = """
import ctypes, sys, time
cuda = ctypes.CDLL("libcuda.so.1")
arguments = ctypes.create_string_buffer(64)
assert cuda.cuInit(0) == 0
pid = int(sys.argv[1])
def call(name):
    began = time.monotonic()
    assert getattr(cuda, "cuCheckpointProcess" + name)(pid, arguments) == 0, name
    return time.monotonic() - began
park = call("Lock") + call("Checkpoint")
back = call("Restore") + call("Unlock")
print(park, back)
"""


def park_and_back(pid, env):
    """Returns the seconds to park the program and to restore it. CalledProcessError if the driver fails; `stderr` says
    why.
    """
    done = subprocess.run([sys.executable, "-c", PARK_AND_BACK, str(pid)], env=env, text=True, capture_output=True,
                          check=True)
    return tuple(float(word) for word in done.stdout.split())
