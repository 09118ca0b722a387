# SPDX-License-Identifier: Apache-2.0
"""Every status that the contract lists for a call is seen here, and every code."""
import os
import pathlib
import re
import socket

import pytest

from tests.e2e.test_reconcile import FailingStore
from tests.support import contract
from tests.support.parking import quick_checkpoints
from tests.support.sessions import call_sessions
from tests.support.stack_scenarios import stack_answers
from tests.support.stacks import Stacks
from tests.support.sublet import GIB, wait_until
from tests.support.receiver import NOBODY
from tests.support.tcp import TcpApi, start_with_tcp
from tests.support.webhook import webhook

ASK = {"vram_bytes": GIB, "ttl_seconds": 600}
ACTIONS = ("claim", "attach", "renew", "touch", "resize", "release", "pause", "resume")
BODIES = {"attach": {"pid": 1 << 22}, "resize": {"vram_bytes": GIB}}

# Codes of planned features: quotas of tenants, shares of the compute, order beyond the queue.
LATER = {"Priority", "Share"}
CODES_ELSEWHERE = {"Disconnected": "test_sessions.py", "Overcommit": "test_sessions.py", "HostMemory": "test_pause.py",
                   "GpuLost": "test_faults.py", "Unverified": "test_faults.py",
                   "Unkillable": "test_reconcile.py", "ResumeBlocked": "test_away.py",
                   "Draining": "test_maintenance.py"}

# The codes with which calls are refused because of the present state (409). Each call that changes something is also
# refused with Stale, for a key of another request. A file name: that file tests the code.
CONFLICTS = {
    "GET /v1/leases/{id}/cooperate": {"Stale": None},
    "POST /v1/leases": {"Memory": None, "Settling": None, "External": None, "InUse": None, "Quota": "test_hostile.py",
                        "GpuLost": "test_faults.py", "Unverified": "test_faults.py",
                        "Draining": "test_maintenance.py"},
    "POST /v1/free": {"CannotPreempt": None},
    "POST /v1/preempt": {"CannotPreempt": "test_making_room.py"},
    "POST /v1/tokens": {"Quota": None},
    "POST /v1/programs": {"InUse": None},
    "POST /v1/sessions": {"InUse": None, "Quota": "test_sessions_input.py"},
    "POST /v1/sessions/{id}/touch": {"LeaseExpired": None, "Disconnected": "test_sessions.py",
                                     "Overcommit": "test_sessions.py"},
    "POST /v1/sessions/{id}/checkpoint": {"LeaseExpired": None},
    "POST /v1/sessions/{id}/resume": {"Quota": "test_sessions_input.py"},
    "POST /v1/stacks": {"InUse": None},
    "DELETE /v1/stacks/{name}": {"InUse": None},
    "DELETE /v1/tenants/{name}": {"InUse": None},
    "POST /v1/stacks/{name}/acquire": {"InUse": None, "Memory": None},
    "POST /v1/stacks/{name}/restart": {"InUse": None},
    "POST /v1/approvals": {"Quota": None},
    "POST /v1/policies": {"Quota": None},
    "POST /v1/leases/{id}/resize": {"Memory": None, "InUse": None},
    "POST /v1/leases/{id}/release": {"InUse": None, "PauseUnsafe": None, "Unkillable": "test_reconcile.py"},
    "POST /v1/leases/{id}/pause": {"PauseUnsafe": None, "HostMemory": "test_pause.py"},
    "POST /v1/leases/{id}/resume": {"PauseUnsafe": "test_pause.py"},
    "DELETE /v1/leases/{id}/cooperate": {"PauseUnsafe": None},
}


@pytest.fixture
def place(start_daemon, tmp_path):
    with Stacks(start_daemon, tmp_path) as stacks:
        stacks.write("chat", vram="1MiB")
        stacks.write("extra", into=tmp_path)
        yield stacks


@pytest.fixture
def daemon(start_daemon, place):
    return start_with_tcp(start_daemon, '[gpu]\ninterval_idle = "300ms"\ninterval_busy = "200ms"\n'
                                        '[enforcer]\ninterval = "1s"\n' + place.section() + NOBODY)


def good_calls(daemon, place, api):
    pause_and_resume(daemon, api)
    grants_and_answers(api)
    for path in ("/healthz", "/metrics", "/v1/openapi.json", "/v1/status", "/v1/devices", "/v1/processes", "/v1/queue",
                 "/v1/consumers", "/v1/ledger", "/v1/report", "/v1/report?by=device&since=2h&until=1h&whole=true",
                 "/v1/leases", "/v1/leases?all=true", "/v1/tokens"):
        assert api.get(path).status == 200
    contract.seen.add(("get", "/v1/events", _events_status(daemon), None))
    page_set = re.search("page/[0-9a-f]{16}", api.get("/").body)[0]
    for name, kind in (("page.js", "javascript"), ("page.css", "css"), ("icon.svg", "svg"),
                       ("views/cards.js", "javascript")):
        assert kind in api.get(f"/{page_set}/{name}").headers.get_content_type()
    first = api.post("/v1/leases", dict(ASK, vram_bytes=3 * GIB))
    second = api.post("/v1/leases", dict(ASK, vram_bytes=3 * GIB))
    assert (first.status, second.status) == (201, 202)
    lease, waiting = f"/v1/leases/{first['id']}", f"/v1/leases/{second['id']}"
    assert api.get(lease).status == api.get(lease + "/why").status == 200
    program = daemon.spawn("sleep", "600")
    assert api.post(lease + "/attach", {"pid": program.pid, "owner": False}).status == 200
    assert api.post(lease + "/renew", {}).status == api.post(lease + "/touch", {}).status == 200
    assert api.post(lease + "/resize", {"vram_bytes": 2 * GIB}).status == 200
    assert api.post("/v1/leases", dict(ASK, dry_run=True)).status == 200
    assert api.post("/v1/free", {"vram_bytes": GIB, "preview": True}).status == 200
    assert api.post("/v1/preempt", {"lease": first["id"]}).status == 200
    free = "effective_free_bytes"
    wait_until(lambda: api.get("/v1/devices")["devices"][0][free] >= ASK["vram_bytes"], "what was given back is free")
    third = api.post("/v1/leases", ASK)
    assert third.status == 201 and api.post(lease + "/resize", {"vram_bytes": 3 * GIB}).status == 202
    assert api.post(f"/v1/leases/{third['id']}/release", {}).status == 200
    assert api.post(lease + "/release", {}).status == 200
    wait_until(lambda: api.get(waiting)["state"] == "offered", "its bytes are measured gone")
    assert api.post(waiting + "/claim", {}).status == 200
    programs(daemon, api)
    call_sessions(api)
    stack_answers(place, api)
    maintenance(api)
    tenants(api)
    enforcement(api)
    token = api.post("/v1/tokens", {"scope": "read"})
    assert token.status == 201 and api.call("DELETE", f"/v1/tokens/{token['id']}").status == 200
    return lease, waiting


def programs(daemon, api):
    body = {"tag": "job", "arguments": ["sleep", "600"], "directory": "/", "vram_bytes": 1 << 20, "memory_bytes": GIB}
    assert api.post("/v1/programs", dict(body, device="gpu9")).status == 404
    assert api.post("/v1/programs", dict(body, vram_bytes=GIB << 10, memory_bytes=None)).status == 422
    assert api.post("/v1/programs", body).status == 201 and api.post("/v1/programs", body).status == 409
    job = "/v1/programs/job"
    assert api.get("/v1/programs").status == api.get(job).status == api.get(job + "/log").status == 200
    assert api.post(job + "/update", {"priority": 5}).status == 200
    assert api.post(job + "/update", {"memory_bytes": GIB << 10}).status == 422
    this = {"number": api.get(job)["number"], "start": 1}
    assert api.post(job + "/report", dict(this, warning="x")).status == 200
    assert api.post(job + "/report", dict(this, start=9)).status == 409
    assert api.post("/v1/programs", dict(body, replace=True)).status == 200
    assert [api.post(f"{job}/{verb}", {}).status for verb in ("stop", "start", "restart", "remove")] == [200] * 4
    wait_until(lambda: api.get("/v1/programs")["programs"] == [], "it is removed")


def enforcement(api):
    assert api.get("/v1/verdicts").status == 200 and api.get("/v1/enforcer/preview?subject=user:nobody").status == 200
    approval = api.post("/v1/approvals", {"subject": "unit:serve", "ttl_seconds": 600, "reason": "of the house"})
    policy = api.post("/v1/policies", {"subject": "user:nobody", "policy": "warn"})
    assert approval.status == policy.status == 201
    rules = api.get("/v1/enforcer")
    assert api.post("/v1/events/targets/nobody/test", {})["sent"] is False
    assert [(rule["id"], rule["subject"]) for rule in rules["approvals"]] == [(approval["id"], "unit:serve.service")]
    assert [(rule["id"], rule["policy"]) for rule in rules["policies"]] == [(policy["id"], "warn")]
    assert api.call("DELETE", f"/v1/approvals/{policy['id']}").status == 404, "it is a policy"
    for where, rule in (("approvals", approval), ("policies", policy)):
        assert api.call("DELETE", f"/v1/{where}/{rule['id']}").status == 200
        assert api.call("DELETE", f"/v1/{where}/{rule['id']}").status == 404


def maintenance(api):
    for verb, body in (("cordon", {"reason": "new fan"}), ("drain", {"deadline_seconds": 600}), ("uncordon", None)):
        assert api.post(f"/v1/devices/gpu0/{verb}", body).status == 200
        assert api.post(f"/v1/devices/gpu9/{verb}", {}).status == 404
        assert api.post(f"/v1/devices/gpu0/{verb}", {"no such field": 1}).status == 400
    assert api.get("/v1/devices")["devices"][0]["service"] is None


def tenants(api):
    tree = {"tenants": [{"name": "lab"}, {"name": "vision", "parent": "lab", "tiers": ["batch"]}]}
    assert api.post("/v1/tenants", tree).status == api.get("/v1/tenants").status == 200
    one = "/v1/tenants/vision"
    assert api.post(one, {"weight": 2}).status == api.get(one).status == 200
    assert api.post(one, {"weight": 0}).status == 400
    assert api.post("/v1/tenants", {"tenants": tree["tenants"][1:]})["numbers"] == {"entry": 0}
    lab = "/v1/tenants/lab"
    assert [api.call("DELETE", lab + more).status for more in ("", "?recursive=true", "")] == [409, 200, 404]
    assert api.get(lab).status == 404


def a_process_without_a_lease(daemon, api):
    program = daemon.spawn("simgpu-load", "--alloc", "64MiB", "--seconds", "600")
    found = wait_until(lambda: api.get(f"/v1/verdicts?pid={program.pid}")["verdicts"], "it is found")
    assert api.get(f"/v1/verdicts/{found[0]['id']}")["pid"] == program.pid
    program.kill()
    program.wait()
    wait_until(lambda: api.get("/v1/devices")["devices"][0]["used_bytes"] == 0, "the card is empty")


def _events_status(daemon):
    from tests.support.events import Stream
    with Stream(daemon, "?follow=false", last_id="0") as stream:
        assert stream.next()
    return 200


def pause_and_resume(daemon, api):
    quick_checkpoints(daemon)
    daemon.spawn("sublet", "run", "--vram", "1GiB", "--tag", "program", "--", "simgpu-load", "--alloc", "64MiB",
                 "--seconds", "600")
    wait_until(lambda: api.get("/v1/leases/program").body.get("used_bytes"), "it runs")
    # It frees memory for the second lease, and for a process without a lease.
    assert api.post("/v1/leases", dict(ASK, vram_bytes=3 * GIB, tag="other")).status == 202
    assert api.post("/v1/preempt", {"lease": "other"}).status == 202
    wait_until(lambda: api.get("/v1/leases/other")["state"] == "offered", "it has the room")
    api.post("/v1/leases/other/release", {})
    wait_until(lambda: api.get("/v1/leases/program")["state"] == "active", "it is back")
    # A reading that is older than the resume shows no victim.
    freed = wait_until(lambda: (reply := api.post("/v1/free", {"vram_bytes": 3 * GIB})).status == 202 and reply,
                       "a victim is there")
    api.post(f"/v1/leases/{freed['id']}/release", {})
    freed = api.post("/v1/free", {"vram_bytes": 256 << 20})
    assert freed.status == 201 and api.post(f"/v1/leases/{freed['id']}/release", {}).status == 200
    wait_until(lambda: api.get("/v1/leases/program")["state"] == "active", "it is back")
    for call, state in (("pause", "paused"), ("resume", "active")):
        assert api.post(f"/v1/leases/program/{call}", {}).status == 202
        wait_until(lambda: api.get("/v1/leases/program")["state"] == state, f"it is {state}")
        assert api.post(f"/v1/leases/program/{call}", {}).status == 200
    api.post("/v1/leases/program/release", {"stop": True})
    wait_until(lambda: api.get("/v1/devices")["devices"][0]["leased_bytes"] == 0, "its room is free again")


def grants_and_answers(api):
    grant = "/v1/consumers/ollama/grant"
    assert api.post(grant, {}).status == 200 and api.call("DELETE", grant).status == 200
    assert api.call("DELETE", grant).status == 404
    assert api.post("/v1/consumers/no%2Fname/grant", {}).status == 400
    assert api.call("DELETE", grant, Idempotency_Key="x" * 129).status == 400
    lease = f"/v1/leases/{api.post('/v1/leases', ASK)['id']}"
    with webhook(at_once=False) as body:
        assert api.post(lease + "/cooperate", body).status == 200
        for call, answer in (("pause", "yielded"), ("resume", "resumed")):
            assert api.post(f"{lease}/{call}", {}).status == 202
            order = wait_until(lambda: (lambda now: now if now["order"] != "none" else None)(
                api.get(lease + "/cooperate?wait=1s")), "it is told")
            said = {"number": order["number"], "answer": answer}
            assert api.post(lease + "/cooperate/answer", dict(said, answer="perhaps")).status == 400
            assert api.post(lease + "/cooperate/answer", said).status == 200
            wait_until(lambda call=call: api.get(lease)["state"] == ("paused" if call == "pause" else "active"), call)
            if call == "pause":
                assert api.post(lease + "/release", {})["code"] == "PauseUnsafe"
                assert api.call("DELETE", lease + "/cooperate")["code"] == "PauseUnsafe"
        assert api.post(lease + "/cooperate/answer", {"number": 1, "answer": "yielded"}).status == 409
        assert api.call("DELETE", lease + "/cooperate").status == 200
    assert api.get(lease + "/cooperate?since=x").status == api.post(lease + "/cooperate", {"way": "x"}).status == 400
    for where, method in (("", "DELETE"), ("/answer", "POST")):
        assert api.call(method, lease + "/cooperate" + where, Idempotency_Key="x" * 129).status == 400
    assert api.post(lease + "/release", {}).status == 200
    gone = wait_until(lambda: api.get(lease)["state"] == "ended" and lease, "it has ended")
    for where, status in ((gone, 409), ("/v1/leases/lease-99", 404)):
        assert api.get(where + "/cooperate").status == api.call("DELETE", where + "/cooperate").status == status
        assert api.post(where + "/cooperate", {}).status == status
        assert api.post(where + "/cooperate/answer", {"number": 1, "answer": "yielded"}).status == status


def bad_calls(api, ended, active):
    ended = ended.rsplit("/", 1)[1]
    for path in ("/v1/queue?limit=0", "/v1/leases?after=nowhere", "/v1/events?type=x", f"{active}?wait=x",
                 "/v1/report?by=x", "/v1/report?until=x", "/v1/report?whole=x", "/v1/verdicts?pid=x",
                 "/v1/verdicts?pid=-1", "/v1/enforcer/preview?since=x", "/v1/enforcer/preview?subject=x"):
        assert api.get(path).status == 400
    for path in ("/v1/leases", "/v1/tokens", f"{active}/claim", f"{active}/attach", f"{active}/renew",
                 f"{active}/touch", f"{active}/resize", f"{active}/release", f"{active}/pause", f"{active}/resume",
                 "/v1/preempt", "/v1/free"):
        assert api.post(path, {"no such field": 1}).status in (400, 409) and api.post(path, "{").status == 400
    assert api.post("/v1/leases", dict(ASK, device="gpu9")).status == 404
    assert api.post("/v1/free", {"vram_bytes": GIB, "device": "gpu9"}).status == 404
    assert api.post("/v1/preempt", {"lease": "lease-99"}).status == 404
    refused = api.post("/v1/preempt", {"lease": ended})
    assert refused.status == 409 and refused["hint"] == "ask for a new lease"
    for path in ("/v1/leases", "/v1/free"):
        assert api.post(path, {"vram_bytes": 1 << 60}).status == 422
    assert api.post(f"{active}/resize", {"vram_bytes": 1 << 60}).status == 422
    assert api.post("/v1/leases", dict(ASK, vram_bytes=4 * GIB - (600 << 20), queue=False)).status == 409
    assert api.post("/v1/free", {"vram_bytes": 4 * GIB - (600 << 20)}).status == 409
    assert api.get("/v1/events?lease=lease-99").status == 404
    assert api.get("/v1/leases/lease-99").status == api.get("/v1/leases/lease-99/why").status == 404
    for path in ("/v1/programs/none", "/v1/programs/none/log"):
        assert api.get(path).status == 404
    for verb, body in (("update", {}), ("restart", {}), ("start", {}), ("stop", {}), ("remove", {}),
                       ("report", {"start": 1})):
        assert api.post(f"/v1/programs/none/{verb}", body).status == 404
    assert api.post("/v1/sessions", {"vram_bytes": 1}).status == 400 and api.get("/v1/sessions/none").status == 404
    for verb, body in (("touch", {}), ("checkpoint", {}), ("close", {}), ("resume", {}), ("report", {"start": 1})):
        assert api.post(f"/v1/sessions/none/{verb}", body).status == 404
        assert api.post(f"/v1/sessions/none/{verb}", {"no such field": 1}).status in (400, 404)
    assert api.get("/v1/verdicts/99").status == api.get("/v1/verdicts/x").status == 404
    for subject in ("", "user", "path:/bin/sh", "cgroup:a"):
        assert api.post("/v1/approvals", {"subject": subject}).status == 400
        assert api.post("/v1/policies", {"subject": subject, "policy": "warn"}).status == 400
    for body in ({"policy": "kill"}, {}, {"subject": "unit:serve", "policy": "enforce"}):
        assert api.post("/v1/policies", {"subject": "user:nobody", **body}).status == 400
    assert api.call("DELETE", "/v1/tokens/token-99").status == 404
    assert api.post("/v1/events/targets/nosuch/test", {}).status == 404
    assert api.call("DELETE", "/v1/tokens/token-99", Idempotency_Key="x" * 129).status == 400
    assert api.post("/v1/leases", ASK, Idempotency_Key="once").status in (201, 202)
    for method, path, _ in contract.operations():
        if method != "GET":
            assert api.call(method, path, {"generation": 9} if method == "POST" and "grant" not in path else None,
                            Idempotency_Key="once")["code"] == "Stale"
    assert api.post("/v1/leases", dict(ASK, tag="once")).status in (201, 202)
    assert api.post("/v1/leases", dict(ASK, tag="once"))["code"] == "InUse"
    assert api.post("/v1/leases", dict(ASK, vram_bytes=128 << 20)).status == 201
    whole = {"vram_bytes": api.get("/v1/devices")["devices"][0]["capacity_bytes"], "queue": False}
    assert api.post(f"{active}/resize", whole)["code"] == "Memory"
    for action in ACTIONS:
        assert api.post(f"/v1/leases/lease-99/{action}", BODIES.get(action, {})).status == 404
    for action in ("claim", "renew", "resize", "release", "attach"):
        body = {**BODIES.get(action, {}), **({"pid": os.getpid()} if action == "attach" else {}), "generation": 1}
        assert api.post(f"{active}/{action}", body).status == 409
    for action in ("pause", "resume"):
        assert api.post(f"{active}/{action}", {"generation": 1}).status == 409
    assert api.post(f"{active}/pause", {})["code"] == "PauseUnsafe"  # the lease has no program
    while api.post("/v1/tokens", {"scope": "read"}).status == 201:
        pass  # until there are too many
    while api.post("/v1/approvals", {"subject": "user:nobody"}).status == 201:
        pass
    assert api.post("/v1/policies", {"subject": "user:nobody", "policy": "warn"})["code"] == "Quota"


@pytest.mark.parametrize("method", ["PUT", "PATCH", "OPTIONS", "TRACE", "DELETE"])
def test_a_method_that_a_path_does_not_take_is_named(shared_daemon, method):
    api = shared_daemon.api()
    refused = api.call(method, "/v1/leases")
    assert refused.status == 405 and refused.headers["Allow"] == "GET, HEAD, POST" and method in refused["detail"]
    assert api.call(method, "/v1/nowhere").status == 404


@pytest.mark.parametrize("path", ["/v1/leases?all=yes", "/v1/leases/lease-1?stopping=1", "/v1/events?follow="])
def test_a_flag_is_true_or_false(shared_daemon, path):
    refused = shared_daemon.api().get(path)
    assert refused.status == 400 and "true nor false" in refused["detail"]


def refused_calls(daemon, api):
    submit = TcpApi(daemon.port, api.post("/v1/tokens", {"scope": "submit"})["token"])
    stranger = TcpApi(daemon.port)
    for method, path, _ in contract.operations():
        body = {} if method == "POST" else None
        assert submit.call(method, path, body, Host="evil.example").status == 403
        if path not in ("/healthz", "/") and not path.startswith("/page/"):
            assert stranger.call(method, path, body).status == 401


def whatever_is_asked(daemon, start_daemon, api):
    """Refusals that any call may give: before the call is known, or because of the caller."""
    for method, path, _ in contract.operations():
        body = {} if method == "POST" else None
        assert api.call(method, path + "?z=1", body).status == 400
        assert api.call("PUT", path, body)["code"] == "BadRequest"
    full = start_with_tcp(start_daemon, "[limits]\nconnections = 2\n")
    token = full.api().post("/v1/tokens", {"scope": "submit"})["token"]
    first, one_too_many = TcpApi(full.port, token), TcpApi(full.port, token)
    assert first.get("/v1/status").status == 200
    for method, path, _ in contract.operations():
        assert one_too_many.call(method, path, {} if method == "POST" else None).status == 503
    for close in (first, one_too_many):
        close.close()
    for method, path, _ in contract.operations():  # the connection ends with either
        for status, large in ((413, {"body": b"x", "Content_Length": f"{5 << 20}"}), (431, {"X_Large": "x" * 17000})):
            asks = daemon.api()
            assert asks.call(method, path, **large).status == status
            asks.close()


def room_that_is_not_there(daemon, api):
    """A request with queue=false: the code tells why it is refused."""
    program = daemon.spawn("simgpu-load", "--alloc", "2GiB", "--seconds", "600")
    ask = dict(ASK, vram_bytes=3 * GIB, queue=False)
    wait_until(lambda: api.get("/v1/devices")["devices"][0]["other_bytes"] >= 2 * GIB, "a stranger is seen")
    assert api.post("/v1/leases", ask)["code"] == "External"
    path = f"/v1/leases/{api.post('/v1/leases', ASK)['id']}"
    assert api.post(path + "/attach", {"pid": program.pid, "owner": False}).status == 200
    wait_until(lambda: api.get(path)["used_bytes"] >= 2 * GIB, "it is its program")
    for call, body in (("release", {}), ("resize", {"vram_bytes": GIB // 2})):
        assert api.post(f"{path}/{call}", body)["code"] == "InUse"
    assert api.post(path + "/release", {"force": True}).status == 200  # its bytes are charged until they are gone
    assert api.post("/v1/leases", ask)["code"] == "Settling"
    program.kill()
    program.wait()
    wait_until(lambda: api.get("/v1/devices")["devices"][0]["used_bytes"] == 0, "the card is empty")


def an_idle_lease(daemon, api):
    """A touch brings back a lease that its idle rule has paused."""
    quick_checkpoints(daemon)
    program = daemon.spawn("sublet", "run", "--vram", "3GiB", "--tag", "idle", "--idle-pause", "1s", "--",
                           "simgpu-load", "--alloc", "64MiB", "--busy", "0", "--seconds", "600")
    wait_until(lambda: api.get("/v1/leases/idle").body.get("used_bytes"), "it has its memory")
    waits = f"/v1/leases/{api.post('/v1/leases', dict(ASK, vram_bytes=2 * GIB, tier='batch'))['id']}"
    wait_until(lambda: api.get("/v1/leases/idle")["state"] == "paused", "it is paused")
    assert api.post("/v1/leases/idle/touch", {}).status == 202
    assert api.post(waits + "/release", {}).status == 200
    wait_until(lambda: api.get("/v1/leases/idle")["state"] == "active", "it is back")
    program.terminate()
    program.wait()
    wait_until(lambda: api.get("/v1/devices")["devices"][0]["used_bytes"] == 0, "the card is empty")


def test_every_documented_answer_is_given(daemon, start_daemon, place):
    contract.seen.clear()
    api = daemon.api()
    whatever_is_asked(daemon, start_daemon, api)
    refused_calls(daemon, api)
    room_that_is_not_there(daemon, api)
    a_process_without_a_lease(daemon, api)
    an_idle_lease(daemon, api)
    ended, active = good_calls(daemon, place, api)
    bad_calls(api, ended, active)
    with FailingStore(daemon, daemon.api()):
        for method, path, _ in contract.operations():
            api.call(method, path, {} if method == "POST" else None)
    statuses = {(method, path, status) for method, path, status, _ in contract.seen}
    missing = contract.documented() - statuses
    assert not missing, f"documented and never seen: {sorted(missing)}"
    codes = {code for *_, code in contract.seen if code}
    listed = set(contract.document()["components"]["schemas"]["Code"]["enum"])
    assert listed - codes == LATER | set(CODES_ELSEWHERE)
    for code, file in CODES_ELSEWHERE.items():
        assert f'"{code}"' in pathlib.Path(__file__).with_name(file).read_text(), f"{file} does not see {code}"
    # One status has one code, except those for a conflict with the present state.
    by_status = {status: {code for *_, at, code in contract.seen if at == status and code} for status in
                 (400, 401, 403, 404, 405, 413, 422, 431, 503)}
    assert by_status == {400: {"BadRequest"}, 401: {"Denied"}, 403: {"Denied"}, 404: {"NotFound"},
                         405: {"BadRequest"}, 413: {"BadRequest"}, 422: {"TooLarge"}, 431: {"BadRequest"},
                         503: {"Unavailable"}}
    conflicts = {f"{method.upper()} {path}: {code}" for method, path, status, code in contract.seen if status == 409}
    listed = {f"{call}: {code}" for call, codes in CONFLICTS.items() for code, file in codes.items() if file is None}
    listed |= {f"{method.upper()} {path}: Stale" for method, path, _ in contract.documented() if method != "get"}
    assert not conflicts ^ listed, f"not listed: {sorted(conflicts - listed)}, not seen: {sorted(listed - conflicts)}"
    for code, file in [pair for codes in CONFLICTS.values() for pair in codes.items() if pair[1]]:
        assert code in pathlib.Path(__file__).with_name(file).read_text(), f"{file} does not see {code}"


def test_unknown_parameters_are_refused(daemon):
    """A misspelt flag is refused, never ignored."""
    api = daemon.api()
    for method, path, operation in contract.operations():
        body = {} if method == "POST" else None
        known = [one["name"] for one in map(contract._resolve, operation.get("parameters", [])) if one["in"] == "query"]
        refused = api.call(method, path + "?zzz=1", body)
        assert refused.status == 400 and "zzz" in refused["detail"], refused
        assert all(name in refused["hint"] for name in known) and ("no parameters" in refused["hint"]) == (not known)
        for name in known:
            reply = api.call(method, f"{path}?{name}=%00", body)
            assert reply.status in (400, 404) and f"parameter '{name}'" not in reply["detail"], reply
        refused = api.call(method, path, {"zzz": 1})
        assert refused.status == 400 and "zzz" in refused["detail"] or refused.status == 404 and method == "POST"
        if "requestBody" not in operation:
            assert refused.status == 400 and "takes no fields" in refused["hint"], refused
            assert api.call(method, path + ("?follow=false" if "events" in path else ""), b"[]").status == 400


def said_to(daemon, *requests):
    """Sends requests at once; returns all replies as text."""
    raw = socket.socket(socket.AF_UNIX)
    raw.settimeout(60)
    raw.connect(str(daemon.socket))
    raw.sendall("".join(f"{request}\r\n\r\n" for request in requests).encode())
    text = b""
    while more := raw.recv(65536):
        text += more
    raw.close()
    return text.decode()


LAST = "GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close"


@pytest.mark.parametrize("path,status", [("/healthz", 200), ("/v1/leases", 200), ("/v1/events", 200),
                                         ("/v1/preempt", 405), ("/v1/nowhere", 404)])
def test_a_head_is_answered_as_a_get_without_its_body(shared_daemon, path, status):
    head, after = said_to(shared_daemon, f"HEAD {path} HTTP/1.1\r\nHost: x", LAST).split("\r\n\r\n", 1)
    assert head.startswith(f"HTTP/1.1 {status} "), head
    assert after.startswith("HTTP/1.1 200"), after  # the next answer on the same connection
    assert ("Content-Length: " in head) == (path != "/v1/events")
    if path == "/healthz":
        asked = said_to(shared_daemon, LAST).split("\r\n\r\n", 1)
        assert f"Content-Length: {len(asked[1])}" in head


def test_a_target_may_name_the_host(shared_daemon):
    close = "HTTP/1.1\r\nHost: x\r\nConnection: close"
    assert said_to(shared_daemon, f"GET http://x/healthz {close}").startswith("HTTP/1.1 200")
    assert said_to(shared_daemon, f"GET http://x:80/v1/leases?all=maybe {close}").startswith("HTTP/1.1 400")
    assert said_to(shared_daemon, f"GET ftp://x/healthz {close}").startswith("HTTP/1.1 404")


def test_repeated_parameters_are_refused(daemon):
    api = daemon.api()
    for path in ("/v1/leases?all=true&all=false", "/v1/leases?limit=1&limit=1"):
        refused = api.get(path)
        assert refused.status == 400 and "is given twice" in refused["detail"]
    before = len(api.get("/v1/leases?all=true")["leases"])
    refused = api.post("/v1/leases", b'{"vram_bytes": 1073741824, "ttl_seconds": 60, "vram_bytes": 2147483648}')
    assert refused.status == 400 and refused["detail"] == "the field 'vram_bytes' is given twice"
    for header in ("Idempotency-Key", "Sublet-Lease-Token", "Last-Event-ID", "Authorization"):
        told = said_to(daemon, f"GET /v1/leases HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{header}: a\r\n"
                               f"{header.lower()}: a")
        assert told.startswith("HTTP/1.1 400 ") and f"the header {header} is given twice" in told and '"hint"' in told
    assert len(api.get("/v1/leases?all=true")["leases"]) == before


def test_an_empty_key_is_refused(daemon):
    """An empty key protects nothing, but its sender relies on it."""
    api = daemon.api()
    refused = api.post("/v1/leases", ASK, Idempotency_Key="")
    assert (refused.status, refused["code"]) == (400, "BadRequest") and "is empty" in refused["detail"]
    assert not api.get("/v1/leases?all=true")["leases"]
