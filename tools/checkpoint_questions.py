# SPDX-License-Identifier: Apache-2.0
"""Questions to the checkpoint calls of a CUDA driver, in the form of tools/driver_questions.py. Each starts a program,
which is parked.
"""
import contextlib
import ctypes
import os
import signal

from driver_questions import MIB, Cuda, fork_program, question


@contextlib.contextmanager
def program(start=True):
    """Starts a process with 64 MiB on the card, or one that never calls the driver. Yields its pid. The caller must not
    have called the driver before: a forked child cannot use it.
    """
    read_end, write_end = os.pipe()

    def hold():
        # The pipe of the caller must end with the caller.
        for number in map(int, os.listdir("/proc/self/fd")):
            if number > 2 and number != write_end:
                os.closerange(number, number + 1)
        if start:
            Cuda().start().number("cuMemAlloc_v2", 64 * MIB)
        os.write(write_end, b"x")
        while True:
            signal.pause()

    child = fork_program(hold)
    os.close(write_end)
    try:
        if os.read(read_end, 1) != b"x":
            raise RuntimeError("the program did not start")
        yield child
    finally:
        os.close(read_end)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


class Caller(Cuda):
    """Parks another process. The driver of the caller is started first."""

    def __init__(self):
        super().__init__()
        self.must("cuInit", 0)

    def call(self, name, pid):
        arguments = (ctypes.c_uint * 16)(10000 if name == "Lock" else 0)  # the time limit of a lock, in ms
        return getattr(self.library, f"cuCheckpointProcess{name}")(ctypes.c_int(pid), ctypes.byref(arguments))

    def state(self, pid):
        value = ctypes.c_int(-1)
        code = self.library.cuCheckpointProcessGetState(ctypes.c_int(pid), ctypes.byref(value))
        return [code, value.value]


@question
def checkpoint_before_init():
    """A lock by a caller that has not called cuInit."""
    with program() as pid:
        cuda = Cuda()
        return {"lock": cuda.library.cuCheckpointProcessLock(ctypes.c_int(pid), None)}


@question
def checkpoint_steps():
    """Lock, checkpoint, restore and unlock in their order, each with the state that follows."""
    with program() as pid:
        caller = Caller()
        answer = {"running": caller.state(pid)}
        for name in ("Lock", "Checkpoint", "Restore", "Unlock"):
            answer[name.lower()] = [caller.call(name, pid), *caller.state(pid)]
        return answer


@question
def checkpoint_steps_out_of_order():
    """Each step in a state that it does not belong to."""
    with program() as pid:
        caller = Caller()
        answer = {f"running_{name.lower()}": caller.call(name, pid) for name in ("Checkpoint", "Restore", "Unlock")}
        caller.call("Lock", pid)
        answer |= {f"locked_{name.lower()}": caller.call(name, pid) for name in ("Lock", "Restore")}
        caller.call("Checkpoint", pid)
        answer |= {f"parked_{name.lower()}": caller.call(name, pid) for name in ("Lock", "Checkpoint", "Unlock")}
        return {**answer, "state": caller.state(pid)}


@question
def checkpoint_without_driver():
    """A lock of a process without the driver, and of no process."""
    with program(start=False) as pid:
        caller = Caller()
        return {"without_driver": caller.call("Lock", pid), "no_process": caller.call("Lock", 1 << 22)}


@question
def checkpoint_frees_memory():
    """The card's memory while a program of 64 MiB is parked, and after it came back."""
    with program() as pid:
        caller = Caller().start()
        before = caller.free_bytes()
        codes = [caller.call("Lock", pid), caller.call("Checkpoint", pid)]
        parked = caller.free_bytes()
        codes += [caller.call("Restore", pid), caller.call("Unlock", pid)]
        after = caller.free_bytes()
        return {"codes": codes, "frees_at_least_64_mib": parked - before >= 64 * MIB, "freed_bytes": parked - before,
                "takes_it_again": before - after < 8 * MIB}
