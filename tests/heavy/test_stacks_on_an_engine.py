# SPDX-License-Identifier: Apache-2.0
"""Stacks on a real Docker Engine: processes on a simulated card, turns, and an engine that is killed."""
import json
import os
import pathlib
import subprocess

import pytest

from tests.e2e.conftest import start_daemon  # noqa: F401 (a fixture)
from tests.support.real_engine import IMAGE, RealEngine, compose_programs, need
from tests.support.stacks import LABEL, Stacks
from tests.support.sublet import BUILD, MIB, living, wait_until

SYSTEM = [f"{path}:{path}:ro" for path in ("/usr", "/lib", "/lib64") if pathlib.Path(path).exists()]


@pytest.fixture(name="gpu_engine", scope="module")
def gpu_engine_fixture():
    need()
    engine = RealEngine(gpus=True).start().import_image()
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
        "image": IMAGE, "command": list(map(str, command)), "network_mode": "none",
        "pid": "host", "stop_signal": "SIGKILL", "labels": {LABEL: "true"}, "volumes": volumes,
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


def test_a_program_in_a_container_is_refused_at_the_size_of_its_lease(place, tmp_path):
    place.start()
    out = tmp_path / "out"
    out.mkdir()
    for path, mode in ((out, 0o777), (place.daemon.dir, 0o711)):  # another user than that of the lease
        path.chmod(mode)
    load = f"{BUILD}/bin/simgpu-load --seconds"
    script = (f"{load} 0 --alloc 3GiB > /out/beyond 2>&1; echo $? > /out/status;"
              f"{load} 600 --alloc 512MiB > /out/within 2>&1")
    volumes = [*SYSTEM, f"{BUILD}:{BUILD}:ro", f"{place.daemon.dir}:{place.daemon.dir}", f"{out}:/out"]
    place.write("chat", {"api": {
        "image": IMAGE, "command": ["/usr/bin/busybox", "sh", "-c", script.replace("$", "$$")], "network_mode": "none",
        "pid": "host", "user": "12345", "stop_signal": "SIGKILL", "labels": {LABEL: "true"}, "volumes": volumes,
        "healthcheck": {"test": ["CMD", "/usr/bin/busybox", "test", "-s", "/out/status"], "interval": "1s"}}},
                vram="2GiB", interposer=True, share=30)
    wait_until(lambda: place.states(), "it is found")
    chat = place.ready("chat", wait=120)

    def lease():
        return place.daemon.get(f"/v1/leases/{chat['lease']}")

    beyond = (out / "beyond").read_text()
    assert (out / "status").read_text() != "0\n" and "memory" in beyond, beyond
    seen = wait_until(lambda: (now := lease())["used_bytes"] >= 512 * MIB and now, "the second program has its memory")
    assert seen["share"] == 30 and seen["interposer"]["processes"] == 1 and not seen["interposer"]["uncontrolled"]
    told = place.daemon.cli("why", chat["lease"], check=0).stdout
    assert "The interposer refuses allocations beyond it" in told and "30 %" in told
    place.post("chat", "release", {"down": True}, chat["token"])
    place.reaches("chat", "down")


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


def reservation(**more):
    return {"deploy": {"resources": {"reservations": {"devices": [
        {"driver": "nvidia", "capabilities": ["gpu"], **more}]}}}}


@pytest.mark.parametrize("program, own", [
    ("v1", reservation(count="all")), ("current", reservation(count="all")),
    ("v1", reservation(device_ids=["1"])), ("current", reservation(device_ids=["1"])),
    ("current", {"gpus": "all"}), ("v1", {"runtime": "nvidia"}), ("current", {"runtime": "nvidia"}),
    ("current", {"environment": {"NVIDIA_VISIBLE_DEVICES": "all"}}), ("v1", {}), ("current", {})])
def test_a_container_has_one_request_for_the_device_of_its_lease(gpu_engine, start_daemon, tmp_path,  # noqa: F811
                                                                 program, own):
    programs = compose_programs()
    if program not in programs:
        pytest.skip(f"Compose {program} is not installed")
    with Stacks(start_daemon, tmp_path, engine=gpu_engine, program=programs[program], sim="2x4GiB") as place:
        place.start()
        write(place, "chat", "2GiB", "/bin/busybox", "sleep", "1000", **own)
        wait_until(lambda: place.states(), "it is found")
        chat = place.ready("chat", wait=120)
        uuid = place.daemon.get(f"/v1/leases/{chat['lease']}")["devices"][0]
        container = gpu_engine.inspect(place.get("chat")["containers"][0]["name"])
        requests = [(one["Count"] or 0, one["DeviceIDs"]) for one in container["HostConfig"]["DeviceRequests"]]
        assert requests == [(0, [uuid])], requests
        assert container["HostConfig"]["Runtime"] in ("runc", "")
        visible = [text for text in container["Config"]["Env"] if "VISIBLE_DEVICES" in text]
        assert sorted(visible) == [f"CUDA_VISIBLE_DEVICES={uuid}", f"NVIDIA_VISIBLE_DEVICES={uuid}"]
        place.post("chat", "release", {"down": True}, chat["token"])
        place.reaches("chat", "down")
    gpu_engine.clear()


def test_a_paused_stack_resumes_for_its_user_and_ends_with_its_lease(place):
    place.start()
    write(place, "chat", "2GiB", BUILD / "bin/simgpu-load", "--alloc", "512MiB", "--seconds", "600")
    wait_until(lambda: place.states(), "it is found")

    def paused(chat):
        assert place.daemon.cli("pause", chat["lease"], check=0)
        return wait_until(lambda: place.get("chat")["lease_state"] == "paused", "it is paused without a grant")

    def ready():
        chat = place.ready("chat", wait=120)
        wait_until(lambda: any(row["lease"] == chat["lease"] and row["used_bytes"] >= 512 * MIB
                               for row in place.api.get("/v1/processes")["processes"]), "it is booked")
        return chat

    chat = ready()
    paused(chat)
    place.post("chat", "release", {}, chat["token"])
    assert "stack chat is ready" in place.daemon.cli("stack", "acquire", "chat", check=0).stderr
    assert place.get("chat")["lease_state"] == "active"
    paused(chat)
    assert place.daemon.cli("stack", "release", "chat", "--down", check=0)
    place.reaches("chat", "down")
    assert not place.daemon.leases() and not place.engine.containers()
    chat = ready()
    paused(chat)
    place.engine.clear()  # behind our back
    place.reaches("chat", "down", "failed")
    wait_until(lambda: not place.daemon.leases(), "its lease ends with it")


def test_a_restart_by_hand_keeps_the_lease_and_the_files(place):
    place.start()
    write(place, "chat", "2GiB", "/bin/busybox", "sleep", "1000")
    wait_until(lambda: place.states(), "it is found")
    chat = place.ready("chat", wait=120)
    container = place.engine.containers()[0]["Id"]
    compose = [place.program, "-p", "chat", "-f", place.stacks / "chat/compose.yaml"]

    def by_hand(*words):
        environment = {**os.environ, "DOCKER_HOST": place.engine.url}
        subprocess.run([*map(str, compose), *words], env=environment, check=True, capture_output=True)

    def well():
        now = place.get("chat")
        return now["state"] == "ready" and now["containers"][0]["health"] == "healthy" and not now["why"]

    assert place.engine.call("POST", f"/containers/{container}/restart?t=0")[0] == 204
    wait_until(well, "it is back after the engine restarted it")
    by_hand("restart", "-t", "0")
    wait_until(well, "it is back after Compose restarted it")
    assert [one["Id"] for one in place.engine.containers()] == [container], "its files are there"
    write(place, "chat", "2GiB", "/bin/busybox", "sleep", "2000")
    by_hand("up", "-d", "-t", "0")
    wait_until(well, "the container that Compose made of the edited file is well")
    assert [one["Id"] for one in place.engine.containers()] != [container]
    assert place.get("chat")["lease"] == chat["lease"] and len(place.daemon.leases()) == 1


@pytest.mark.parametrize("way", ["plain", "variable", "merge"])
def test_files_of_others_are_refused_with_each_compose(place, way):
    place.start()
    named = "${CONF}/base.yaml" if way == "variable" else "more/conf/base.yaml"
    write(place, "chat", "2GiB", "/bin/busybox", "sleep", "1000", extends={"file": named, "service": "base"})
    directory = place.stacks / "chat"
    (directory / ".env").write_text("BASE=more\nCONF=${BASE}/conf\n")
    if way == "merge":
        document = json.loads((directory / "compose.yaml").read_text())
        services = json.dumps(document.pop("services"))
        (directory / "compose.yaml").write_text(f"{json.dumps(document)[:-1]}, \"services\": {{<<: {services}}}}}")
    base = directory / "more/conf/base.yaml"
    base.parent.mkdir(parents=True)
    base.write_text(f"services: {{base: {{image: {IMAGE}}}}}\n")
    base.chmod(0o666)
    wait_until(lambda: place.states(), "it is found")
    refused = place.acquire("chat")
    assert refused.status == 403 and f"{base} can be written by everybody" in refused["detail"], refused
    base.chmod(0o644)
    place.ready("chat", wait=120)
