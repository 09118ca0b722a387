# SPDX-License-Identifier: Apache-2.0
"""Sessions: fields and calls that are refused."""
import pytest

from tests.support.sessions import act, open_session, post, reaches, start_sessions
from tests.support.sublet import GIB


@pytest.fixture
def daemon(start_daemon):
    return start_sessions(start_daemon)


def test_a_session_of_somebody_else_and_bad_fields_are_refused(start_daemon):
    daemon = start_sessions(start_daemon, '[limits]\nsessions = 2\n')
    api = daemon.api()
    for body in ({"vram_bytes": GIB, "ttl_seconds": 0.001}, {"vram_bytes": GIB, "ttl_seconds": 0}, {},
                 {"vram_bytes": GIB, "checkpoint": {}}, {"vram_bytes": GIB, "arguments": ["x"]},
                 {"vram_bytes": GIB, "idle": {"pause": 1}}, {"vram_bytes": GIB, "queue": False}):
        assert api.post("/v1/sessions", body)["code"] == "BadRequest", body
    assert api.post("/v1/sessions", {"vram_bytes": 64 * GIB})["code"] == "TooLarge"
    for name in ("session-99", "7", "x"):
        assert api.post(f"/v1/sessions/{name}/resume", {})["code"] == "NotFound"
    first = open_session(daemon)
    assert act(daemon, first["id"], "checkpoint", status=(400,))["code"] == "BadRequest"
    open_session(daemon)
    refused = api.post("/v1/sessions", {"vram_bytes": GIB})
    assert (refused["code"], refused["numbers"]["limit"]) == ("Quota", 2)
    act(daemon, first["id"], "close")
    reaches(daemon, first["id"], "closed")
    open_session(daemon)
    assert act(daemon, first["id"], "resume", status=(409,))["code"] == "Quota"
    listed = [row["id"] for row in daemon.get("/v1/sessions")["sessions"]]
    assert first["id"] not in listed and len(listed) == 2
    assert first["id"] in [row["id"] for row in daemon.get("/v1/sessions?all=true")["sessions"]]


def test_a_null_field_is_a_missing_field(daemon):
    nulls = {"devices": None, "tenant": None, "tier": None, "device": None, "min_vram_bytes": None}
    opened = open_session(daemon, ["sleep", "600"], exclusive=True, **nulls)
    assert reaches(daemon, opened["id"], "active", "closed")["state"] == "active"
    listed = daemon.get("/v1/sessions")["sessions"]
    assert [(row["tier"], row["tenant"]) for row in listed] == [("standard", opened["user"])]
    program = {"tag": "serve", "arguments": ["sleep", "600"], "directory": "/", "vram_bytes": GIB, "tier": None}
    post(daemon, "/v1/programs", program)
    assert [row["tier"] for row in daemon.get("/v1/programs")["programs"]] == ["standard"]
    post(daemon, "/v1/programs/serve/update", {"tier": "batch"})
    assert post(daemon, "/v1/programs/serve/update", {"tier": None})["tier"] == "batch"


def test_sessions_that_are_switched_off_say_so(start_daemon):
    daemon = start_sessions(start_daemon, more="enabled = false\n")
    for reply in (post(daemon, "/v1/sessions", {"vram_bytes": GIB}, status=(503,)), daemon.get("/v1/sessions")):
        assert reply["code"] == "Unavailable" and "sessions.enabled" in reply["hint"]
        assert reply["numbers"] == {"switched_off": 1}
    refused = daemon.cli("session", "open", "--vram", "1GiB", check=None)  # at once: a repetition would not end
    assert refused.returncode != 0 and "sessions are switched off" in refused.stderr
    assert daemon.get("/v1/leases").status == 200


def test_a_start_asks_for_its_lease_once(daemon):
    opened = open_session(daemon, ["sleep", "600"])
    reaches(daemon, opened["id"], "active")
    body = {"vram_bytes": GIB, "owner": {"connection": True}, "session": {"id": opened["id"], "start": 1}}
    assert post(daemon, "/v1/leases", body, status=(409,))["code"] == "Stale"
    assert post(daemon, f"/v1/sessions/{opened['id']}/report", {"start": 9}, status=(409,))["code"] == "Stale"
    late = {"checkpoint": {"number": 1, "locator": "x"}}
    assert post(daemon, f"/v1/sessions/{opened['id']}/report", late, status=(409,))["code"] == "Stale"
