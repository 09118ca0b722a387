# SPDX-License-Identifier: Apache-2.0
"""docs/sessions.md: every command runs, in its order, and says what the document shows."""
import os
import re
import subprocess

from tests.support.sessions import fills, reaches, session, start_sessions
from tests.support.sublet import ROOT

# The programs of the document, and what stands for them here.
PROGRAMS = {"jupyter": "exec simgpu-load --alloc 512MiB --busy 0 --seconds 600",
            "train.sh": "trap 'sleep 0.3; echo work > state.tmp; mv state.tmp state.pt' USR1\n"
                        "simgpu-load --alloc 512MiB --busy 50 --seconds 600 &\nwhile :; do wait; done",
            "save.sh": re.search(r"(?ms)^```sh\n#!/bin/sh\n(.*?)^```$", (ROOT / "docs/sessions.md").read_text())[1]}


def commands_and_answers():
    """Yields each command of the document with the lines that it shows below it."""
    for block in re.findall(r"(?ms)^```console\n(.*?)^```$", (ROOT / "docs/sessions.md").read_text()):
        for part in block.split("$ ")[1:]:
            command, *answer = part.splitlines()
            yield command, answer


def test_the_document(start_daemon):
    daemon = start_sessions(start_daemon)
    place = daemon.dir / "programs"
    place.mkdir()
    for name, line in PROGRAMS.items():
        (place / name).write_text(f"#!/bin/sh\n{line}\n")
        (place / name).chmod(0o755)
    env = daemon.env()
    env["PATH"] = f"{place}{os.pathsep}{env['PATH']}"
    ran = 0
    for command, answer in commands_and_answers():
        if command.startswith("sublet session close"):
            fills(daemon, "session-1")
        if command.startswith("sublet session checkpoint"):
            fills(daemon, "session-3")  # it has set its trap
        line = command.replace("--vram 8GiB", "--vram 1GiB")  # the card is small
        done = subprocess.run(["sh", "-c", line], env=env, cwd=place, text=True, stdin=subprocess.DEVNULL,
                              capture_output=True, timeout=120)
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        assert done.stdout.splitlines() == answer or not answer, (command, done.stdout)
        if command.startswith("sublet session close"):
            assert session(daemon, "session-1")["state"] == "parked"
        ran += 1
    assert ran == 10
    assert done.stdout == f"{place / 'state.pt'}\n", "the locator of the checkpoint, once the work is saved"
    assert session(daemon, "session-3")["checkpoint"]["bytes"] == 5
    reaches(daemon, "session-1", "active")
