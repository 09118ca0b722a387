# SPDX-License-Identifier: Apache-2.0
"""Sessions over the API, on a simulated card whose driver pauses programs."""
from tests.support.parking import start_parking
from tests.support.sublet import GIB, wait_until

# Fills its memory and then does nothing.
WORK = ["simgpu-load", "--alloc", "512MiB", "--seconds", "600", "--busy", "0"]


def start_sessions(start_daemon, more="", **sessions):
    """Starts a daemon; `sessions` are keys of [sessions]."""
    keys = "".join(f'{name} = "{value}"\n' for name, value in sessions.items())
    return start_parking(start_daemon, f"[sessions]\n{keys}{more}")


def post(daemon, path, body=None, status=(200, 201)):
    api = daemon.api()
    reply = api.post(path, body if body is not None else {})
    api.close()
    assert status is None or reply.status in status, reply
    return reply


def open_session(daemon, arguments=None, **fields):
    """Opens a session by the API, with the environment that sees the daemon's cards."""
    body = {"vram_bytes": GIB, **fields}
    if arguments or "checkpoint" in fields:
        body |= {"directory": str(daemon.dir), "environment": [f"PATH={daemon.env()['PATH']}"]}
    if arguments:
        body["arguments"] = arguments
    return post(daemon, "/v1/sessions", body).body


def session(daemon, name):
    return daemon.get(f"/v1/sessions/{name}").body


def act(daemon, name, verb, status=(200,), **fields):
    return post(daemon, f"/v1/sessions/{name}/{verb}", fields, status)


def reaches(daemon, name, *states):
    """Returns the session once it is in one of these states."""
    return wait_until(lambda: (now := session(daemon, name))["state"] in states and now, f"{name} is {states}")


def fills(daemon, name, least=512 << 20):
    """Waits until the program of the session has filled its memory; returns the session."""
    def filled():
        now = session(daemon, name)
        if now["state"] == "closed":
            raise AssertionError(now)
        return now["lease"] and daemon.get(f"/v1/leases/{now['lease']}")["used_bytes"] >= least and now
    return wait_until(filled, f"{name} has filled its memory")


def hook(line, **more):
    return {"arguments": ["sh", "-c", line], **more}


def call_sessions(api):
    """Makes each call about sessions with good and bad fields."""
    body = {"vram_bytes": 1 << 20, "tag": "notebook", "directory": "/", "checkpoint": {"arguments": ["true"]}}
    assert api.post("/v1/sessions", dict(body, device="gpu9")).status == 404
    assert api.post("/v1/sessions", dict(body, vram_bytes=GIB << 10)).status == 422
    opened = api.post("/v1/sessions", body)
    assert opened.status == 201 and api.post("/v1/sessions", body)["code"] == "InUse"
    where = f"/v1/sessions/{opened['id']}"
    assert api.get(where + "/log").status == 404, "it has no program of its own"
    assert api.get("/v1/sessions").status == api.get(where).status == 200
    assert api.get(where + "?wait=x").status == api.get("/v1/sessions?all=x").status == 400
    wait_until(lambda: api.get(where)["state"] == "active", "it has its memory")
    saved = api.post(where + "/checkpoint", {})
    assert saved.status == 200 and saved["checkpoint"]["running"]
    wait_until(lambda: not api.get(where)["checkpoint"]["running"], "its checkpoint command has ended")
    assert api.post(where + "/report", {"start": opened["starts"], "warning": "x"}).status == 200
    assert api.post(where + "/report", {"start": opened["starts"] + 1}).status == 409
    assert api.post(where + "/touch", {}).status == api.post(where + "/resume", {}).status == 200
    assert api.post(where + "/close", {"park": False}).status == 200
    wait_until(lambda: api.get(where)["state"] == "closed", "it is closed")
    runs = api.post("/v1/sessions", {"vram_bytes": 1 << 20, "directory": "/", "arguments": ["/bin/sleep", "600"]})
    assert runs.status == 201
    log = f"/v1/sessions/{runs['id']}/log"
    wait_until(lambda: api.get(log).status == 200, "its program has a log")
    assert api.get(log + "?lines=x").status == 400
    assert api.post(f"/v1/sessions/{runs['id']}/close", {"park": False}).status == 200
    for verb in ("touch", "checkpoint"):
        assert api.post(f"{where}/{verb}", {})["code"] == "LeaseExpired"
    again = api.post(where + "/resume", {})
    assert again.status == 200 and again["token"] and api.post(where + "/close", {}).status == 200
    wait_until(lambda: api.get(where)["state"] == "closed", "it is closed again")
