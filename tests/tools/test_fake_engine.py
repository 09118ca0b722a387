# SPDX-License-Identifier: Apache-2.0
"""The container engine and the Compose program that the tests of stacks use."""
import http.client
import json
import os
import socket
import subprocess

import pytest

from tests.support.fake_compose import FakeCompose
from tests.support.fake_engine import FakeEngine
from tests.support.sublet import living, wait_until

FILE = """
services:
  web:
    image: ${IMAGE:-busybox}
    labels: {gpu.healthcheck-master: "true"}
    healthcheck: {test: ["CMD", "true"]}
  helper:
    image: host
    command: ["sleep", "1000"]
"""


class Client(http.client.HTTPConnection):
    def __init__(self, engine):
        super().__init__("engine")
        self.path = str(engine.path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(60)
        self.sock.connect(self.path)

    def get(self, path):
        self.request("GET", "/v1.41" + path)
        reply = self.getresponse()
        return reply.status, json.loads(reply.read())

    def stream(self, path):
        self.request("GET", "/v1.41" + path)
        return self.getresponse()


@pytest.fixture(name="place")
def place_fixture(tmp_path):
    stack = tmp_path / "one"
    stack.mkdir()
    (stack / "compose.yml").write_text(FILE)
    with FakeEngine(tmp_path) as engine:
        yield engine, FakeCompose(tmp_path), stack


def run(engine, compose, stack, *words):
    names = ["compose"] if compose.program.name == "docker" else []
    return subprocess.run([compose.program, *names, "-f", stack / "compose.yml", *words], cwd=stack, text=True,
                          env={"PATH": os.environ["PATH"], "DOCKER_HOST": engine.url}, capture_output=True, check=False)


def test_up_and_down_are_seen_by_list_inspect_and_events(place):
    engine, compose, stack = place
    events = Client(engine).stream("/events")
    assert run(engine, compose, stack, "up", "-d").returncode == 0
    client = Client(engine)
    label = json.dumps({"label": ["com.docker.compose.project=one"]})
    rows = client.get(f"/containers/json?all=1&filters={label.replace(' ', '')}")[1]
    assert [row["Names"] for row in rows] == [["/one-web-1"], ["/one-helper-1"]]
    state = client.get(f"/containers/{rows[0]['Id']}/json")[1]["State"]
    assert (state["Status"], state["Health"]["Status"]) == ("running", "healthy")
    pid = client.get(f"/containers/{rows[1]['Id']}/json")[1]["State"]["Pid"]
    assert living(pid)
    assert run(engine, compose, stack, "down").returncode == 0
    assert not living(pid) and client.get("/containers/json?all=1")[1] == []
    actions = [json.loads(events.readline())["Action"] for _ in range(5)]
    assert actions == ["create", "start", "health_status: healthy", "create", "start"]


def test_logs_end_with_the_container_and_have_frames(place):
    engine, _, _ = place
    engine.up("one", {"web": {}})
    engine.log("one", "web", "old"), engine.log("one", "web", "new")
    stream = Client(engine).stream("/containers/one-web-1/logs?stdout=1&tail=1&follow=1")
    assert stream.read(12) == b"\1\0\0\0\0\0\0\4new\n"
    engine.die("one", "web", 3)
    assert stream.read() == b""
    assert Client(engine).get("/containers/one-web-1/json")[1]["State"]["ExitCode"] == 3


def test_config_resolves_variables_in_the_way_of_each_version(place):
    engine, compose, stack = place
    (stack / ".env").write_text("IMAGE=alpine\n")
    whole = json.loads(run(engine, compose, stack, "config", "--format", "json").stdout)
    assert (whole["name"], whole["services"]["web"]["image"]) == ("one", "busybox")
    old = FakeCompose(stack.parent, "docker-compose", version="1.29.2")
    assert run(engine, old, stack, "config").stdout.startswith("services:")
    assert run(engine, old, stack, "config", "--format", "json").returncode == 1


@pytest.mark.parametrize("action, left", [("fail", 0), ("half", 1)])
def test_up_fails_with_the_text_of_the_test(place, action, left):
    engine, compose, stack = place
    compose.on("up", action, text="port is already allocated")
    done = run(engine, compose, stack, "up", "-d")
    assert (done.returncode, done.stderr) == (1, "port is already allocated\n") and len(engine.containers) == left
    compose.on("up", None)
    assert run(engine, compose, stack, "up", "-d").returncode == 0
    assert [call["argv"][-2:] for call in compose.calls("up")] == [["up", "-d"], ["up", "-d"]]


def test_an_engine_that_is_away_cuts_streams_and_comes_back_with_its_containers(place):
    engine, compose, stack = place
    events = Client(engine).stream("/events")
    engine.up("one", {"web": {}})
    engine.away()
    with pytest.raises((http.client.HTTPException, OSError)):
        while events.readline():
            pass
        raise ConnectionResetError
    assert "Cannot connect" in run(engine, compose, stack, "up", "-d").stderr
    engine.back()
    assert len(Client(engine).get("/containers/json")[1]) == 1


def test_an_engine_that_hangs_answers_after_unhang(place):
    engine, _, _ = place
    engine.hang()
    client = Client(engine)
    client.request("GET", "/v1.41/info")
    engine.wait(lambda: engine.calls, "the call")
    engine.unhang()
    assert client.getresponse().status == 200


def test_a_hanging_compose_program_ignores_sigterm_and_has_a_child(place):
    engine, compose, stack = place
    compose.on("up", "hang", after=True)
    process = subprocess.Popen([compose.program, "compose", "-f", stack / "compose.yml", "up", "-d"],
                               env={"DOCKER_HOST": engine.url, "PATH": os.environ["PATH"]}, start_new_session=True)
    engine.wait(lambda: len(engine.containers) == 2, "the containers")
    children = f"/proc/{process.pid}/task/{process.pid}/children"
    wait_until(lambda: open(children, encoding="ascii").read().split(), "the child")
    process.terminate()
    assert living(process.pid)
    os.killpg(process.pid, 9)
    assert process.wait() == -9
