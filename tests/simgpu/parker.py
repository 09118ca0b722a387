# SPDX-License-Identifier: Apache-2.0
"""Parks other processes through the driver, by commands on stdin. It is a program, so that it can hang, die, or run as
another user.

Each line is `CALL PID [TIMEOUT_MS]` with CALL one of state, thread, lock, checkpoint, restore, unlock. The answer is
one JSON line {"result", "value"}. With a uid as argument it becomes that user after the driver is initialised, because
the checkout may be closed to others.
"""

import ctypes
import json
import os
import sys

NAMES = {
    "state": "cuCheckpointProcessGetState",
    "thread": "cuCheckpointProcessGetRestoreThreadId",
    "lock": "cuCheckpointProcessLock",
    "checkpoint": "cuCheckpointProcessCheckpoint",
    "restore": "cuCheckpointProcessRestore",
    "unlock": "cuCheckpointProcessUnlock",
}


def main():
    driver = ctypes.CDLL(os.path.join(os.environ["LD_LIBRARY_PATH"], "libcuda.so.1"))
    if driver.cuInit(0) != 0:
        raise SystemExit("no driver")
    if len(sys.argv) > 1:
        os.setgroups([])
        os.setgid(int(sys.argv[1]))
        os.setuid(int(sys.argv[1]))
    for line in sys.stdin:
        call, pid, *timeout = line.split()
        value = ctypes.c_int(-1)
        argument = None
        if call in ("state", "thread"):
            argument = ctypes.byref(value)
        elif timeout:
            argument = ctypes.byref((ctypes.c_uint * 16)(int(timeout[0])))
        result = getattr(driver, NAMES[call])(ctypes.c_int(int(pid)), argument)
        print(json.dumps({"result": result, "value": value.value}), flush=True)


if __name__ == "__main__":
    main()
