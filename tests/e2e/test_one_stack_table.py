# SPDX-License-Identifier: Apache-2.0
"""The compatible service beside recorded answers of the one-stack service, call by call."""
import http.client
import json
import pathlib

import pytest

from tests.support.one_stack_rows import LABEL, ROWS
from tests.support.stacks import Stacks, service
from tests.support.sublet import ROOT, wait_until
from tests.support.tcp import free_port

RECORDED = json.loads((ROOT / "tests/data/one_stack_service.json").read_text())
SECONDS = ("at", "expires_at", "lease_expires_at", "claim_expires_at")
# By row and step: the answer of ours where it differs on purpose (docs/coming-from-gpu-service-manager.md).
DIFFERENT = {
    ("no JSON", 0): (422, "json_invalid"),
    ("6 queued, the head", 2): (409, "gpu busy: service:a; queue_index:0"),
    ("9 other target than queued", 5): (409, "gpu busy: queue_index:1"),
    ("12 a claimant is pending", 5): (200, '"queued": true'),
    ("late", 1): (200, '"queue": []'),  # the stack is on its way down, or is down already
    ("13 free", 4): (409, "the lease_token is unknown or expired"),
}


def normal(value, key=""):
    """Returns the answer without what differs from run to run."""
    if key == "service" and value:
        return value if "keys" in value else {"Status": value["Status"], "keys": sorted(value)}
    if isinstance(value, dict):
        return {name: normal(each, name) for name, each in value.items() if name != "starting"}
    if isinstance(value, list):
        return [normal(each) for each in value]
    if key in SECONDS and value is not None:
        return "SECOND"
    if key == "detail" and isinstance(value, str) and value.startswith("{"):
        found = json.loads(value)
        if "state" in found:
            found["state"] = sorted(found["state"])
        return {**found, "logs_tail": ""}
    return value


class Caller:
    def __init__(self, port, directory):
        self.port, self.directory, self.kept = port, str(directory), {}

    def fill(self, body):
        return {name: self.kept.get(text[1:], text) if isinstance(text, str) and text.startswith("$") else text
                for name, text in body.items()}

    def call(self, step):
        text = step["text"]
        if text is None and step["body"] is not None:
            text = json.dumps(self.fill(step["body"]))
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            headers = {"Content-Type": "application/json"} if step["method"] == "POST" else {}
            connection.request(step["method"], step["path"], text, headers)
            response = connection.getresponse()
            raw = response.read().decode()
        finally:
            connection.close()
        if step["keep"]:
            self.kept[step["keep"]] = json.loads(raw)["lease_token"]
        for name, token in self.kept.items():
            raw = raw.replace(token, "$" + name)
        return response.status, json.loads(raw.replace(self.directory, "DIR"))


@pytest.fixture(name="place")
def place_fixture(start_daemon, tmp_path):
    with Stacks(start_daemon, tmp_path) as stacks:
        yield stacks


def prepare(place, words):
    label = words.get("label", "")
    place.engine.auto_healthy = words.get("health", "healthy") == "healthy"
    place.engine.new_health = words.get("health")
    for name in "ab":
        spec = service(healthy=words.get("health") != "", master=not label)
        if label:
            spec["labels"] = {label: "true"}
        place.write(name, {"api": spec}, vram="1GiB")
    port = free_port()
    place.start(http=f"127.0.0.1:{port}", http_role="admin", claim_window="30s", label=LABEL)
    return Caller(port, place.stacks)


@pytest.mark.parametrize("name", ROWS)
def test_each_row_is_answered_as_by_the_service(place, name):
    steps = ROWS[name]
    words = {key: value for step in steps if "method" not in step for key, value in step.items()}
    caller = prepare(place, words)
    calls = [step for step in steps if "method" in step]
    assert len(calls) == len(RECORDED[name])
    for number, (step, (status, body)) in enumerate(zip(calls, RECORDED[name], strict=True)):
        got = caller.call(step)
        if (name, number) in DIFFERENT:
            expected, part = DIFFERENT[name, number]
            assert got[0] == expected and part in json.dumps(got[1]), (step, got)
            continue
        assert (got[0], normal(got[1])) == (status, normal(body)), step
    if name.startswith("release of a stack"):
        assert place.downs() == [], "it stays up"


def test_directories_with_capitals_are_stacks(place):
    place.write("ComfyUI", vram="1GiB")
    caller = prepare(place, {})
    status, body = caller.call({"method": "POST", "path": "/acquire", "body": {"target": "ComfyUI"}, "keep": "A",
                                "text": None})
    assert status == 200 and body["services"]["ComfyUI"] == "DIR/ComfyUI/compose.yaml", body
    assert place.ups() == ["comfyui"] and place.get("ComfyUI")["state"] == "ready"


def test_the_first_answer_has_all_services(place):
    port = free_port()
    for name in "ab":
        place.write(name, vram="1GiB")
    place.daemon = place.start_daemon(place.sim, config=place.section(http=f"127.0.0.1:{port}"))
    place.api = place.daemon.api()
    caller = Caller(port, place.stacks)
    answer = caller.call({"method": "GET", "path": "/status", "body": None, "keep": None, "text": None})
    assert set(answer[1]["services"]) == {"a", "b"}


def test_the_state_file_of_the_admin_role_is_the_way_back(start_daemon, tmp_path):
    mirror = tmp_path / "state.json"
    with Stacks(start_daemon, tmp_path) as place:
        for name in "ab":
            place.write(name, vram="1GiB")
        port = free_port()
        place.start(http=f"127.0.0.1:{port}", http_role="admin", mirror=str(mirror))
        caller = Caller(port, place.stacks)
        for step in ROWS["8 queued"][:2]:
            assert caller.call(step)[0] == 200
        state = wait_until(lambda: (now := json.loads(mirror.read_text()))["queue"] and now, "the mirror is written")
        assert mirror.stat().st_mode & 0o777 == 0o600
        assert state["lease"]["token"] == caller.kept["A"] and state["queue"][0]["token"] == caller.kept["W"]
        assert set(state["queue"][0]) == {"token", "owner", "target", "priority", "enqueued_at", "claim_expires_at"}


def test_a_file_of_variables_may_appear_later(place, monkeypatch, tmp_path):
    for variable, value in (("GPU_SERVICES_DIR", place.stacks), ("GPU_RUNTIME_DIR", tmp_path / "runtime"),
                            ("DOCKER_SOCK", place.engine.path), ("GPU_ENV_FILE", tmp_path / "variables")):
        monkeypatch.setenv(variable, str(value))
    (tmp_path / "runtime").mkdir()
    place.write("a", {"api": service(image="${IMAGE:-old}")}, vram="1GiB")
    port = free_port()
    place.daemon = place.start_daemon(place.sim, config=f'[stacks]\nhttp = "127.0.0.1:{port}"\n'
                                      f'compose = "{place.compose.program}"\n', extra=["--stacks-from-env"])
    place.api = place.daemon.api()
    caller = Caller(port, place.stacks)
    acquire = {"method": "POST", "path": "/acquire", "body": {"target": "a"}, "keep": "A", "text": None}
    assert caller.call(acquire)[0] == 200
    assert "--env-file" not in place.compose.calls("up")[0]["argv"]
    place.post("a", "release", {"down": True}, caller.kept["A"])
    place.reaches("a", "down")
    (tmp_path / "variables").write_text("IMAGE=new\n")
    wait_until(lambda: place.get("a") and caller.call(acquire)[0] == 200, "the slot is free")
    assert "--env-file" in place.compose.calls("up")[-1]["argv"]
    assert "image: new" in place.compose.calls("up")[-1]["files"][0]


def test_the_recorded_answers_cover_each_row():
    assert set(RECORDED) == set(ROWS)
    assert pathlib.Path(ROOT / "tests/data/README.md").read_text().count("one_stack_service.json")
