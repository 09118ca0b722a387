# SPDX-License-Identifier: Apache-2.0
"""Every call that changes something, sent twice with one Idempotency-Key. The call is done once and answered the same
twice, also by the next daemon. A key is good for one request only.
"""
import itertools

import pytest

from tests.support import contract
from tests.support.parking import quick_checkpoints
from tests.support.stacks import Stacks
from tests.support.receiver import NOBODY
from tests.support.sublet import GIB, wait_until
from tests.support.webhook import webhook

QUICK = '[gpu]\ninterval_idle = "500ms"\ninterval_busy = "200ms"\n[lease]\nreconnect = "30s"\n'
ASK = {"vram_bytes": GIB, "ttl_seconds": 600}
keys = (f"key-{n}" for n in itertools.count())

# The requests for each call: (path, body, another body under the same key). There is one function for a call of the
# contract, two if it has two answers; a call without a function fails the test below.
MAKERS = []


def of(call):
    def remember(make):
        MAKERS.append((call, make))
        return make
    return remember


class Scene:
    """A daemon, and leases in the states that calls need."""

    def __init__(self, daemon, hook, late_hook, place=None):
        self.place = place
        self.daemon, self.api = daemon, daemon.api()
        self.hook, self.late_hook = hook, late_hook

    def lease(self, **more):
        return f"/v1/leases/{self.api.post('/v1/leases', {**ASK, **more})['id']}"

    def cooperative(self, late=False, **more):
        path = self.lease(**more)
        assert self.api.post(path + "/cooperate", self.late_hook if late else self.hook).status == 200
        return path

    def until(self, path, state):
        wait_until(lambda: self.api.get(path)["state"] == state, f"{path} is {state}")
        return path


@of("POST /v1/leases")
def submit(scene):
    return "/v1/leases", ASK, dict(ASK, vram_bytes=2 * GIB)


@of("POST /v1/leases")
def submit_queued(scene):
    scene.lease(vram_bytes=3 * GIB)
    return "/v1/leases", dict(ASK, vram_bytes=3 * GIB), ASK


@of("POST /v1/leases/{id}/claim")
def claim(scene):
    first = scene.lease(vram_bytes=3 * GIB)
    waiting = scene.lease(vram_bytes=3 * GIB)
    scene.api.post(first + "/release", {})
    return waiting + "/claim", {}, {"generation": 77}


@of("POST /v1/leases/{id}/attach")
def attach(scene):
    pid = scene.daemon.spawn("sleep", "600").pid
    return scene.lease() + "/attach", {"pid": pid, "owner": False}, {"pid": pid, "owner": True}


@of("POST /v1/leases/{id}/renew")
def renew(scene):
    return scene.lease() + "/renew", {"ttl_seconds": 900}, {"ttl_seconds": 901}


@of("POST /v1/leases/{id}/touch")
def touch(scene):
    return scene.lease() + "/touch", {}, None


@of("POST /v1/leases/{id}/resize")
def resize(scene):
    return scene.lease() + "/resize", {"vram_bytes": 2 * GIB}, {"vram_bytes": GIB}


@of("POST /v1/leases/{id}/resize")
def resize_queued(scene):
    scene.lease(vram_bytes=2 * GIB)
    return scene.lease() + "/resize", {"vram_bytes": 3 * GIB}, {"vram_bytes": GIB}


@of("POST /v1/leases/{id}/release")
def release(scene):
    return scene.lease() + "/release", {}, {"force": True}


@of("POST /v1/leases/{id}/pause")
def pause(scene):
    return scene.cooperative() + "/pause", {}, {"wait_seconds": 1}


@of("POST /v1/leases/{id}/resume")
def resume(scene):
    path = scene.cooperative()
    scene.api.post(path + "/pause", {})
    return scene.until(path, "paused") + "/resume", {}, {"wait_seconds": 1}


@of("POST /v1/leases/{id}/cooperate")
def cooperate(scene):
    return scene.lease() + "/cooperate", scene.hook, dict(scene.hook, residue_bytes=1)


@of("DELETE /v1/leases/{id}/cooperate")
def withdraw(scene):
    return scene.cooperative() + "/cooperate", None, None


@of("POST /v1/leases/{id}/cooperate/answer")
def answer(scene):
    path = scene.cooperative(late=True)
    assert scene.api.post(path + "/pause", {}).status == 202
    order = wait_until(lambda: (lambda now: now if now["order"] == "yield" else None)(
        scene.api.get(path + "/cooperate?wait=1s")), "it is told")
    said = {"number": order["number"], "answer": "yielded"}
    return path + "/cooperate/answer", said, dict(said, answer="refused")


@of("POST /v1/preempt")
def preempt(scene):
    scene.cooperative(vram_bytes=3 * GIB)
    waiting = scene.lease(vram_bytes=3 * GIB).rsplit("/", 1)[1]
    return "/v1/preempt", {"lease": waiting}, {"lease": waiting, "preview": True}


@of("POST /v1/free")
def free(scene):
    return "/v1/free", {"vram_bytes": GIB}, {"vram_bytes": 2 * GIB}


@of("POST /v1/free")
def free_queued(scene):
    scene.cooperative(vram_bytes=3 * GIB)
    return "/v1/free", {"vram_bytes": 3 * GIB}, {"vram_bytes": GIB}


@of("POST /v1/consumers/{name}/grant")
def grant(scene):
    return "/v1/consumers/ollama/grant", {}, None


@of("DELETE /v1/consumers/{name}/grant")
def revoke_grant(scene):
    assert scene.api.post("/v1/consumers/ollama/grant", {}).status == 200
    return "/v1/consumers/ollama/grant", None, None


@of("POST /v1/tokens")
def create_token(scene):
    return "/v1/tokens", {"scope": "submit", "name": "one"}, {"scope": "read", "name": "one"}


@of("DELETE /v1/tokens/{id}")
def revoke_token(scene):
    return f"/v1/tokens/{scene.api.post('/v1/tokens', {'scope': 'read'})['id']}", None, None


def program(scene, tag="serve"):
    """A program that cannot start: it never has a lease."""
    body = {"tag": tag, "arguments": ["/no/such/program"], "directory": "/", "vram_bytes": GIB}
    made = scene.api.post("/v1/programs", body)
    assert made.status == 201, made
    wait_until(lambda: scene.api.get(f"/v1/programs/{tag}")["state"] == "failed", "it has failed")
    return f"/v1/programs/{tag}"


@of("POST /v1/programs")
def add_program(scene):
    body = {"tag": "serve", "arguments": ["/no/such/program"], "directory": "/", "vram_bytes": GIB}
    return "/v1/programs", body, dict(body, tag="other")


@of("POST /v1/programs/{tag}/update")
def update_program(scene):
    return program(scene) + "/update", {"restart": "always"}, {"restart": "never"}


@of("POST /v1/programs/{tag}/restart")
def restart_program(scene):
    return program(scene) + "/restart", {}, None


@of("POST /v1/programs/{tag}/start")
def start_program(scene):
    return program(scene) + "/start", {}, None


@of("POST /v1/programs/{tag}/stop")
def stop_program(scene):
    return program(scene) + "/stop", {}, {"force": True}


@of("POST /v1/programs/{tag}/remove")
def remove_program(scene):
    return program(scene) + "/remove", {}, {"keep_running": True}


@of("POST /v1/programs/{tag}/report")
def report_of_a_keeper(scene):
    place = program(scene)
    this = {"number": scene.api.get(place)["number"], "start": 1}
    return place + "/report", dict(this, warning="disk full"), this


def session(scene):
    """A session without a command, which is active."""
    opened = scene.api.post("/v1/sessions", {"vram_bytes": GIB, "directory": "/",
                                             "checkpoint": {"arguments": ["sleep", "600"]}})
    assert (opened.status, opened["state"]) == (201, "active"), opened
    return f"/v1/sessions/{opened['id']}"


@of("POST /v1/sessions")
def open_session(scene):
    return "/v1/sessions", {"vram_bytes": GIB}, {"vram_bytes": 2 * GIB}


@of("POST /v1/sessions/{id}/touch")
def touch_session(scene):
    return session(scene) + "/touch", {}, None


@of("POST /v1/sessions/{id}/checkpoint")
def save_session(scene):
    return session(scene) + "/checkpoint", {}, None


@of("POST /v1/sessions/{id}/close")
def close_session(scene):
    return session(scene) + "/close", {}, {"park": False}


@of("POST /v1/sessions/{id}/resume")
def resume_session(scene):
    where = session(scene)
    assert scene.api.post(where + "/close", {"park": False}).status == 200
    wait_until(lambda: scene.api.get(where)["state"] == "closed", "it is closed")
    return where + "/resume", {}, None


@of("POST /v1/sessions/{id}/report")
def report_about_a_session(scene):
    return session(scene) + "/report", {"start": 1, "warning": "disk full"}, {"start": 1}


APPROVAL = {"subject": "user:nobody", "ttl_seconds": 600}
POLICY = {"subject": "user:nobody", "policy": "warn"}


@of("POST /v1/approvals")
def approve(scene):
    return "/v1/approvals", APPROVAL, dict(APPROVAL, ttl_seconds=601)


@of("DELETE /v1/approvals/{id}")
def revoke_approval(scene):
    return f"/v1/approvals/{scene.api.post('/v1/approvals', APPROVAL)['id']}", None, None


@of("POST /v1/policies")
def set_policy(scene):
    return "/v1/policies", POLICY, dict(POLICY, policy="observe")


@of("POST /v1/events/targets/{name}/test")
def send_test_event(scene):
    return "/v1/events/targets/nobody/test", {}, {"another": "body"}


@of("POST /v1/devices/{id}/cordon")
def cordon(scene):
    return "/v1/devices/gpu0/cordon", {"reason": "new fan"}, {"reason": "new driver"}


@of("POST /v1/devices/{id}/drain")
def drain(scene):
    return "/v1/devices/gpu0/drain", {"deadline_seconds": 600}, {"deadline_seconds": 601}


@of("POST /v1/devices/{id}/uncordon")
def uncordon(scene):
    assert scene.api.post("/v1/devices/gpu0/cordon", {}).status == 200
    return "/v1/devices/gpu0/uncordon", None, None


@of("DELETE /v1/policies/{id}")
def remove_policy(scene):
    return f"/v1/policies/{scene.api.post('/v1/policies', POLICY)['id']}", None, None


# --- stacks: "chat" is down, "image" waits for the memory of another lease ---

def stack(scene, name):
    """The lease of another program has the memory that "image" needs."""
    scene.lease(vram_bytes=3 * GIB)
    wait_until(lambda: (now := scene.api.get("/v1/stacks"))["engine"]["version"] and
               {"chat", "image"} <= {stack["name"] for stack in now["stacks"]}, "engine and stacks are known")
    return f"/v1/stacks/{name}"


def queued_stack(scene):
    path = stack(scene, "image")
    made = scene.api.post(path + "/acquire", {"ttl_seconds": 600})
    assert made.status == 202 and made["state"] == "queued", made
    return path


@of("POST /v1/stacks")
def adopt_stack(scene):
    stack(scene, "extra")
    return "/v1/stacks", {"path": str(scene.place.dir / "extra")}, {"path": str(scene.place.dir / "other")}


@of("DELETE /v1/stacks/{name}")
def forget_stack(scene):
    path, body, _ = adopt_stack(scene)
    assert scene.api.post(path, body).status == 201
    return "/v1/stacks/extra", None, None


@of("POST /v1/stacks/{name}/set")
def set_stack(scene):
    return stack(scene, "chat") + "/set", {"exclusive": True}, {"exclusive": False}


@of("POST /v1/stacks/{name}/acquire")
def acquire_stack(scene):
    return stack(scene, "image") + "/acquire", {"ttl_seconds": 600}, {"ttl_seconds": 601}


@of("POST /v1/stacks/{name}/renew")
def renew_stack(scene):
    return queued_stack(scene) + "/renew", {"ttl_seconds": 700}, {"ttl_seconds": 701}


@of("POST /v1/stacks/{name}/restart")
def restart_stack(scene):
    path = stack(scene, "chat")
    assert scene.api.post(path + "/acquire", {"ttl_seconds": 600, "wait_seconds": 60}).status == 200
    return path + "/restart", {}, {"wait_seconds": 1}


@of("POST /v1/stacks/{name}/release")
def release_stack(scene):
    return queued_stack(scene) + "/release", {}, {"down": True}


TENANTS = [{"name": "lab", "limit_bytes": GIB}, {"name": "vision", "parent": "lab"}]


@of("POST /v1/tenants")
def set_tenants(scene):
    return "/v1/tenants", {"tenants": TENANTS}, {"tenants": TENANTS[:1]}


@of("POST /v1/tenants/{name}")
def set_tenant(scene):
    return "/v1/tenants/lab", {"limit_bytes": GIB}, {"limit_bytes": 2 * GIB}


@of("DELETE /v1/tenants/{name}")
def remove_tenant(scene):
    assert scene.api.post("/v1/tenants", {"tenants": TENANTS}).status == 200
    return "/v1/tenants/vision", None, None


@pytest.fixture
def place(start_daemon, tmp_path):
    with Stacks(start_daemon, tmp_path) as stacks:
        stacks.write("chat", vram="1MiB")
        stacks.write("image", vram="3GiB")
        stacks.write("extra", into=tmp_path)
        yield stacks


def test_no_call_that_changes_something_is_left_out():
    changing = {f"{method.upper()} {path}" for method, path, _ in contract.documented() if method != "get"}
    changing.remove("POST /v1/stacks/{name}/pull")  # changes images of the engine only, and may be done twice
    assert {call for call, _ in MAKERS} == changing
    for call in changing:  # and each of them documents the key
        method, path = call.split()
        operation = contract.document()["paths"][path][method.lower()]
        parameters = [contract._resolve(one) for one in operation["parameters"]]
        assert "Idempotency-Key" in [one["name"] for one in parameters], call


def done(api):
    rules = api.get("/v1/enforcer")
    return (len(api.get("/v1/leases?all=true")["leases"]), len(api.get("/v1/tokens")["tokens"]),
            api.get("/v1/consumers")["grants"], rules["approvals"], rules["policies"])


@pytest.mark.matrix
@pytest.mark.parametrize("call, make", MAKERS, ids=[make.__name__ for _, make in MAKERS])
def test_a_retry_is_answered_the_same_and_done_once(start_daemon, place, call, make):
    daemon = start_daemon(config=QUICK + (place.section() if "/v1/stacks" in call else "") + NOBODY)
    quick_checkpoints(daemon)
    with webhook() as hook, webhook(at_once=False) as late_hook:
        scene = Scene(daemon, hook, late_hook, place)
        api, method = scene.api, call.split()[0]
        path, body, other = make(scene)
        key = next(keys)
        first = api.call(method, path, body, Idempotency_Key=key)
        assert first.status in (200, 201, 202), first
        before = done(api)
        again = daemon.api().call(method, path, body, Idempotency_Key=key)
        assert (again.status, again.body) == (first.status, first.body)
        daemon.restart()
        api = daemon.api()
        late = api.call(method, path, body, Idempotency_Key=key)
        assert (late.status, late.body) == (first.status, first.body)
        assert done(api) == before
        if other is not None:
            refused = api.call(method, path, other, Idempotency_Key=key)
            assert (refused.status, refused["code"]) == (409, "Stale") and key in refused["detail"]
        elsewhere = api.post("/v1/free", {"vram_bytes": 77}, Idempotency_Key=key)
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
