# SPDX-License-Identifier: Apache-2.0
"""Calls whose answers were recorded from the one-stack service (tests/data/one_stack_service.json).

A row is a name and its steps. A step is a call, or a word to the containers: `health` of new containers, or `label`.
A token of an earlier answer is named by "$NAME", where `keep` gave it the name.
"""
LABEL = "gpu.healthcheck-master"


def call(method, path, body=None, keep=None, text=None):
    return {"method": method, "path": path, "body": body, "keep": keep, "text": text}


def get(path):
    return call("GET", path)


def acquire(target, keep=None, **fields):
    return call("POST", "/acquire", {"target": target, **fields}, keep)


def release(token="", **fields):
    return call("POST", "/release", {"lease_token": token, **fields})


def post(text):
    return call("POST", "/acquire", text=text)


HELD = acquire("a", keep="A", owner="ana", lease_ttl_s=600)

ROWS = {
    # endpoints
    "healthz": [get("/healthz")],
    "idle": [get("/status")],
    "other paths and methods": [get("/nosuch"), get("/acquire"), call("POST", "/status", {}), call("PUT", "/release"),
                                call("DELETE", "/healthz")],
    # bodies
    "no JSON": [post("{"), post(""), post("[]"), post("null"), post('"a"'), post("7")],
    "wrong types": [post('{}'), post('{"target": 1}'), post('{"target": null}'), post('{"target": "a", "owner": 5}'),
                    post('{"target": "a", "owner": null}'), post('{"target": "a", "lease_token": null}'),
                    post('{"target": "a", "priority": 1.5}'), post('{"target": "a", "priority": "x"}'),
                    post('{"target": "a", "priority": []}'), post('{"target": "a", "priority": ""}'),
                    post('{"target": "a", "wait_ready": "perhaps"}'), post('{"target": "a", "wait_ready": null}'),
                    post('{"target": "a", "wait_ready": 2}'), post('{"target": 1, "owner": 2}')],
    # 1.3, in the order of the checks
    "1 unknown target": [acquire("nosuch"), acquire("nosuch", lease_ttl_s=0), acquire("")],
    "2 time to live": [acquire("a", lease_ttl_s=0), acquire("a", lease_ttl_s=-1.5), acquire("a", lease_ttl_s="abc"),
                       acquire("a", lease_ttl_s="0"), acquire("a", lease_ttl_s="nan"), get("/status")],
    "3 refreshed": [HELD, acquire("a", lease_token="$A", lease_ttl_s=900, owner="bob", priority=5, wait_s=0),
                    get("/status")],
    "4 other target": [HELD, acquire("b", lease_token="$A")],
    "5 queued, not the head": [HELD, acquire("b", keep="H", priority=5), acquire("b", keep="W", priority=0),
                               acquire("b", lease_token="$W")],
    "6 queued, the head": [HELD, acquire("b", keep="H", priority=5), acquire("b", lease_token="$H")],
    "7 busy": [HELD, acquire("b"), acquire("a"), acquire("b", lease_token="stale")],
    "8 queued": [HELD, acquire("b", keep="W", owner="bob", priority=5), acquire("b", keep="X", priority="-3"),
                 acquire("b", lease_token="mine", priority=7, owner=""), get("/status")],
    "9 other target than queued": [HELD, acquire("b", keep="H", priority=5), acquire("a", keep="W", priority=0),
                                   release("$A"), acquire("a", lease_token="$H"), acquire("a", lease_token="$W")],
    "10 not the head": [HELD, acquire("b", keep="H", priority=5), acquire("b", keep="W", priority=0), release("$A"),
                        acquire("b", lease_token="$W")],
    "11 claimed": [HELD, acquire("b", keep="H", owner="bob", priority=5), release("$A"),
                   acquire("b", lease_token="$H", lease_ttl_s=60), get("/status")],
    "12 a claimant is pending": [HELD, acquire("b", keep="H", priority=5), release("$A"), acquire("a"),
                                 acquire("a", lease_token="stale"), acquire("a", priority=1)],
    "13 free": [acquire("a", keep="A"), release("$A"), acquire("a", lease_token="mine", priority=0),
                release("mine"), acquire("a", lease_token="foreign")],
    # release
    "release": [release(), release("x"), release(force=True), HELD, release("x"), release(""), release("$A"),
                release("$A")],
    "release by force": [HELD, release("x", force=True), get("/status")],
    "release of what waits": [HELD, acquire("b", keep="W", priority=0), release("$W")],
    "release of a stack that is not ready": [{"health": "starting"}, acquire("a", keep="A", wait_ready=False),
                                             release("$A"), get("/status")],
    # readiness
    "late": [{"health": "starting"}, acquire("a", wait_s=0.5), get("/status")],
    "unhealthy": [{"health": "unhealthy"}, acquire("a", wait_s=30)],
    "without a healthcheck": [{"health": ""}, acquire("a", wait_s=30)],
    "no label": [{"label": "other"}, acquire("a", wait_s=30)],
    "a bad wait": [acquire("a", wait_s=0)],
}
