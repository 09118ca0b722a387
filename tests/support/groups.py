# SPDX-License-Identifier: Apache-2.0
"""Control groups that a test makes, in the unified hierarchy and in one of version 1."""
import os
import pathlib
import signal
import time

import pytest


def hierarchies():
    """Returns the mount points of the unified hierarchy, and of freezer and memory of version 1, where they exist."""
    found = {}
    for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines():
        fields = line.split()
        kind, options = fields[fields.index("-") + 1], fields[-1].split(",")
        if kind == "cgroup2":
            found["v2"] = pathlib.Path(fields[4])
        if kind == "cgroup" and "freezer" in options:
            found["v1"] = pathlib.Path(fields[4])
        if kind == "cgroup" and "memory" in options:
            found["memory"] = pathlib.Path(fields[4])
    return found


def limits_of(pid):
    """Returns the limits of processor time of the control groups of a process, by path."""
    found = {}
    for line in pathlib.Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, inside = line.split(":", 2)
        if "cpu" in controllers.split(",") or not controllers:
            for mount in ("cpu", "cpu,cpuacct", "unified", ""):
                for name in ("cpu.cfs_quota_us", "cpu.max"):
                    file = pathlib.Path(f"/sys/fs/cgroup/{mount}{inside}/{name}")
                    if "/lease-" in inside and file.exists():
                        found[str(file)] = file.read_text().split()[0]
    return found


class Groups:
    """Groups below one directory of a hierarchy; all are removed with their processes."""

    def __init__(self, kind):
        mount = hierarchies().get(kind)
        if mount is None:
            pytest.skip(f"no hierarchy of kind {kind} here")
        self.top = mount / f"sublet-test-{os.getpid()}"
        try:
            self.top.mkdir()
        except OSError as error:
            pytest.skip(f"no group can be made in {mount}: {error}")

    def make(self, name):
        group = self.top / name
        group.mkdir(parents=True)
        return group

    def move(self, pid, group):
        (group / "cgroup.procs").write_text(str(pid))

    def pids(self, group):
        return [int(pid) for procs in group.rglob("cgroup.procs") for pid in procs.read_text().split()]

    def remove(self, group):
        for pid in self.pids(group):
            os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + 60
        for folder in sorted([group, *(path for path in group.rglob("*") if path.is_dir())], reverse=True):
            while folder.exists():
                try:
                    folder.rmdir()
                except OSError:  # the kernel empties a group a moment after its last process has ended
                    assert time.monotonic() < deadline, f"{folder} stays"

    def close(self):
        self.remove(self.top)
