# SPDX-License-Identifier: Apache-2.0
"""The session of docs/stacks.md: its commands run on a real Docker Engine, and two stacks take turns."""
import subprocess

import pytest

from tests.e2e.conftest import start_daemon  # noqa: F401 (a fixture)
from tests.support.real_engine import IMAGE, RealEngine, compose_programs, need
from tests.support.stacks import LABEL, Stacks
from tests.support.sublet import ROOT, wait_until


def commands():
    text = (ROOT / "docs/stacks.md").read_text().split("```console\n", 1)[1].split("```", 1)[0]
    return [line.removeprefix("$ ") for line in text.splitlines() if line.startswith("$ ")]


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


def test_two_stacks_take_turns_as_the_document_shows(place):
    wait_until(lambda: len(place.states()) == 2, "both are found")
    printed = []
    for command in commands():
        done = subprocess.run(["bash", "-c", command], env=place.daemon.env(), stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=180)
        printed.append((command, done.returncode, done.stdout))
    assert [command for command, status, _ in printed if status] == ["sublet stack acquire image"], printed
    ready = [output.splitlines()[-1] for command, status, output in printed if " acquire " in command and not status]
    assert "stack chat is ready" in ready[0] and "stack image is ready" in ready[1], printed
    refused = next(output for _, status, output in printed if status)
    assert "the lease needs 3.0 GiB" in refused and "sublet stack acquire --wait" in refused, refused
    rows = [line.split()[:2] for line in printed[-2][2].splitlines()[1:]]
    assert rows == [["chat", "down"], ["image", "ready"]], printed
    place.reaches("image", "down")
    assert not place.engine.containers()
