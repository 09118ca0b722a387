# SPDX-License-Identifier: Apache-2.0
"""Every call that changes something, sent twice with one Idempotency-Key: done once, answered twice the same, also by
the next daemon; and a key is good for one request only."""
import itertools

import pytest

from tests.support.sublet import GIB

QUICK = '[gpu]\ninterval_idle = "500ms"\ninterval_busy = "200ms"\n[lease]\nreconnect = "30s"\n'
ASK = {"vram_bytes": GIB, "ttl_seconds": 600}
keys = (f"key-{n}" for n in itertools.count())


def lease(daemon, api):
    return api.post("/v1/leases", ASK)["id"]


def submit(daemon, api):
    return "POST", "/v1/leases", ASK, dict(ASK, vram_bytes=2 * GIB)


def submit_queued(daemon, api):
    api.post("/v1/leases", dict(ASK, vram_bytes=3 * GIB))
    return "POST", "/v1/leases", dict(ASK, vram_bytes=3 * GIB), ASK


def claim(daemon, api):
    first = api.post("/v1/leases", dict(ASK, vram_bytes=3 * GIB))["id"]
    waiting = api.post("/v1/leases", dict(ASK, vram_bytes=3 * GIB))["id"]
    api.post(f"/v1/leases/{first}/release", {})
    return "POST", f"/v1/leases/{waiting}/claim", {}, {"generation": 77}


def attach(daemon, api):
    program = daemon.spawn("sleep", "600")
    return ("POST", f"/v1/leases/{lease(daemon, api)}/attach", {"pid": program.pid, "owner": False},
            {"pid": program.pid, "owner": True})


def renew(daemon, api):
    return "POST", f"/v1/leases/{lease(daemon, api)}/renew", {"ttl_seconds": 900}, {"ttl_seconds": 901}


def release(daemon, api):
    return "POST", f"/v1/leases/{lease(daemon, api)}/release", {}, {"force": True}


def create_token(daemon, api):
    return "POST", "/v1/tokens", {"scope": "submit", "name": "one"}, {"scope": "read", "name": "one"}


def revoke_token(daemon, api):
    made = api.post("/v1/tokens", {"scope": "read"})["id"]
    return "DELETE", f"/v1/tokens/{made}", None, None


@pytest.mark.parametrize("make", [submit, submit_queued, claim, attach, renew, release, create_token, revoke_token])
def test_a_retry_is_answered_the_same_and_done_once(start_daemon, make):
    daemon = start_daemon(config=QUICK)
    api = daemon.api()
    method, path, body, other = make(daemon, api)
    key = next(keys)
    first = api.call(method, path, body, Idempotency_Key=key)
    assert first.status in (200, 201, 202)
    before = (len(api.get("/v1/leases?all=true")["leases"]), len(api.get("/v1/tokens")["tokens"]))
    again = daemon.api().call(method, path, body, Idempotency_Key=key)
    assert (again.status, again.body) == (first.status, first.body)
    daemon.restart()
    api = daemon.api()
    late = api.call(method, path, body, Idempotency_Key=key)
    assert (late.status, late.body) == (first.status, first.body)
    assert (len(api.get("/v1/leases?all=true")["leases"]), len(api.get("/v1/tokens")["tokens"])) == before
    if other is not None:
        refused = api.call(method, path, other, Idempotency_Key=key)
        assert (refused.status, refused["code"]) == (409, "Stale") and key in refused["detail"]
    elsewhere = api.post("/v1/leases/lease-1/pause", {}, Idempotency_Key=key)
    assert elsewhere.status == 409 and elsewhere["code"] == "Stale"  # not even for another call


def test_a_refused_call_does_not_use_up_its_key(daemon):
    api = daemon.api()
    held = api.post("/v1/leases", dict(ASK, vram_bytes=3 * GIB))
    ask = dict(ASK, vram_bytes=3 * GIB, queue=False)
    assert api.post("/v1/leases", ask, Idempotency_Key="later").status == 409
    api.post(f"/v1/leases/{held['id']}/release", {})
    assert api.post("/v1/leases", ask, Idempotency_Key="later").status == 201


def test_a_retry_on_another_connection_takes_the_lease_over(start_daemon):
    daemon = start_daemon(config=QUICK + 'linger = "1s"\n')
    lost, ask = daemon.api(), {"vram_bytes": GIB}
    first = lost.post("/v1/leases", ask, Idempotency_Key="k")
    again = daemon.api()
    assert again.post("/v1/leases", ask, Idempotency_Key="k").body == first.body
    lost.close()
    assert again.get(f"/v1/leases/{first['id']}?wait=3s&since=active")["state"] == "active"
