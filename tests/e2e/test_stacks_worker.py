# SPDX-License-Identifier: Apache-2.0
"""The worker of stacks against a fake engine and a fake Compose: discovery, starting, containers, logs, and faults."""
import json
import os
import pathlib
import signal
import subprocess

import pytest

from tests.support.fake_compose import FakeCompose
from tests.support.fake_engine import FakeEngine
from tests.support.stacks_worker import SOURCES, StacksWorker
from tests.support.sublet import wait_until

FILE = """
services:
  web:
    image: ${IMAGE:-busybox}
    environment: {MODE: fast}
    labels: {gpu.healthcheck-master: "true"}
    healthcheck: {test: ["CMD", "true"]}
  helper: {image: busybox}
x-sublet: {vram: 16GiB}
"""
OVERLAY = json.dumps({"services": {"web": {"environment": {"SUBLET_LEASE": "lease-1"},
                                           "labels": {"sublet.stack": "one"}}}})


class Place:
    def __init__(self, directory, engine, compose):
        self.directory, self.engine, self.compose = directory, engine, compose
        self.stacks = directory / "stacks"
        self.add("one")
        self.worker = StacksWorker(directory, engine.url, compose.program)

    def add(self, name, text=FILE):
        stack = self.stacks / name
        stack.mkdir(parents=True, exist_ok=True)
        (stack / "compose.yml").write_text(text)
        return stack

    def one(self):
        return self.worker.describe(dir=self.stacks)["one"]


@pytest.fixture(name="place", params=["docker", "docker-compose"])
def place_fixture(request, tmp_path):
    yield from make_place(tmp_path, request.param)


@pytest.fixture(name="modern")
def modern_fixture(tmp_path):
    yield from make_place(tmp_path, "docker")


def make_place(directory, kind):
    with FakeEngine(directory) as engine:
        compose = FakeCompose(directory, kind, "2.29.1" if kind == "docker" else "1.29.2")
        place = Place(directory, engine, compose)
        yield place
        place.worker.close()


def test_a_stack_is_described_started_observed_and_stopped(place):
    worker = place.worker
    engine = worker.engine(True, program="docker compose 2.29.1" if place.compose.program.name == "docker"
                           else "docker-compose 1.29.2")
    assert (engine["version"], engine["gpu_runtime"], engine["why"]) == ("20.10.24", False, "")
    stack = place.one()
    assert "error" not in stack and stack["project"] == "one" and stack["origin"] == "directory"
    assert json.loads(stack["extension"]) == {"vram": "16GiB"}
    services = {service["name"]: service for service in stack["services"]}
    assert services["web"]["labels"] == {"gpu.healthcheck-master": "true"} and services["web"]["healthcheck"]
    assert not services["helper"]["healthcheck"] and services["helper"]["replicas"] == 1

    worker.send("watch", ["one"])
    assert worker.observe("one") == {}
    assert "error" not in worker.up(stack, OVERLAY)
    seen = worker.observe("one", lambda c: len(c) == 2 and c["web"]["health"] == "healthy")
    assert seen["helper"]["status"] == "running" and seen["helper"]["health"] == ""
    assert seen["web"]["labels"]["sublet.stack"] == "one" and len(seen["web"]["id"]) == 64
    assert json.loads(seen["web"]["state"])["Health"]["Status"] == "healthy"
    environment = place.engine.find("one", "web").environment
    assert environment == {"MODE": "fast", "SUBLET_LEASE": "lease-1"}

    assert "error" not in worker.down(stack)
    assert worker.observe("one", lambda c: not c) == {}
    verbs = [call["verb"] for call in place.compose.calls()]
    assert verbs == ["config", "up", "down"]
    up = place.compose.calls("up")[0]
    remote = [f"COMPOSE_EXPERIMENTAL_{kind}_REMOTE" for kind in ("GIT", "OCI")]
    assert up["env"] == sorted([*remote, "DOCKER_HOST", "HOME", "LANG", "PATH"])
    assert up["files"][0] == stack["resolved"] and len(up["files"]) == 2
    assert [path.name for path in (place.worker.runtime / "one").iterdir()] == ["lock"]


def test_the_files_of_a_running_stack_are_private(modern):
    assert "error" not in modern.worker.up(modern.one(), OVERLAY)
    files = {path.name: path.stat().st_mode & 0o777 for path in (modern.worker.runtime / "one").iterdir()}
    assert files == {"lock": 0o600, "resolved.yaml": 0o600, "overlay.yaml": 0o600}


def test_unchanged_files_are_not_resolved_again(modern):
    first = modern.one()
    assert modern.one() == first and len(modern.compose.calls("config")) == 1
    (modern.stacks / "one" / ".env").write_text("IMAGE=other\n")
    modern.one()
    assert len(modern.compose.calls("config")) == 2
    modern.add("one", FILE.replace("fast", "slow"))
    assert "slow" in modern.one()["resolved"] and len(modern.compose.calls("config")) == 3


def test_the_environment_file_goes_to_config_and_up(modern):
    variables = modern.directory / "variables"
    variables.write_text("IMAGE=special\n")
    stack = modern.worker.describe(dir=modern.stacks, env_file=variables)["one"]
    assert "special" in stack["resolved"]
    assert "error" not in modern.worker.up(stack)
    for verb in ("config", "up"):
        words = modern.compose.calls(verb)[0]["argv"]
        assert words[words.index("--env-file") + 1] == str(variables)


def test_broken_unsafe_and_ambiguous_stacks_have_an_error(place):
    place.add("broken", "services:\n  web: {image: a\n  b: c\n")
    place.add("empty", "services: {}\n")
    place.add("half", "services: {web: {}}\n")
    (place.add("unsafe") / "compose.yml").chmod(0o666)
    other = place.add("../other/one")
    stacks = place.worker.describe(dir=place.stacks, adopted=[{"name": "two", "path": str(other)}])
    errors = {name: stack.get("error", {}).get("detail", "") for name, stack in stacks.items()}
    assert f"{place.stacks}/broken/compose.yml:3: " in errors["broken"]
    assert "has no services" in errors["empty"]
    assert "has neither an image nor a build context" in errors["half"]
    assert errors["unsafe"].endswith("can be written by everybody")
    assert errors["one"] == "the stacks 'one' and 'two' are the same Compose project 'one'" and errors["two"]


@pytest.mark.parametrize("text", ["Bind for 0.0.0.0:80 failed: port is already allocated",
                                  "pull access denied for no/such, repository does not exist"])
def test_up_that_fails_says_why_and_can_be_repeated(place, text):
    place.compose.on("up", "half", text=text)
    stack = place.one()
    error = place.worker.up(stack)["error"]
    assert error["code"] == "Stale"
    assert error["detail"] == f"Compose could not start stack 'one': {text}"
    assert len(place.engine.containers) == 1
    assert "error" not in place.worker.down(stack) and not place.engine.containers
    place.compose.on("up", None)
    assert "error" not in place.worker.up(stack) and len(place.engine.containers) == 2


def test_a_compose_program_that_hangs_is_ended_with_its_children(modern):
    modern.compose.on("up", "hang", project="one", after=True)
    stack = modern.one()
    number = modern.worker.send("up", StacksWorker.start_of(stack, timeout=1))
    modern.engine.wait(lambda: len(modern.engine.containers) == 2, "the containers")
    # Other calls go on meanwhile.
    modern.add("other")
    assert "error" not in modern.worker.up(modern.worker.describe(dir=modern.stacks)["other"])
    error = modern.worker.reply(number)["error"]
    assert "it did not end in time and was ended" in error["detail"]
    pid = modern.compose.calls("up")[0]["pid"]
    wait_until(lambda: not group_lives(pid), "the end of the process group")
    modern.compose.on("up", None, project="one")
    assert "error" not in modern.worker.up(stack)


def group_lives(pgid):
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, group = path.read_text(errors="replace").rsplit(")", 1)[1].split()[:3]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if group == str(pgid) and state not in "ZX":
            return True
    return False


def test_a_config_that_floods_or_a_missing_program_is_a_clear_error(modern):
    modern.compose.on("config", "flood")
    assert "it wrote too much and was ended" in modern.one()["error"]["detail"]
    modern.compose.on("config", None)
    modern.compose.program.unlink()
    error = modern.one()["error"]
    assert error["detail"] == f"the Compose program {modern.compose.program} does not exist"
    assert error["code"] == "Unavailable"
    assert modern.worker.engine(True, program="")["why"] == error["detail"]


def test_an_engine_that_dies_is_reported_and_everything_is_told_again(modern):
    worker = modern.worker
    worker.send("watch", ["one", "two"])
    stack = modern.one()
    assert "error" not in worker.up(stack)
    worker.observe("one", lambda c: len(c) == 2 and c["web"]["health"] == "healthy")
    worker.observe("two")
    modern.engine.away()
    assert "closed the connection" in worker.engine(False)["why"]
    assert "cannot be reached: No such file" in worker.engine(False)["why"]
    error = worker.up(stack)["error"]
    assert error["code"] == "Unavailable" and "Cannot connect to the Docker daemon" in error["detail"]
    modern.engine.die("one", "web", 137)
    modern.engine.back()
    worker.engine(True)
    seen = worker.observe("one", lambda c: c and c["web"]["status"] == "exited")
    assert (seen["web"]["status"], seen["web"]["exit_code"], seen["web"]["pid"]) == ("exited", 137, 0)
    assert worker.observe("two") == {}


def test_health_and_ends_come_by_events_alone(modern):
    modern.engine.auto_healthy = False
    worker = modern.worker
    worker.send("watch", ["one"])
    worker.observe("one", lambda c: not c)
    assert "error" not in worker.up(modern.one())
    worker.observe("one", lambda c: len(c) == 2 and c["web"]["health"] == "starting")
    for health in ("healthy", "unhealthy"):
        modern.engine.set_health("one", "web", health)
        worker.observe("one", lambda c, health=health: c["web"]["health"] == health)
    modern.engine.die("one", "helper", 3)
    assert worker.observe("one", lambda c: c["helper"]["status"] == "exited")["helper"]["exit_code"] == 3
    modern.engine.up("two", {"web": {}})
    looks = [call for call in modern.engine.calls if call == "GET /containers/json"]
    # Each event of the project makes at most one look, and the other project makes none.
    assert len(looks) <= 2 + len([e for e in modern.engine.events if e["Actor"]["Attributes"].get(
        "com.docker.compose.project") == "one"])


def test_an_engine_that_answers_with_errors_is_asked_again(modern):
    modern.engine.refuse["/containers/json"] = "the disk is slow"
    modern.worker.send("watch", ["one"])
    modern.engine.wait(lambda: "GET /containers/json" in modern.engine.calls, "a look")
    modern.engine.refuse.clear()
    assert modern.worker.observe("one") == {}


def test_only_texts_that_the_worker_read_are_started(modern):
    stack = modern.one()
    evil = {**stack, "resolved": stack["resolved"] + "\nx-more: 1\n"}
    assert "is not one that was read" in modern.worker.up(evil)["error"]["detail"]
    overlay = json.dumps({"services": {"web": {"privileged": True}}})
    assert "the overlay sets 'privileged'" in modern.worker.up(stack, overlay)["error"]["detail"]
    assert "cannot name" in modern.worker.up({**stack, "project": "../one"})["error"]["detail"]
    assert "cannot name" in modern.worker.up({**stack, "name": "a b"})["error"]["detail"]
    assert "time limit" in modern.worker.up(stack, timeout=0)["error"]["detail"]
    assert not modern.compose.calls("up") and not modern.engine.containers


def test_a_worker_that_was_killed_knows_the_texts_of_running_stacks(modern):
    stack = modern.one()
    assert "error" not in modern.worker.up(stack, OVERLAY)
    modern.worker.kill()
    modern.worker.start()
    assert "error" not in modern.worker.up(stack, OVERLAY)
    assert "error" not in modern.worker.down(stack)
    assert "is not one that was read" in modern.worker.up(stack)["error"]["detail"]
    # A request that comes during the describing waits for it.
    modern.worker.send("describe", {**SOURCES, "dir": str(modern.stacks)})
    assert "error" not in modern.worker.up(stack)


def test_a_full_disk_is_a_clear_error_and_room_mends_it(modern, tmp_path):
    modern.worker.close()
    runtime = tmp_path / "small"
    runtime.mkdir(mode=0o700)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k,mode=700", "none", runtime], check=False,
                             capture_output=True)
    if mounted.returncode != 0:
        modern.worker.start()
        pytest.skip("needs the right to mount a small file system")
    try:
        modern.add("one", FILE + "x-more: " + "x" * 100_000 + "\n")
        modern.worker = StacksWorker(tmp_path, modern.engine.url, modern.compose.program, runtime=runtime)
        error = modern.worker.up(modern.one())["error"]
        assert error["detail"] == f"cannot write {runtime}/one/resolved.yaml: No space left on device"
        assert not modern.compose.calls("up") and not (runtime / "one/resolved.yaml.new").exists()
        modern.add("one", FILE)
        assert "error" not in modern.worker.up(modern.one())
    finally:
        modern.worker.close()
        subprocess.run(["umount", runtime], check=True)
        modern.worker = StacksWorker(tmp_path, modern.engine.url, modern.compose.program)


def test_compose_ends_with_the_daemon_and_the_next_worker_goes_on(modern):
    modern.compose.on("up", "hang", after=True)
    stack = modern.one()
    modern.worker.send("up", StacksWorker.start_of(stack))
    modern.engine.wait(lambda: len(modern.engine.containers) == 2, "the containers")
    pid = modern.compose.calls("up")[0]["pid"]
    modern.worker.close()  # as the daemon's SIGKILL does
    wait_until(lambda: not group_lives(pid), "the end of Compose")
    modern.compose.on("up", None)
    modern.worker.start()
    assert "error" not in modern.worker.down(stack) and not modern.engine.containers


def test_a_call_that_outlived_a_killed_worker_is_not_overtaken(modern):
    modern.compose.on("up", "hang", after=True)
    stack = modern.one()
    modern.worker.send("up", StacksWorker.start_of(stack))
    modern.engine.wait(lambda: len(modern.engine.containers) == 2, "the containers")
    pid = modern.compose.calls("up")[0]["pid"]
    modern.worker.kill()
    modern.worker.start()
    assert "another Compose call" in modern.worker.down(stack, timeout=1)["error"]["detail"]
    number = modern.worker.send("down", {**{k: stack[k] for k in ("name", "project", "directory", "resolved")},
                                         "timeout_ms": 60000})
    os.killpg(pid, signal.SIGKILL)
    assert "error" not in modern.worker.reply(number)


def test_down_of_a_project_whose_file_is_unknown_goes_by_its_name(place):
    place.engine.up("one", {"web": {}})
    stack = {"name": "one", "project": "one", "directory": "/nowhere"}
    assert "error" not in place.worker.down({**stack, "resolved": ""})
    assert not place.engine.containers
    assert ("-f" in place.compose.calls("down")[0]["argv"]) == (place.compose.program.name == "docker-compose")


def test_logs_have_the_name_of_the_service_and_can_be_followed_and_stopped(modern):
    modern.engine.up("one", {"web": {}, "helper": {}})
    for service in ("web", "helper"):
        for line in ("first", "second"):
            modern.engine.log("one", service, f"{line} of {service}")
    query = {"project": "one", "service": "", "tail": 1, "follow": False}
    number = modern.worker.send("logs", query)
    assert "error" not in modern.worker.reply(number)
    texts = "".join(m["text"] for m in modern.worker.messages if m.get("log") == number)
    assert sorted(texts.splitlines()) == ["helper | second of helper", "web | second of web"]

    number = modern.worker.send("logs", {**query, "service": "web", "follow": True})
    assert modern.worker.wait(lambda m: m.get("log") == number)["text"] == "web | second of web\n"
    modern.engine.log("one", "web", "third")
    assert modern.worker.wait(lambda m: m.get("log") == number)["text"] == "web | third\n"
    modern.engine.die("one", "web")
    assert "error" not in modern.worker.reply(number)

    modern.engine.up("two", {"web": {}})
    number = modern.worker.send("logs", {**query, "project": "two", "follow": True})
    modern.engine.wait(lambda: any(c.endswith("/logs") for c in modern.engine.calls), "the reading")
    modern.worker.send("stop_logs", number)
    modern.engine.log("two", "web", "too late")
    modern.one()  # an answer after the stop
    assert not [m for m in modern.worker.messages if m.get("id") == number or m.get("log") == number]
    assert modern.worker.ask("logs", {**query, "project": "none"})["error"]["code"] == "NotFound"


@pytest.mark.parametrize("line", [b"{", b"[]", b'{"id": 1, "do": "up"}', b'{"id": -1, "do": "watch", "with": []}',
                                  b'{"id": 1, "do": "watch", "with": [1]}', b'{"id": 1, "do": "other", "with": 1}'])
def test_an_invalid_request_ends_the_worker(modern, line):
    modern.worker.socket.sendall(line + b"\n")
    assert modern.worker.process.wait(60) == 1
    modern.worker.socket.close()
    modern.worker.start()
