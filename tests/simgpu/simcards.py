# SPDX-License-Identifier: Apache-2.0
"""Simulated cards in a directory of their own, and programs on them."""

import contextlib
import json
import os
import pathlib
import signal
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("SUBLET_BUILD", ROOT / "build"))
CTL = BUILD / "bin/simgpu-ctl"
LOAD = BUILD / "bin/simgpu-load"
DRIVER = BUILD / "lib/simgpu"
MIB, GIB = 1 << 20, 1 << 30


class Load:
    """A simgpu-load in the background."""

    def __init__(self, cards, arguments, **environment):
        self.process = subprocess.Popen(
            [LOAD, "--json", *map(str, arguments)],
            env=cards.env(**environment),
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
        )
        self.pid = self.process.pid
        self.talk = ""
        self.max_rss_bytes = None

    def wait_filled(self):
        """Waits until all its memory is filled; fails if it ends before that."""
        while "filled" not in self.talk:
            line = self.process.stderr.readline()
            assert line, f"simgpu-load ended before it was full: {self.talk}"
            self.talk += line
        return self

    def end(self, with_signal=None):
        """-> (exit status, its JSON). Its peak resident memory is kept as max_rss_bytes."""
        if with_signal is not None:
            self.process.send_signal(with_signal)
        out = self.process.stdout.read()
        self.talk += self.process.stderr.read()
        _, status, usage = os.wait4(self.pid, 0)
        self.process.returncode = os.waitstatus_to_exitcode(status)
        self.max_rss_bytes = usage.ru_maxrss * 1024
        return self.process.returncode, json.loads(out) if out else None

    def kill(self):
        if self.process.returncode is None:
            self.process.kill()
        with contextlib.suppress(ChildProcessError):
            self.process.wait()
        self.process.stdout.close()
        self.process.stderr.close()


class Cards:
    def __init__(self, directory, spec):
        self.dir = pathlib.Path(directory)
        self.loads = []
        self.ctl("create", spec)

    def env(self, **more):
        return {**os.environ, "SIMGPU_DIR": str(self.dir / "simgpu"), "LD_LIBRARY_PATH": str(DRIVER), **more}

    def ctl(self, *arguments, check=True):
        done = subprocess.run(
            [CTL, "--dir", self.dir, *map(str, arguments)], capture_output=True, text=True, timeout=60
        )
        assert not check or done.returncode == 0, done.stderr
        return done

    def show(self):
        return json.loads(self.ctl("show", "--json").stdout)

    def fault(self, *arguments):
        self.ctl("fault", *arguments)

    def load(self, *arguments, **environment):
        self.loads.append(Load(self, arguments, **environment))
        return self.loads[-1]

    def end(self):
        for load in self.loads:
            load.kill()


def closed_list_of_faults():
    """The faults that the design names; --help and the driver must agree with the list."""
    return (
        "alloc-fail create-fail map-fail register-fail copy-fail sync-hang launch-hang device-lost ecc "
        "nvml-error nvml-hang nvml-empty nvml-missing-pid nvml-late nvml-wrong-namespace "
        "nvml-no-utilization checkpoint-hang checkpoint-fail lock-hang unlock-hang state-hang restore-fail "
        "restore-hang restore-refused bandwidth"
    ).split()


SIGTERM, SIGINT, SIGKILL = signal.SIGTERM, signal.SIGINT, signal.SIGKILL
