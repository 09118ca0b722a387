# SPDX-License-Identifier: Apache-2.0
"""The files behind a stack: who may change them, when a change counts, and what becomes of requests for GPUs."""
import json
import os

import pytest

from tests.support.stacks import place, service  # noqa: F401 (a fixture)
from tests.support.sublet import wait_until

STRANGER = 54399
OTHER_FILES = {
    "extends": ({"api": {**service(), "extends": {"file": "more/base.yaml", "service": "base"}}}, "more/base.yaml"),
    "env_file": ({"api": {**service(), "env_file": "more/app.env"}}, "more/app.env"),
    "label_file": ({"api": {**service(), "label_file": "more/app.labels"}}, "more/app.labels"),
    "build": ({"api": {**service(), "build": "more"}}, "more/Dockerfile"),
}


def add_file(directory, name, text="{}"):
    path = directory / name
    path.parent.mkdir(mode=0o700, exist_ok=True)
    path.write_text(text)
    path.chmod(0o644)
    return path


@pytest.mark.parametrize("kind", OTHER_FILES)
def test_no_text_that_a_member_of_the_group_can_change_runs_as_root(place, kind):
    if os.geteuid() != 0:
        pytest.skip("needs root, to give a file to somebody else")
    services, name = OTHER_FILES[kind]
    path = add_file(place.write("chat", services, vram="1GiB"), name, "" if "env" in name or "labels" in name else "{}")
    os.chown(path, STRANGER, -1)
    place.start()
    for _ in range(2):  # a text that was refused is not remembered as a good one
        refused = place.acquire("chat")
        assert refused.status == 403 and refused["code"] == "Denied", refused
        assert f"{path} belongs to uid {STRANGER}" in refused["detail"], refused
    assert place.ups() == [] and f"belongs to uid {STRANGER}" in place.daemon.cli("stack", "ls", check=0).stdout
    os.chown(path, 0, -1)
    place.ready("chat")


def test_a_changed_file_counts_wherever_it_lies(place):
    directory = place.write("chat", {"api": {**service(), "env_file": "conf/app.env"}}, vram="1GiB")
    variables = add_file(directory, "conf/app.env", "MODEL=old\n")
    included = add_file(directory, "sub/more.yaml", json.dumps({"services": {"db": {"image": "old"}}}))
    document = json.loads((directory / "compose.yaml").read_text())
    (directory / "compose.yaml").write_text(json.dumps({**document, "include": ["sub/more.yaml"]}))
    place.start()
    chat = place.ready("chat")
    assert place.engine.find("chat", "api").environment["MODEL"] == "old"
    place.post("chat", "release", {"down": True}, chat["token"])
    place.reaches("chat", "down")
    variables.write_text("MODEL=new\n")
    included.write_text(json.dumps({"services": {"db": {"image": "new"}}}))
    place.ready("chat")
    assert place.engine.find("chat", "api").environment["MODEL"] == "new"
    assert place.engine.find("chat", "db").spec["image"] == "new"


@pytest.mark.parametrize("own", [
    {"deploy": {"resources": {"reservations": {"devices": [
        {"driver": "nvidia", "count": "all", "capabilities": ["gpu"]}]}}}},
    {"gpus": "all"}, {"runtime": "nvidia"}, {"environment": {"NVIDIA_VISIBLE_DEVICES": "all"}}],
    ids=["deploy", "gpus", "runtime", "environment"])
def test_a_stack_sees_the_devices_of_its_lease_alone(place, own):
    place.engine.gpu_runtime = True
    place.write("chat", {"api": {**service(), **own}}, vram="1GiB")
    place.start()
    place.ready("chat")
    uuid = place.daemon.get("/v1/devices")["devices"][0]["uuid"]
    text = place.compose.calls("up")[0]["files"][0]
    assert not any(word in text for word in ('"count"', "count:", "gpus", "runtime")), text
    api = place.engine.find("chat", "api")
    requests = api.spec["deploy"]["resources"]["reservations"]["devices"]
    assert requests == [{"driver": "nvidia", "device_ids": [uuid], "capabilities": ["gpu"]}]
    assert api.environment["NVIDIA_VISIBLE_DEVICES"] == api.environment["CUDA_VISIBLE_DEVICES"] == uuid


def test_an_engine_that_tells_no_events_is_looked_at(place, tmp_path):
    from tests.support.stacks_worker import StacksWorker
    place.write("one")
    with StacksWorker(tmp_path, place.engine.url, place.compose.program, words=("--look-every", "1")) as worker:
        worker.send("watch", ["one"])
        worker.observe("one", lambda c: not c)
        place.engine.tell = lambda *_, **__: None
        place.engine.up("one", {"api": {}})
        worker.observe("one", lambda c: "api" in c)
        for container in place.engine.of("one"):
            place.engine.remove(container)
        worker.observe("one", lambda c: not c)


def test_a_compatible_service_needs_stacks(place):
    daemon = place.start_daemon(place.sim, config=place.section(enabled=False, http="127.0.0.1:1"), expect_ready=False)
    daemon.process.wait(30)
    assert daemon.process.returncode == 78 and "stacks.http is set, and stacks.enabled is false" in daemon.log()


def test_the_stacks_are_read_and_not_missing(place):
    place.write("chat")
    place.compose.on("config", "hang")
    place.daemon = place.start_daemon(place.sim, config=place.section())
    place.api = place.daemon.api()
    wait_until(lambda: place.compose.calls("config"), "it is read")
    problem = place.api.get("/v1/stacks")["engine"]["problem"]
    assert problem == "the Compose files of the stacks are being read", problem
    place.compose.on("config", None)
