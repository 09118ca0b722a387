# SPDX-License-Identifier: Apache-2.0
"""The worker of stacks with a real Docker Engine, Compose v1 and a current Compose."""
import json
import os

import pytest

from tests.support.real_engine import IMAGE, compose_programs
from tests.support.stacks_worker import StacksWorker
from tests.support.sublet import living

FILE = f"""
services:
  web:
    image: {IMAGE}
    command: ["/bin/sh", "-c", "echo mode $$MODE; touch /tmp/ready; exec sleep 1000"]
    network_mode: none
    stop_signal: SIGKILL
    environment: {{MODE: "fast $$1"}}
    labels: {{gpu.healthcheck-master: "true"}}
    healthcheck: {{test: ["CMD", "/bin/test", "-e", "/tmp/ready"], interval: 1s}}
  once: {{image: {IMAGE}, command: ["/bin/true"], network_mode: none}}
x-sublet: {{vram: 16GiB}}
"""
OVERLAY = json.dumps({"services": {"web": {"environment": {"SUBLET_LEASE": "lease-1", "CUDA_VISIBLE_DEVICES": "0"},
                                           "labels": {"sublet.stack": "one"}}}})


@pytest.fixture(name="program", params=["v1", "current"])
def program_fixture(request, engine):
    programs = compose_programs()
    if request.param not in programs:
        pytest.skip(f"Compose {request.param} is not installed (docker-compose; tests/heavy/compose-requirements.txt)")
    yield programs[request.param]
    engine.clear()


@pytest.fixture(name="worker")
def worker_fixture(engine, program, tmp_path):
    with StacksWorker(tmp_path, engine.url, program) as worker:
        worker.stacks = tmp_path / "stacks"
        yield worker


def describe(worker, name="one", text=FILE):
    directory = worker.stacks / name
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "compose.yml").write_text(text)
    stack = worker.describe(dir=worker.stacks)[name]
    assert "error" not in stack, stack["error"]
    return stack


def ready(containers):
    return containers.get("web", {}).get("health") == "healthy" and containers.get("once", {}).get("status") == "exited"


def test_a_stack_starts_gets_its_lease_becomes_healthy_and_stops(engine, worker):
    assert worker.engine(True)["version"]
    stack = describe(worker)
    assert json.loads(stack["extension"]) == {"vram": "16GiB"}
    worker.send("watch", ["one"])
    assert "error" not in worker.up(stack, OVERLAY)
    seen = worker.observe("one", ready)
    assert seen["once"]["exit_code"] == 0 and seen["once"]["pid"] == 0
    assert living(seen["web"]["pid"])
    state = json.loads(seen["web"]["state"])
    assert state["Health"]["Status"] == "healthy" and state["Running"]
    config = engine.inspect(seen["web"]["id"])["Config"]
    assert {"MODE=fast $1", "SUBLET_LEASE=lease-1", "CUDA_VISIBLE_DEVICES=0"} <= set(config["Env"])
    assert config["Labels"]["sublet.stack"] == "one"

    number = worker.send("logs", {"project": "one", "service": "", "tail": 10, "follow": False})
    assert "error" not in worker.reply(number)
    assert "".join(m["text"] for m in worker.messages if m.get("log") == number) == "web | mode fast $1\n"

    # The same once more changes nothing; a new lease makes new containers.
    assert "error" not in worker.up(stack, OVERLAY)
    assert engine.inspect(seen["web"]["id"])["State"]["Running"]
    assert "error" not in worker.up(stack, OVERLAY.replace("lease-1", "lease-2"))
    again = worker.observe("one", lambda c: ready(c) and c["web"]["id"] != seen["web"]["id"])
    assert not living(seen["web"]["pid"]) and living(again["web"]["pid"])

    assert "error" not in worker.down(stack)
    assert worker.observe("one", lambda c: not c) == {} and not engine.containers()


def test_a_container_that_dies_or_is_unhealthy_is_seen(engine, worker):
    stack = describe(worker)
    worker.send("watch", ["one"])
    assert "error" not in worker.up(stack)
    seen = worker.observe("one", ready)
    os.kill(seen["web"]["pid"], 9)
    seen = worker.observe("one", lambda c: c["web"]["status"] == "exited")
    assert seen["web"]["exit_code"] == 137
    sick = FILE.replace("/tmp/ready; exec", "/tmp/other; exec").replace("interval: 1s", "interval: 1s, retries: 1")
    assert "error" not in worker.up(describe(worker, text=sick))
    worker.observe("one", lambda c: "web" in c and (c["web"]["status"], c["web"]["health"]) == ("running", "unhealthy"))
    assert "error" not in worker.down(stack)


@pytest.mark.parametrize("change, said", [
    ((f"image: {IMAGE}, command", "image: busybox:missing, command"), "busybox"),
    (('["/bin/true"]', '["/bin/nothing"]'), "/bin/nothing")])
def test_up_that_fails_half_way_is_brought_down_and_can_be_repeated(engine, worker, change, said):
    stack = describe(worker, text=FILE.replace(*change))
    error = worker.up(stack)["error"]
    assert error["code"] == "Stale" and said in error["detail"], error
    assert "error" not in worker.down(stack)
    assert not engine.containers()
    assert "error" not in worker.up(describe(worker))
    assert len(engine.containers()) == 2


def test_a_project_goes_down_without_its_file(engine, worker):
    assert "error" not in worker.up(describe(worker))
    for path in (worker.runtime / "one").iterdir():
        path.unlink()
    assert "error" not in worker.down({"name": "one", "project": "one", "directory": "/nowhere", "resolved": ""})
    assert not engine.containers()


def test_a_broken_stack_is_refused_by_compose(worker):
    directory = worker.stacks / "bad"
    directory.mkdir(parents=True)
    (directory / "compose.yml").write_text("services:\n  web:\n    image: a\n    nonsense: 1\n")
    error = worker.describe(dir=worker.stacks)["bad"]["error"]
    assert error["code"] == "BadRequest" and "nonsense" in error["detail"]


def test_an_engine_that_is_killed_comes_back(engine, worker):
    stack = describe(worker)
    worker.send("watch", ["one"])
    worker.engine(True)
    assert "error" not in worker.up(stack)
    worker.observe("one", ready)
    engine.kill()
    worker.engine(False)
    assert worker.up(stack)["error"]["code"] == "Unavailable"
    engine.start()
    worker.engine(True)
    assert "error" not in worker.up(stack)
    worker.observe("one", lambda c: ready(c) and living(c["web"]["pid"]))
    assert "error" not in worker.down(stack)
    assert worker.observe("one", lambda c: not c) == {}
