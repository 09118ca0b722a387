# SPDX-License-Identifier: Apache-2.0
"""The stacks of README.md: its commands run on a real Docker Engine, and two stacks take turns."""
import subprocess

import pytest

from tests.e2e.conftest import start_daemon  # noqa: F401 (a fixture)
from tests.support.real_engine import IMAGE, RealEngine, compose_programs, need
from tests.support.stacks import LABEL, Stacks
from tests.support.sublet import ROOT, wait_until


def commands():
    text = (ROOT / "README.md").read_text().split("## Two Compose stacks on one card", 1)[1]
    return text.split("```sh\n", 1)[1].split("```", 1)[0]


@pytest.fixture(name="place")
def place_fixture(start_daemon, tmp_path):  # noqa: F811
    need()
    programs = compose_programs()
    if not programs:
        pytest.skip("no Compose program is installed (docker-compose; tests/heavy/compose-requirements.txt)")
    engine = RealEngine().start().import_image()
    try:
        with Stacks(start_daemon, tmp_path, engine=engine, program=list(programs.values())[-1]) as place:
            for name, vram in (("chat", "2GiB"), ("image", "3GiB")):
                place.write(name, {"api": {
                    "image": IMAGE, "command": ["/bin/sh", "-c", f"echo {name} serves; exec sleep 1000"],
                    "network_mode": "none", "stop_signal": "SIGKILL", "labels": {LABEL: "true"},
                    "healthcheck": {"test": ["CMD", "/bin/busybox", "true"], "interval": "1s"}}}, vram=vram)
            yield place.start()
    finally:
        engine.close()


def test_two_stacks_take_turns_as_the_readme_shows(place):
    lines = commands().splitlines()
    assert len(lines) <= 10
    waits = next(number for number, line in enumerate(lines) if "acquire image" in line)
    wait_until(lambda: len(place.states()) == 2, "both are found")
    shell = subprocess.Popen(["bash", "-e"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                             env=place.daemon.env(), text=True)
    shell.stdin.write("\n".join(lines[:waits + 1]) + "\n")
    shell.stdin.flush()
    place.reaches("image", "queued")  # a reader sees this before the next line is typed
    printed, _ = shell.communicate("\n".join(lines[waits + 1:]) + "\n", timeout=180)
    assert shell.returncode == 0, printed
    place.reaches("chat", "down")
    place.reaches("image", "down")
    assert "stack image is ready" in printed and "image serves" in printed and "stack-chat" in printed, printed
    assert not place.engine.containers()
