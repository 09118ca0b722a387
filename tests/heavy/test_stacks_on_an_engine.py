# SPDX-License-Identifier: Apache-2.0
"""Stacks on a real Docker Engine: processes on a simulated card, turns, and an engine that is killed."""
import pathlib

import pytest

from tests.e2e.conftest import start_daemon  # noqa: F401 (a fixture)
from tests.support.real_engine import IMAGE, RealEngine, compose_programs, need
from tests.support.stacks import LABEL, Stacks
from tests.support.sublet import BUILD, MIB, living, wait_until

SYSTEM = [f"{path}:{path}:ro" for path in ("/usr", "/lib", "/lib64") if pathlib.Path(path).exists()]


@pytest.fixture(name="engine", scope="module")
def engine_fixture():
    need()
    engine = RealEngine().start().import_image()
    yield engine
    engine.close()


@pytest.fixture(name="place", params=["v1", "current"])
def place_fixture(request, engine, start_daemon, tmp_path):  # noqa: F811
    programs = compose_programs()
    if request.param not in programs:
        pytest.skip(f"Compose {request.param} is not installed (docker-compose; tests/heavy/compose-requirements.txt)")
    with Stacks(start_daemon, tmp_path, engine=engine, program=programs[request.param]) as place:
        yield place
    engine.clear()


def write(place, name, vram, *command, **more):
    """Writes a stack whose container sees the simulated card. The daemon's directory is known only once it runs."""
    volumes = [*SYSTEM, f"{BUILD}:{BUILD}:ro", f"{place.daemon.dir}:{place.daemon.dir}"]
    place.write(name, {"api": {
        "image": IMAGE, "command": list(map(str, command)), "network_mode": "none", "pid": "host",
        "stop_signal": "SIGKILL", "labels": {LABEL: "true"}, "volumes": volumes,
        "healthcheck": {"test": ["CMD", "/bin/busybox", "true"], "interval": "1s"}, **more}}, vram=vram)


def test_two_stacks_take_turns_with_their_memory_on_the_card(place):
    place.start()
    load = (BUILD / "bin/simgpu-load", "--alloc", "512MiB", "--seconds", "600")
    write(place, "chat", "2GiB", *load)
    write(place, "image", "3GiB", *load)
    wait_until(lambda: len(place.states()) == 2, "both are found")
    chat = place.ready("chat", wait=120)
    used = wait_until(lambda: [row for row in place.api.get("/v1/processes")["processes"]
                               if row["lease"] == chat["lease"] and row["used_bytes"] >= 512 * MIB], "it is booked")
    assert place.get("chat")["containers"][0]["pid"] == used[0]["pid"]
    assert not place.api.get("/v1/status")["unleased_processes"]
    place.post("chat", "release", {}, chat["token"])
    image = place.ready("image", wait=120)
    assert place.get("chat")["state"] == "down" and not living(used[0]["pid"])
    assert place.get("chat")["peak_bytes"] >= 512 * MIB
    assert place.daemon.get(f"/v1/leases/{chat['lease']}")["state"] == "ended"
    place.post("image", "release", {"down": True}, image["token"])
    place.reaches("image", "down")
    assert not place.engine.containers()


def test_an_engine_that_is_killed_comes_back(place):
    place.start()
    write(place, "chat", "2GiB", "/bin/busybox", "sleep", "1000")
    wait_until(lambda: place.states(), "it is found")
    chat = place.ready("chat", wait=120)
    place.engine.kill()
    wait_until(lambda: place.api.get("/v1/stacks")["engine"]["problem"], "it is noticed")
    assert place.get("chat")["state"] == "ready" and place.post("chat", "renew", {}, chat["token"]).status == 200
    place.engine.start()
    failed = place.reaches("chat", "failed", "down")  # this engine ends the containers of the one before
    assert failed["why"] and not place.daemon.leases()
    place.ready("chat", wait=120)


def test_a_start_that_fails_names_the_image_and_can_be_repeated(place):
    place.start()
    write(place, "chat", "2GiB", "/bin/busybox", "sleep", "1000", image="busybox:missing")
    wait_until(lambda: place.states(), "it is found")
    refused = place.acquire("chat", wait=120)
    assert refused.status == 409 and "busybox" in refused["detail"], refused
    place.reaches("chat", "failed")
    assert not place.engine.containers() and not place.daemon.leases()
    write(place, "chat", "2GiB", "/bin/busybox", "sleep", "1000")
    place.ready("chat", wait=120)
