# SPDX-License-Identifier: Apache-2.0
"""Every status that the contract lists for a call is one that the call really gives, seen here."""
import http.server
import os
import threading

import pytest

from tests.e2e.test_reconcile import FailingStore
from tests.support import contract
from tests.support.parking import quick_checkpoints
from tests.support.sublet import GIB, wait_until
from tests.support.tcp import TcpApi, start_with_tcp

ASK = {"vram_bytes": GIB, "ttl_seconds": 600}
ACTIONS = ("claim", "attach", "renew", "resize", "release", "pause", "resume")
BODIES = {"attach": {"pid": 1 << 22}, "resize": {"vram_bytes": GIB}}

# Needs two users with the same tag, which a private daemon has not.
ELSEWHERE = {("get", "/v1/leases/{id}/why", 400): "src/http/roles_test.cpp"}


@pytest.fixture
def daemon(start_daemon):
    return start_with_tcp(start_daemon, '[gpu]\ninterval_idle = "300ms"\ninterval_busy = "200ms"\n')


def operations():
    for method, path, _ in sorted(contract.documented()):
        yield method.upper(), path.replace("{id}", "lease-1" if "leases" in path else "token-99")


def good_calls(daemon, api):
    pause_and_resume(daemon, api)
    grants_and_answers(api)
    for path in ("/healthz", "/metrics", "/v1/openapi.json", "/v1/status", "/v1/devices", "/v1/processes", "/v1/queue",
                 "/v1/consumers", "/v1/ledger", "/v1/report", "/v1/leases", "/v1/leases?all=true", "/v1/tokens"):
        assert api.get(path).status == 200
    contract.seen.add(("get", "/v1/events", _events_status(daemon)))
    first = api.post("/v1/leases", dict(ASK, vram_bytes=3 * GIB))
    second = api.post("/v1/leases", dict(ASK, vram_bytes=3 * GIB))
    assert (first.status, second.status) == (201, 202)
    lease, waiting = f"/v1/leases/{first['id']}", f"/v1/leases/{second['id']}"
    assert api.get(lease).status == api.get(lease + "/why").status == 200
    program = daemon.spawn("sleep", "600")
    assert api.post(lease + "/attach", {"pid": program.pid, "owner": False}).status == 200
    assert api.post(lease + "/renew", {}).status == 200
    assert api.post(lease + "/resize", {"vram_bytes": 2 * GIB}).status == 200
    assert api.post("/v1/leases", dict(ASK, dry_run=True)).status == 200
    assert api.post("/v1/free", {"vram_bytes": GIB, "preview": True}).status == 200
    assert api.post("/v1/preempt", {"lease": first["id"]}).status == 200
    third = api.post("/v1/leases", ASK)
    assert third.status == 201 and api.post(lease + "/resize", {"vram_bytes": 3 * GIB}).status == 202
    assert api.post(f"/v1/leases/{third['id']}/release", {}).status == 200
    assert api.post(lease + "/release", {}).status == 200
    wait_until(lambda: api.get(waiting)["state"] == "offered", "its bytes are measured gone")
    assert api.post(waiting + "/claim", {}).status == 200
    token = api.post("/v1/tokens", {"scope": "read"})
    assert token.status == 201 and api.call("DELETE", f"/v1/tokens/{token['id']}").status == 200
    return lease, waiting


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
    # For the second one, and for something outside, it makes room.
    assert api.post("/v1/leases", dict(ASK, vram_bytes=3 * GIB, tag="other")).status == 202
    assert api.post("/v1/preempt", {"lease": "other"}).status == 202
    wait_until(lambda: api.get("/v1/leases/other")["state"] == "offered", "it has the room")
    api.post("/v1/leases/other/release", {})
    wait_until(lambda: api.get("/v1/leases/program")["state"] == "active", "it is back")
    freed = api.post("/v1/free", {"vram_bytes": 3 * GIB})
    assert freed.status == 202
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


class Later(http.server.BaseHTTPRequestHandler):
    """A webhook that says what came of an order by a call of its own."""
    def do_POST(self):
        self.send_response(202)
        self.end_headers()

    def log_message(self, *_):
        pass


def grants_and_answers(api):
    grant = "/v1/consumers/ollama/grant"
    assert api.post(grant, {}).status == 200 and api.call("DELETE", grant).status == 200
    assert api.call("DELETE", grant).status == 404
    assert api.post("/v1/consumers/no%20name/grant", {}).status == 400
    assert api.call("DELETE", grant, Idempotency_Key="x" * 129).status == 400
    lease = f"/v1/leases/{api.post('/v1/leases', ASK)['id']}"
    hook = http.server.HTTPServer(("127.0.0.1", 0), Later)
    serving = threading.Thread(target=hook.serve_forever)
    serving.start()
    try:
        body = {"way": "webhook", "url": f"http://127.0.0.1:{hook.server_port}/"}
        assert api.post(lease + "/cooperate", body).status == 200
        for call, answer in (("pause", "yielded"), ("resume", "resumed")):
            assert api.post(f"{lease}/{call}", {}).status == 202
            order = wait_until(lambda: (lambda now: now if now["order"] != "none" else None)(
                api.get(lease + "/cooperate?wait=1s")), "it is told")
            said = {"number": order["number"], "answer": answer}
            assert api.post(lease + "/cooperate/answer", dict(said, answer="perhaps")).status == 400
            assert api.post(lease + "/cooperate/answer", said).status == 200
            wait_until(lambda call=call: api.get(lease)["state"] == ("paused" if call == "pause" else "active"), call)
        assert api.post(lease + "/cooperate/answer", {"number": 1, "answer": "yielded"}).status == 409
        assert api.call("DELETE", lease + "/cooperate").status == 200
    finally:
        hook.shutdown()
        serving.join()
        hook.server_close()
    assert api.get(lease + "/cooperate?since=x").status == api.post(lease + "/cooperate", {"way": "x"}).status == 400
    assert api.call("DELETE", lease + "/cooperate", Idempotency_Key="x" * 129).status == 400
    assert api.post(lease + "/release", {}).status == 200
    gone = wait_until(lambda: api.get(lease)["state"] == "ended" and lease, "it has ended")
    for where, status in ((gone, 409), ("/v1/leases/lease-99", 404)):
        assert api.get(where + "/cooperate").status == api.call("DELETE", where + "/cooperate").status == status
        assert api.post(where + "/cooperate", {}).status == status
        assert api.post(where + "/cooperate/answer", {"number": 1, "answer": "yielded"}).status == status


def bad_calls(api, ended, active):
    ended = ended.rsplit("/", 1)[1]
    for path in ("/v1/queue?limit=0", "/v1/leases?after=nowhere", "/v1/events?type=x", f"{active}?wait=x",
                 "/v1/report?by=x"):
        assert api.get(path).status == 400
    for path in ("/v1/leases", "/v1/tokens", f"{active}/claim", f"{active}/attach", f"{active}/renew",
                 f"{active}/resize", f"{active}/release", f"{active}/pause", f"{active}/resume", "/v1/preempt",
                 "/v1/free"):
        assert api.post(path, {"no such field": 1}).status in (400, 409) and api.post(path, "{").status == 400
    assert api.post("/v1/leases", dict(ASK, device="gpu9")).status == 404
    assert api.post("/v1/free", {"vram_bytes": GIB, "device": "gpu9"}).status == 404
    assert api.post("/v1/preempt", {"lease": "lease-99"}).status == 404
    assert api.post("/v1/preempt", {"lease": ended}).status == 409
    for path in ("/v1/leases", "/v1/free"):
        assert api.post(path, {"vram_bytes": 1 << 60}).status == 422
    assert api.post(f"{active}/resize", {"vram_bytes": 1 << 60}).status == 422
    assert api.post("/v1/leases", dict(ASK, vram_bytes=4 * GIB - (600 << 20), queue=False)).status == 409
    assert api.post("/v1/free", {"vram_bytes": 4 * GIB - (600 << 20)}).status == 409
    assert api.get("/v1/events?lease=lease-99").status == 404
    assert api.get("/v1/leases/lease-99").status == api.get("/v1/leases/lease-99/why").status == 404
    assert api.call("DELETE", "/v1/tokens/token-99").status == 404
    assert api.call("DELETE", "/v1/tokens/token-99", Idempotency_Key="x" * 129).status == 400
    assert api.post("/v1/leases", ASK, Idempotency_Key="once").status in (201, 202)
    assert api.call("DELETE", "/v1/tokens/token-99", Idempotency_Key="once").status == 409
    assert api.call("DELETE", "/v1/consumers/ollama/grant", Idempotency_Key="once").status == 409
    assert api.post("/v1/consumers/ollama/grant", {}, Idempotency_Key="once").status == 409
    for action in ACTIONS:
        assert api.post(f"/v1/leases/lease-99/{action}", BODIES.get(action, {})).status == 404
    for action in ("claim", "renew", "resize", "release", "attach"):
        body = {**BODIES.get(action, {}), **({"pid": os.getpid()} if action == "attach" else {}), "generation": 1}
        assert api.post(f"{active}/{action}", body).status == 409
    for action in ("pause", "resume"):
        assert api.post(f"{active}/{action}", {"generation": 1}).status == 409
    while api.post("/v1/tokens", {"scope": "read"}).status == 201:
        pass  # until there are too many


@pytest.mark.parametrize("method", ["PUT", "PATCH", "OPTIONS", "TRACE", "DELETE"])
def test_a_method_that_a_path_does_not_take_is_named(daemon, method):
    api = daemon.api()
    refused = api.call(method, "/v1/leases")
    assert refused.status == 405 and refused.headers["Allow"] == "GET, POST" and method in refused["detail"]
    assert api.call(method, "/v1/nowhere").status == 404


@pytest.mark.parametrize("path", ["/v1/leases?all=yes", "/v1/leases/lease-1?stopping=1", "/v1/events?follow="])
def test_a_flag_is_true_or_false(daemon, path):
    refused = daemon.api().get(path)
    assert refused.status == 400 and "true nor false" in refused["detail"]


def refused_calls(daemon, api):
    submit = TcpApi(daemon.port, api.post("/v1/tokens", {"scope": "submit"})["token"])
    stranger = TcpApi(daemon.port)
    for method, path in operations():
        body = {} if method == "POST" else None
        assert submit.call(method, path, body, Host="evil.example").status == 403
        if path != "/healthz":
            assert stranger.call(method, path, body).status == 401


def test_every_documented_answer_is_given(daemon):
    contract.seen.clear()
    api = daemon.api()
    refused_calls(daemon, api)
    ended, active = good_calls(daemon, api)
    bad_calls(api, ended, active)
    with FailingStore(daemon, daemon.api()):
        for method, path in operations():
            api.call(method, path, {} if method == "POST" else None)
    missing = contract.documented() - contract.seen - set(ELSEWHERE)
    assert not missing, f"documented and never seen: {sorted(missing)}"
    assert not set(ELSEWHERE) & contract.seen, "listed as seen elsewhere, and seen here"
