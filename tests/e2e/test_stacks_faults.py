# SPDX-License-Identifier: Apache-2.0
"""Faults of stacks: Compose, containers, engine, worker and daemon fail; and processes of containers."""
import os
import pathlib
import signal

import pytest

from tests.support.events import Stream
from tests.support.stacks import LABEL, place, service, two  # noqa: F401 (a fixture)
from tests.support.sublet import MIB, wait_until


@pytest.mark.parametrize("action", ["fail", "half"])
def test_a_failed_start_is_brought_down_and_can_be_repeated(place, action):
    place.write("chat", {"db": service(healthy=False, master=False), "api": service()}, vram="1GiB")
    place.start()
    place.compose.on("up", action, text="Bind for 0.0.0.0:80 failed: port is already allocated")
    refused = place.acquire("chat")
    assert refused.status == 409 and "port is already allocated" in refused["detail"], refused
    place.reaches("chat", "failed")
    assert not place.engine.containers and not place.daemon.leases() and place.downs() == ["chat"]
    place.compose.on("up", None)
    place.ready("chat")


def test_a_compose_that_hangs_is_ended(place):
    two(place, command_timeout="1s")
    place.compose.on("up", "hang", project="chat", after=True)
    first = place.acquire("chat", wait=0)
    assert place.ready("image", queue=True, wait=60)["state"] == "ready", "no call waits for another"
    assert place.acquire("chat", token=first["token"]).status in (403, 409)
    place.reaches("chat", "failed")
    assert not place.engine.of("chat")


def test_a_container_that_dies_later_ends_the_lease(place):
    two(place)
    chat = place.ready("chat")
    with Stream(place.daemon, "?type=stack") as stream:
        place.engine.die("chat", "api", 137)
        told = stream.until(lambda event: event["state"] == "failed")
    assert "exit code 137" in told[-1]["text"]
    assert place.daemon.get(f"/v1/leases/{chat['lease']}")["state"] == "ended"
    assert not place.engine.containers
    place.ready("chat")


def test_a_container_that_is_restarted_by_hand_keeps_its_lease(place):
    two(place)
    chat = place.ready("chat")
    container = place.engine.find("chat", "api")
    place.engine.end(container, 143)
    wait_until(lambda: "it has 10 s to come back" in (place.get("chat")["why"] or ""), "the daemon knows")
    place.engine.start(container)
    wait_until(lambda: not place.get("chat")["why"], "it is well again")
    now = place.get("chat")
    assert (now["state"], now["lease"]) == ("ready", chat["lease"]) and not place.downs()


def test_a_revoked_lease_brings_the_stack_down(place):
    two(place)
    chat = place.ready("chat")
    for verb in ("release", "stop"):
        refused = place.daemon.cli(verb, "stack-chat", check=1).stderr
        assert "lease-1 belongs to stack chat, which is up" in refused and "sublet stack release chat --down" in refused
    assert place.get("chat")["state"] == "ready"
    assert place.api.post(f"/v1/leases/{chat['lease']}/release", {"force": True}).status == 200
    down = place.reaches("chat", "down")
    assert "its lease ended" in down["why"] and not place.engine.containers


def test_a_daemon_killed_during_up_goes_on(place):
    two(place)
    place.compose.on("up", "hang", after=True)
    first = place.acquire("chat", wait=0)
    place.engine.wait(lambda: place.engine.of("chat"), "its containers are there")
    place.daemon.kill()
    place.compose.on("up", None)
    place.restart()
    ready = place.acquire("chat", token=first["token"])
    assert ready.status == 200 and ready["lease"] == first["lease"], ready


def test_a_daemon_killed_during_a_claim_window_starts_nothing_for_nobody(place):
    place.more = '[queue]\nclaim_window = "1s"\n[lease]\nreconnect = "2s"\n'
    two(place)
    chat = place.ready("chat")
    waits = place.acquire("image", wait=0)
    place.post("chat", "release", {"down": True}, chat["token"])
    wait_until(lambda: place.get("image")["lease_state"] == "offered", "its lease is offered")
    place.restart()
    ended = place.reaches("image", "down")
    assert "unclaimed" in ended["why"] and place.ups() == ["chat"]
    assert place.acquire("image", token=waits["token"]).status == 403


def test_a_claim_after_the_restart_starts_the_stack(place):
    place.more = '[queue]\nclaim_window = "60s"\n'
    two(place)
    chat = place.ready("chat")
    waits = place.acquire("image", wait=0)
    place.post("chat", "release", {"down": True}, chat["token"])
    wait_until(lambda: place.get("image")["lease_state"] == "offered", "its lease is offered")
    place.restart()
    assert place.acquire("image", token=waits["token"]).status == 200


def test_after_a_restart_the_engine_tells_what_is_there(place):
    two(place)
    chat = place.ready("chat")
    place.daemon.kill()
    place.restart()
    assert place.reaches("chat", "ready")["lease"] == chat["lease"] and place.ups() == ["chat"]
    place.daemon.kill()
    place.engine.down("chat")
    place.restart()
    assert place.reaches("chat", "down")["why"] == "its containers were removed"
    assert not place.daemon.leases()


def test_an_engine_that_is_away_ends_nothing(place):
    two(place)
    chat = place.ready("chat")
    waits = place.acquire("image", wait=0)
    place.engine.away()
    wait_until(lambda: place.api.get("/v1/stacks")["engine"]["problem"], "it is noticed")
    refused = place.acquire("chat", wait=0)
    assert refused.status == 503 and "the container engine cannot be reached" in refused["detail"]
    assert place.post("chat", "renew", {}, chat["token"]).status == 200
    assert any(warning["code"] == "stacks" for warning in place.api.get("/v1/status")["warnings"])
    assert place.states() == {"chat": "ready", "image": "queued"}
    place.engine.back()
    wait_until(lambda: not place.api.get("/v1/stacks")["engine"]["problem"], "it is back")
    place.post("chat", "release", {"down": True}, chat["token"])
    assert place.acquire("image", token=waits["token"]).status == 200


def test_a_death_while_the_engine_was_away_is_seen(place):
    two(place)
    place.ready("chat")
    place.engine.away()
    place.engine.die("chat", "api", 1)
    place.engine.back()
    assert "exit code 1" in place.reaches("chat", "failed")["why"]


def test_containers_of_others_are_shown_and_can_be_acquired(place):
    two(place)
    place.engine.up("chat", {"api": {"labels": {LABEL: "true"}, "healthcheck": True}})
    place.reaches("chat", "up")
    assert place.get("chat")["lease"] is None
    place.ready("chat")


def test_containers_of_another_project_with_the_same_name_are_left_alone(place):
    two(place)
    place.engine.up("chat", {"web": {}}, directory="/srv/others/chat")
    place.reaches("chat", "up")
    refused = place.acquire("chat")
    assert refused.status == 409 and refused["code"] == "InUse", refused
    assert "container chat-web-1" in refused["detail"] and "/srv/others/chat" in refused["detail"], refused
    assert [c.status for c in place.engine.of("chat")] == ["running"] and not place.ups() and not place.downs()
    place.engine.down("chat")
    place.reaches("chat", "down")
    place.ready("chat")


def test_a_stack_is_brought_down_when_the_engine_is_back(place):
    two(place)
    chat = place.ready("chat")
    place.engine.away()
    assert place.post("chat", "release", {"down": True}, chat["token"])["state"] == "stopping"
    told = wait_until(lambda: place.get("chat")["warning"], "why it is not down")
    assert "it could not be brought down" in told
    assert place.get("chat")["lease_state"] == "active", "its containers may hold the memory"
    place.engine.back()
    place.reaches("chat", "down")
    assert not place.engine.containers and not place.daemon.leases()


def test_a_worker_that_is_killed_loses_nothing(place):
    two(place)
    place.ready("chat", ttl_seconds=600)
    os.kill(place.daemon.child_pid("sublet-stacks"), signal.SIGKILL)
    place.engine.die("chat", "api", 9)
    assert "exit code 9" in place.reaches("chat", "failed")["why"], "the next worker sees it"
    place.ready("chat")


def test_stacks_of_the_configuration_variable(place, tmp_path, monkeypatch):
    directory = place.write("image", {"web": {"image": "busybox"}, "once": {"image": "busybox"}}, into=tmp_path,
                            vram="1GiB")
    monkeypatch.setenv("GPU_SERVICE_CONFIG_YAML", f"services:\n  pictures: {directory}/compose.yaml\n")
    place.start(dir="")
    place.engine.auto_healthy = False
    pictures = place.ready("pictures")
    assert (pictures["rule"], pictures["origin"]) == ("containers", "config")
    place.engine.die(pictures["project"], "once", 0)
    place.engine.log(pictures["project"], "web", "still here")
    assert place.get("pictures")["state"] == "ready", "a helper that has done its work is excused"
    place.engine.die(pictures["project"], "web", 0)
    assert "have exited" in place.reaches("pictures", "failed")["why"]


# --- processes ---

def memory_group():
    """Returns a directory of control groups in which a test may make groups, or None."""
    for path in ("/sys/fs/cgroup/memory", "/sys/fs/cgroup"):
        root = pathlib.Path(path)
        if (root / "cgroup.procs").exists() and os.access(root, os.W_OK):
            return root
    return None


def test_processes_of_containers_are_booked_to_the_lease(place):
    root = memory_group()
    if root is None:
        pytest.skip("no writable control groups here; tests/heavy/test_real_engine.py has this check")
    load = ["simgpu-load", "--alloc", "256MiB", "--seconds", "600"]
    place.write("chat", {"api": service()}, vram="1GiB")
    place.start()
    chat = place.ready("chat")
    container = place.engine.find("chat", "api")
    group = root / f"docker-{container.id}.scope"
    group.mkdir()
    program = None
    try:
        program = place.daemon.spawn(*load)
        (group / "cgroup.procs").write_text(str(program.pid))
        container.pid = program.pid
        place.engine.set_health("chat", "api", "healthy")  # any event: the worker looks again
        row = wait_until(lambda: next((row for row in place.api.get("/v1/processes")["processes"]
                                       if row["pid"] == program.pid and row["lease"]), None), "it is booked")
        assert row["lease"] == chat["lease"] and row["used_bytes"] >= 256 * MIB
        program.kill()
        program.wait()
    finally:
        if program is not None and program.poll() is None:
            program.kill()
            program.wait()
        wait_until(lambda: not (group / "cgroup.procs").read_text().strip(), "the group is empty")
        group.rmdir()
    place.post("chat", "release", {"down": True}, chat["token"])
    place.reaches("chat", "down")
    assert place.get("chat")["peak_bytes"] >= 256 * MIB
