# SPDX-License-Identifier: Apache-2.0
"""docs/sessions.md: every command runs, in its order, and says what the document shows."""
import os
import re
import subprocess

from tests.support.sessions import fills, reaches, session, start_sessions
from tests.support.sublet import ROOT

# The programs of the document, and what stands for them here.
PROGRAMS = {"jupyter": "exec simgpu-load --alloc 512MiB --busy 0 --seconds 600",
            "train.sh": "exec simgpu-load --alloc 512MiB --busy 50 --seconds 600",
            "save.sh": 'kill -0 "$1" && echo "state-$SUBLET_SESSION.pt"'}


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
        line = command.replace("--vram 8GiB", "--vram 1GiB")  # the card is small
        done = subprocess.run(["sh", "-c", line], env=env, cwd=place, text=True, capture_output=True, timeout=120)
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        assert done.stdout.splitlines() == answer or not answer, (command, done.stdout)
        if command.startswith("sublet session close"):
            assert session(daemon, "session-1")["state"] == "parked"
        ran += 1
    assert ran == 8
    assert done.stdout == "state-session-2.pt\n", "the locator of the checkpoint"
    reaches(daemon, "session-1", "active")
