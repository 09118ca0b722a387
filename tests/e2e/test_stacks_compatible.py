# SPDX-License-Identifier: Apache-2.0
"""The compatible service, by callers that know only its own calls: http.client and JSON."""
import http.client
import json
import os
import threading
import time
import uuid

import pytest

from tests.support.one_stack_client import OneStackClient
from tests.support.stacks import Stacks, service
from tests.support.sublet import wait_until
from tests.support.tcp import free_port


@pytest.fixture
def place(start_daemon, tmp_path):
    with Stacks(start_daemon, tmp_path) as stacks:
        stacks.write("a", vram="2GiB")
        stacks.write("b", vram="3GiB")
        yield stacks


@pytest.fixture
def begin(place):
    def start(**keys):
        port = free_port()
        place.start(http=f"127.0.0.1:{port}", **keys)
        client = OneStackClient(port)
        wait_until(lambda: set(client.status()["services"]) == {"a", "b"}, "the stacks are found")
        return client
    return start


@pytest.fixture(params=["user", "admin"])
def client(request, begin):
    client = begin(http_role=request.param, claim_window="3s")
    client.role = request.param
    return client


def token_of(answer):
    status, body = answer
    assert status == 200, body
    return body["lease_token"]


def test_one_caller_has_the_fields_of_the_service(client, place):
    assert client.call("GET", "/healthz") == (200, {"ok": "true"})
    idle = client.status()
    assert idle == {"state": {"queue": []}, "service": {}, "services": {
        name: str(place.stacks / name / "compose.yaml") for name in ("a", "b")}}
    before = time.time()
    status, got = client.acquire("a", owner="ana", lease_ttl_s=60)
    assert status == 200 and "queued" not in got
    assert set(got) == {"state", "service", "services", "lease_token", "lease_expires_at", "endpoint"}
    assert before + 59 < got["lease_expires_at"] < time.time() + 62 and type(got["lease_expires_at"]) is int
    assert got["endpoint"] == {"compose_file": str(place.stacks / "a" / "compose.yaml")}
    state = got["state"]
    assert set(state) == {"mode", "target", "at", "queue", "lease"} and state["target"] == "a"
    assert state["lease"] == {"owner": "ana", "expires_at": got["lease_expires_at"]}
    assert abs(state["at"] - time.time()) < 30 and type(state["at"]) is int
    shown = got["service"]
    assert shown["Status"] == "running" and shown["Health"]["Status"] == "healthy" and shown["container_count"] == 1
    assert shown["healthcheck_master_label"] == "gpu.healthcheck-master=true" and "logs_tail" in shown
    again = client.acquire("a", lease_token=got["lease_token"], lease_ttl_s=900)[1]
    assert again["lease_token"] == got["lease_token"] and again["lease_expires_at"] > got["lease_expires_at"] + 800
    assert client.acquire("b", lease_token=got["lease_token"]) == (
        409, {"detail": "target mismatch: active:a; requested:b"})
    assert client.release("wrong") == (409, {"detail": "lease mismatch"})
    status, after = client.release(got["lease_token"])
    assert status == 200 and "lease" not in after["state"] and after["state"]["target"] == "a"
    assert client.release(got["lease_token"]) == (409, {"detail": "no active lease"})
    assert place.get("a")["state"] == "released", "it is left running"


def test_bad_calls_get_the_answers_of_the_service(client):
    for body, status in (("{", 422), ("[]", 422), ({}, 422), ({"target": 1}, 422),
                         ({"target": "a", "priority": 1.5}, 422), ({"target": "nosuch"}, 400),
                         ({"target": "a", "lease_ttl_s": 0}, 400),
                         ({"target": "a", "lease_ttl_s": "x"}, 400), ({"target": "a", "wait_s": 0}, 400),
                         ({"target": "a", "lease_token": "stale"}, 409)):
        got, answer = client.call("POST", "/acquire", body)
        assert got == status and "detail" in answer, (body, got, answer)
    assert client.acquire("nosuch") == (400, {"detail": "unknown target: nosuch"})
    assert client.call("GET", "/acquire")[0] == 405 and client.call("POST", "/status", {})[0] == 405
    assert client.call("GET", "/docs") == (404, {"detail": "Not Found"})
    assert client.status()["state"] == {"queue": []}, "nothing was started"


def test_a_queue_of_three_is_served_by_priority(client):
    first = token_of(client.acquire("a"))
    assert client.acquire("b") == (409, {"detail": "gpu busy: service:a"})
    low = client.acquire("b", owner="low", priority=-5)[1]
    high = client.acquire("b", owner="high", priority="7")[1]
    assert low["queued"] and low["queue_index"] == 0 and high["queue_index"] == 0
    queue = client.status()["state"]["queue"]
    assert [(row["owner"], row["priority"], row["target"]) for row in queue] == [("high", 7, "b"), ("low", -5, "b")]
    shown = [row["token"] for row in queue]
    assert shown == ([high["lease_token"], low["lease_token"]] if client.role == "admin" else [None, None])
    assert client.acquire("b", lease_token=high["lease_token"]) == (
        409, {"detail": "gpu busy: service:a; queue_index:0"})
    assert client.release(first)[0] == 200
    assert client.acquire("b", lease_token=low["lease_token"]) == (409, {"detail": "gpu busy: queue_index:1"})
    assert client.acquire("a") == (409, {"detail": "gpu busy: queued claimant pending"})
    assert client.status()["state"]["queue"][0]["claim_expires_at"] is not None
    assert client.acquire("b", lease_token=high["lease_token"])[1]["lease_token"] == high["lease_token"]
    assert client.release(high["lease_token"])[0] == 200
    wait_until(lambda: client.status()["state"]["queue"] == [], "the window of the last waiter ends by itself")
    assert client.acquire("b", lease_token=low["lease_token"])[0] == 409
    assert client.acquire("a")[0] == 200


def test_force_is_for_the_admin_role(client):
    token = token_of(client.acquire("a"))
    status, answer = client.release("", force=True)
    assert status == (200 if client.role == "admin" else 403), answer
    assert client.release(token)[0] == (409 if client.role == "admin" else 200)


def test_ten_threads_take_turns(client):
    held, order, errors, lock = [], [], [], threading.Lock()

    def work(number):
        target = "ab"[number % 2]

        def inside():
            with lock:
                held.append(number)
                assert len(held) == 1, "two hold the slot"
            assert client.status()["state"]["target"] == target
            with lock:
                held.remove(number)
                order.append(number)
        try:
            client.work(target, f"owner-{number}", time.monotonic() + 100, inside)
        except BaseException as error:  # noqa: B902
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors[0]
    assert sorted(order) == list(range(10)) and client.status()["state"]["queue"] == []


def test_one_of_many_claims_wins(client):
    first = token_of(client.acquire("a"))
    token = client.acquire("b", priority=0)[1]["lease_token"]
    client.release(first)
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(client.acquire("b", lease_token=token)))
               for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {status for status, _ in answers} == {200}, "one claims, and the others see the same lease"
    assert {body["lease_token"] for _, body in answers} == {token}
    assert client.status()["state"]["target"] == "b"


def test_two_hundred_callers_with_bad_tokens_change_nothing(client):
    token = token_of(client.acquire("a"))
    answers = []

    def shoot():
        for _ in range(25):
            answers.append(client.acquire("a", lease_token=uuid.uuid4().hex))
    threads = [threading.Thread(target=shoot) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 200 and {answer for answer, _ in answers} == {409}
    assert client.status()["state"]["queue"] == [] and client.acquire("a", lease_token=token)[0] == 200


@pytest.mark.parametrize("role", ["user", "admin"])
def test_a_restart_in_the_middle_keeps_holder_queue_and_windows(begin, place, role):
    client = begin(http_role=role, claim_window="10m")  # longer than a restart takes
    token = token_of(client.acquire("a", lease_ttl_s=600))
    waiters = [client.acquire("b", owner=f"w{n}", priority=n)[1]["lease_token"] for n in range(3)]
    place.restart()
    state = client.status()["state"]
    assert state["lease"]["owner"] is None and [row["owner"] for row in state["queue"]] == ["w2", "w1", "w0"]
    assert client.acquire("a", lease_token=token)[0] == 200
    assert client.release(token)[0] == 200
    place.restart()
    assert token_of(client.acquire("b", lease_token=waiters[2], wait_s=60)) == waiters[2]


def test_a_restart_during_a_start_goes_on(client, place):
    place.engine.auto_healthy = False
    answers = []
    caller = threading.Thread(target=lambda: answers.append(_try(client)))
    caller.start()
    wait_until(lambda: place.get("a")["state"] == "starting", "it starts")
    assert client.status()["state"]["starting"] is True
    place.restart()
    caller.join()
    place.reaches("a", "starting")
    place.engine.set_health("a", "api", "healthy")
    wait_until(lambda: "starting" not in client.status()["state"], "it is ready, and its time counts from now")
    assert client.status()["state"]["lease"]["owner"] == "caller"
    assert place.ups().count("a") <= 2


def _try(client):
    try:
        return client.acquire("a", owner="caller", lease_ttl_s=60)
    except (OSError, http.client.HTTPException) as error:
        return error


def test_a_start_that_fails_is_told_and_can_be_tried_at_once(begin, place):
    client = begin()
    place.compose.on("up", "half", text="port is already allocated")
    status, answer = client.acquire("a")
    assert status == 500 and "port is already allocated" in json.loads(answer["detail"])["message"]
    assert client.status()["state"]["queue"] == []
    wait_until(lambda: not place.engine.containers, "it is brought down")
    place.compose.on("up", None)
    assert client.acquire("a")[0] == 200


def test_a_stack_that_is_late_is_brought_down(begin, place):
    client = begin()
    place.engine.auto_healthy = False
    status, answer = client.acquire("a", wait_s=1)
    assert status == 504 and "logs_tail" in json.loads(answer["detail"])
    place.reaches("a", "down", "failed")
    place.engine.auto_healthy = True
    assert client.acquire("a")[0] == 200


def test_status_answers_while_another_stack_starts(begin, place):
    client = begin()
    place.compose.on("up", "hang")
    caller = threading.Thread(target=lambda: client.acquire("a", wait_s=3))
    caller.start()
    wait_until(lambda: place.get("a")["state"] == "creating", "it is created")
    for _ in range(5):
        assert client.status()["state"]["starting"] is True
    assert client.acquire("b") == (409, {"detail": "gpu busy: service:a"})
    caller.join()


def test_without_waiting_for_ready_the_answer_comes_earlier(begin, place):
    client = begin()
    place.engine.auto_healthy = False
    status, got = client.acquire("a", wait_ready=False, lease_ttl_s=60)
    assert status == 200 and got["state"]["starting"] is True and place.get("a")["state"] == "starting"


def test_a_held_wait_replaces_polling(begin):
    client = begin()
    token = token_of(client.acquire("a"))
    answers = []
    waiter = threading.Thread(target=lambda: answers.append(client.acquire("b", wait_turn=True, wait_s=60)))
    waiter.start()
    wait_until(lambda: client.status()["state"]["queue"], "it waits")
    client.release(token)
    waiter.join()
    assert answers[0][0] == 200 and answers[0][1]["state"]["target"] == "b"


def test_a_stack_waits_for_its_bytes_like_any_lease(begin, place):
    client = begin()
    lease = place.daemon.api().post("/v1/leases", {"vram_bytes": 3 << 30, "ttl_seconds": 600})
    answers = []
    waiter = threading.Thread(target=lambda: answers.append(client.acquire("b", wait_s=60)))
    waiter.start()
    wait_until(lambda: place.get("b")["state"] == "queued", "it waits")
    place.daemon.api().post(f"/v1/leases/{lease['id']}/release", {})
    waiter.join()
    assert answers[0][0] == 200 and place.get("b")["user"] == "root" or os.geteuid() != 0


@pytest.mark.parametrize("headers", [{"Host": "evil.example"}, {"Origin": "http://evil.example"},
                                     {"Content_Type": "text/plain"}])
def test_requests_of_web_pages_are_refused(begin, headers):
    client = begin()
    status, answer = client.call("POST", "/acquire", {"target": "a"}, **headers)
    assert status in (403, 415) and client.status()["state"] == {"queue": []}, answer


def test_an_unhealthy_master_is_told_with_its_state(begin, place):
    client = begin()
    place.write("a", {"api": service()}, vram="2GiB")
    place.engine.auto_healthy = False
    answers = []
    caller = threading.Thread(target=lambda: answers.append(client.acquire("a", wait_s=30)))
    caller.start()
    wait_until(lambda: place.get("a")["state"] == "starting", "it starts")
    place.engine.log("a", "api", "no model file")
    place.engine.set_health("a", "api", "unhealthy")
    caller.join()
    status, answer = answers[0]
    found = json.loads(answer["detail"])
    assert status == 500 and found["state"]["Health"]["Status"] == "unhealthy" and "no model file" in found["logs_tail"]
    assert set(found) == {"logs_tail", "state"}
    place.reaches("a", "failed")
    assert "no model file" in place.daemon.cli("stack", "logs", "a", check=0).stdout, "its containers are gone"


def test_the_variables_of_the_service_and_its_state_are_taken_over(place, monkeypatch, tmp_path):
    runtime = tmp_path / "runtime"
    runtime.mkdir()
    (runtime / "state.json").write_text(json.dumps({
        "mode": "service", "target": "a", "at": int(time.time()) - 60,
        "lease": {"token": "old", "owner": "ana", "expires_at": int(time.time()) + 600},
        "queue": [{"token": "waits", "owner": "bob", "priority": 1, "target": "b", "claim_expires_at": None}]}))
    monkeypatch.setenv("GPU_SERVICES_DIR", str(place.stacks))
    monkeypatch.setenv("GPU_RUNTIME_DIR", str(runtime))
    monkeypatch.setenv("DOCKER_SOCK", str(place.engine.path))
    monkeypatch.setenv("QUEUE_CLAIM_WINDOW_S", "30")
    port = free_port()
    place.daemon = place.start_daemon(place.sim, config=f'[stacks]\nhttp = "127.0.0.1:{port}"\n'
                                      f'compose = "{place.compose.program}"\n', extra=["--stacks-from-env"])
    place.api = place.daemon.api()
    client = OneStackClient(port)
    state = wait_until(lambda: (now := client.status()["state"]).get("lease") and "starting" not in now and now,
                       "the old holder has its stack")
    assert state["lease"]["owner"] == "ana" and [row["owner"] for row in state["queue"]] == ["bob"]
    assert client.acquire("a", lease_token="old")[0] == 200 and place.ups() == ["a"]
    assert client.release("old")[0] == 200
    assert client.acquire("b", lease_token="waits")[0] == 200
    mirror = json.loads((runtime / "state.json").read_text())
    assert mirror["target"] == "b" and "waits" not in json.dumps(mirror)
    place.daemon.restart(extra=["--stacks-from-env"])
    assert client.acquire("b", lease_token="waits")[0] == 200, "the store is the truth, not the mirror"


def test_wrong_addresses_and_users_refuse_the_start(place):
    for keys, complaint in (({"http": "8080"}, "is not an address with a port"),
                            ({"http": "127.0.0.1:1", "http_user": "nobody-at-all"}, "there is no user")):
        daemon = place.start_daemon(place.sim, config=place.section(**keys), expect_ready=False)
        daemon.process.wait(30)
        assert daemon.process.returncode == 78 and complaint in daemon.log()


def test_a_caller_that_leaves_loses_its_turn(begin, place):
    client = begin(claim_window="1s")
    token = token_of(client.acquire("a"))
    waiting = http.client.HTTPConnection("127.0.0.1", client.port, timeout=60)
    waiting.request("POST", "/acquire", json.dumps({"target": "b", "owner": "gone", "wait_turn": True, "wait_s": 600}),
                    {"Content-Type": "application/json"})
    wait_until(lambda: client.status()["state"]["queue"], "it waits")
    waiting.close()
    later = client.acquire("a", owner="next", priority=-1)[1]["lease_token"]
    client.release(token)
    wait_until(lambda: client.acquire("a", lease_token=later)[0] == 200, "the next caller has its turn")
    assert place.get("b")["state"] == "down", "nothing was started for the caller that left"


def test_a_second_call_with_the_token_ends_no_start(begin, place):
    client = begin()
    first = token_of(client.acquire("b"))
    token = client.acquire("a", priority=0)[1]["lease_token"]
    place.engine.auto_healthy = False
    client.release(first)
    answers = []
    claim = threading.Thread(target=lambda: answers.append(client.acquire("a", lease_token=token, wait_s=60)))
    claim.start()
    place.reaches("a", "starting")
    status, beat = client.acquire("a", lease_token=token, wait_s=0.2)
    assert status == 200 and beat["lease_token"] == token and not answers
    place.engine.set_health("a", "api", "healthy")
    claim.join()
    assert answers[0][0] == 200 and place.get("a")["state"] == "ready"
