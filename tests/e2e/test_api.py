# SPDX-License-Identifier: Apache-2.0
"""The HTTP API from outside. The client of these tests checks every reply against the contract."""
import http.client
import json
import os
import socket
import subprocess
import sys
import threading

import pytest

from tests.support import contract
from tests.support.contract import ROOT
from tests.support.sublet import BIN, GIB, Api, wait_until

QUICK = ('[gpu]\ninterval_idle = "500ms"\ninterval_busy = "200ms"\n'
         '[queue]\nclaim_window = "1s"\n[lease]\nlinger = "500ms"\nreconnect = "2s"\n')


def ask(api, vram=GIB, **body):
    return api.post("/v1/leases", {"vram_bytes": vram, **body})


def token_lease(api, vram=GIB, ttl=600, **body):
    return ask(api, vram, ttl_seconds=ttl, **body)


# --- requests ---

def test_a_lease_is_granted_read_and_released(daemon):
    api = daemon.api()
    reply = token_lease(api, consumer="train", tag="mine", priority=7, tier="batch", command="python train.py")
    assert reply.status == 201 and reply.headers["Location"] == f"/v1/leases/{reply['id']}"
    assert (reply["state"], reply["reserved_bytes"], reply["tier"], reply["priority"]) == ("active", GIB, "batch", 7)
    assert len(reply["token"]) == 32
    for name in (reply["id"], reply["id"].removeprefix("lease-"), "mine"):
        read = api.lease(name)
        assert read["id"] == reply["id"] and "token" not in read
    device = api.get("/v1/devices")["devices"][0]
    assert device["leased_bytes"] == GIB
    released = api.post(f"/v1/leases/{reply['id']}/release", {})
    assert (released["state"], released["end_reason"]) == ("ended", "released")
    assert api.get("/v1/devices")["devices"][0]["leased_bytes"] == 0  # never has a process: gone at once
    again = api.post("/v1/leases/mine/release", {})
    assert again.status == 200 and again["id"] == reply["id"]
    assert api.lease(reply["id"])["state"] == "ended"


@pytest.mark.parametrize("body, names", [
    ({}, ["vram_bytes is missing"]),
    ({"vram_bytes": 0}, ["vram_bytes is 0", "from 1024"]),
    ({"vram_bytes": -1}, ["vram_bytes is -1"]),
    ({"vram_bytes": 1023}, ["vram_bytes is 1023", "from 1024"]),
    ({"vram_bytes": 2**64}, ["vram_bytes is"]),
    ({"vram_bytes": 1.5}, ["1.5", "integer"]),
    ({"vram_bytes": "8GiB"}, ["8GiB", "integer", f"as a number of bytes: {8 * GIB}"]),
    ({"vram_bytes": True}, ["true"]),
    ({"vram_bytes": GIB, "priorty": 1}, ["priorty", "did you mean 'priority'"]),
    ({"vram_bytes": GIB, "tier": "standart"}, ["standart", "did you mean 'standard'"]),
    ({"vram_bytes": GIB, "pausable": "maybe"}, ["maybe", "cooperative"]),
    ({"vram_bytes": GIB, "pausable": "interposer"}, ["'interposer' is unknown", "auto, cooperative, driver, no"]),
    ({"vram_bytes": GIB, "ttl_seconds": "1m"}, ["as a number of seconds: 60"]),
    ({"vram_bytes": GIB, "min_vram_bytes": 2 * GIB}, ["ask for 2.0 GiB or more"]),
    ({"vram_bytes": GIB, "priority": 1001}, ["1001", "1000"]),
    ({"vram_bytes": GIB, "devices": 1025}, ["devices is 1025"]),
    *(({"vram_bytes": GIB, "tenant": name},
       [f"tenant is {json.dumps(name)}; it must be 1 to 64 of the letters a-z and A-Z, digits and ."])
      for name in ("a b", "x" * 65, "x\t", 7)),
    *(({"vram_bytes": GIB, field: name}, [f"{field} is {json.dumps(name)}; it must be 1 to 64 printable characters"])
      for field in ("consumer", "tag") for name in ("a/b", "x" * 65, "x\t", 7)),
    ({"vram_bytes": GIB, "consumer": ""}, ['consumer is ""']),
    *(({"vram_bytes": GIB, "tag": tag}, [f'tag is "{tag}"; a tag must not', "with a letter"])
      for tag in ("lease-3", "3", "-x", "..")),
    ({"vram_bytes": GIB, "owner": {"pid": 1 << 22}}, ["process 4194304"]),
    ({"vram_bytes": GIB, "owner": {"pidd": 1}}, ["owner.pidd"]),
    ({"vram_bytes": GIB, "owner": 3}, ["owner is 3"]),
    ([], ["array"]),
])
def test_bad_requests_name_what_is_wrong(shared_daemon, body, names):
    reply = shared_daemon.api().post("/v1/leases", body)
    assert (reply.status, reply["code"]) == (400, "BadRequest")
    for name in names:
        assert name in reply["detail"] + reply.body.get("hint", "")
    assert shared_daemon.api().get("/v1/leases?all=true")["leases"] == []


@pytest.mark.parametrize("text, status", [
    ("{", 400), ("nul", 400), ("\xff\xfe", 400), ("[" * 100 + "]" * 100, 400),
    (json.dumps({"vram_bytes": GIB, "command": "x" * 70000}), 413),
])
def test_unreadable_bodies_are_refused(shared_daemon, text, status):
    reply = shared_daemon.api().post("/v1/leases", text.encode("latin-1"))
    assert reply.status == status and reply["code"] == "BadRequest"


def test_how_deep_a_body_may_be_and_how_large_a_header(shared_daemon):
    api = shared_daemon.api()
    deepest = api.post("/v1/leases", '{"a":' * 16 + "1" + "}" * 16)
    assert deepest.status == 400 and "unknown field 'a'" in deepest["detail"]
    deeper = api.post("/v1/leases", '{"a":' * 17 + "1" + "}" * 17)
    assert deeper.status == 400 and "deeper than 16" in deeper["detail"]
    assert api.get("/healthz", X_Large="x" * 15000).status == 200
    refused = shared_daemon.api().get("/healthz", X_Large="x" * 17000)
    assert (refused.status, refused["code"]) == (431, "BadRequest") and "16384" in refused["detail"]


def test_more_than_any_device_has_is_refused_at_once(daemon):
    reply = token_lease(daemon.api(), 8 * GIB)
    assert (reply.status, reply["code"]) == (422, "TooLarge")
    assert "8.0 GiB" in reply["detail"] and "gpu0" in reply["detail"]
    assert reply["numbers"]["asked_bytes"] == 8 * GIB
    assert token_lease(daemon.api(), reply["numbers"]["most_bytes"]).status == 201


def test_without_queueing_a_full_card_is_a_conflict_with_numbers(daemon):
    api = daemon.api()
    held = token_lease(api, 3 * GIB)
    reply = token_lease(api, 2 * GIB, queue=False)
    assert (reply.status, reply["code"]) == (409, "Memory")
    assert held["id"] in reply["detail"] and reply["hint"]
    assert len(api.get("/v1/leases?all=true")["leases"]) == 1


def test_unknown_paths_methods_devices_and_leases(shared_daemon):
    api = shared_daemon.api()
    assert (api.get("/v1/lease").status, api.get("/v1/lease")["code"]) == (404, "NotFound")
    assert "did you mean '/v1/leases'" in api.get("/v1/lease")["detail"]
    assert api.post("/v1/devices", {}).status == 405
    assert api.get("/v1/leases/lease-99").status == 404
    assert api.post("/v1/leases/nosuch/release", {}).status == 404
    reply = token_lease(api, device="gpu9")
    assert reply.status == 404 and "gpu0" in reply["hint"]
    assert api.post("/v1/leases/lease-99/pause", {}).status == 404


def test_a_lease_without_a_program_cannot_be_paused(daemon):
    api = daemon.api()
    lease = token_lease(api)
    reply = api.post(f"/v1/leases/{lease['id']}/pause", {})
    assert (reply.status, reply["code"]) == (409, "PauseUnsafe")
    assert api.lease(lease["id"])["state"] == "active"


# --- waiting, offers, owners ---

def test_whoever_waited_claims_the_offer(start_daemon):
    daemon = start_daemon(config=QUICK)
    api = daemon.api()
    first = token_lease(api, 3 * GIB)
    replies = {}
    waiter = threading.Thread(target=lambda: replies.update(held=token_lease(daemon.api(), 3 * GIB, wait_seconds=60)))
    waiter.start()
    wait_until(lambda: len(api.get("/v1/queue")["queue"]) == 1, "one waits")
    unheld = token_lease(api, 3 * GIB)
    assert unheld.status == 202 and unheld["queue"]["place"] == 2
    api.post(f"/v1/leases/{first['id']}/release", {})
    waiter.join(60)
    assert replies["held"].status == 201 and replies["held"]["state"] == "offered"
    assert api.post(f"/v1/leases/{replies['held']['id']}/claim", {})["state"] == "active"
    api.post(f"/v1/leases/{replies['held']['id']}/release", {})
    offered = api.lease(unheld["id"])
    assert offered["state"] == "offered" and offered["offer_ends_at"]
    claimed = api.post(f"/v1/leases/{unheld['id']}/claim", {"generation": offered["generation"]})
    assert claimed["state"] == "active" and claimed["generation"] > offered["generation"]
    stale = api.post(f"/v1/leases/{unheld['id']}/renew", {"generation": offered["generation"]})
    assert (stale.status, stale["code"]) == (409, "Stale")


def test_an_offer_lapses_twice_and_the_lease_ends_unclaimed(start_daemon):
    daemon = start_daemon(config=QUICK)
    api = daemon.api()
    first = token_lease(api, 3 * GIB)
    second = token_lease(api, 3 * GIB)
    api.post(f"/v1/leases/{first['id']}/release", {})
    ended = wait_until(lambda: (lease := api.lease(second["id"]))["state"] == "ended" and lease, "it ends")
    assert ended["end_reason"] == "unclaimed"
    codes = [reason["code"] for reason in api.get(f"/v1/leases/{second['id']}/why")["reasons"]]
    assert codes.count("offered") == 2


def test_a_connection_holds_a_lease_and_its_end_ends_it(start_daemon):
    daemon = start_daemon(config=QUICK)
    watcher = daemon.api()
    owner = daemon.api()
    lease = ask(owner)
    assert lease["owner"]["kind"] == "connection"
    second = daemon.api()  # a read with the token keeps the lease alive too
    assert second.lease(lease["id"], Sublet_Lease_Token=lease["token"])["state"] == "active"
    owner.close()
    assert watcher.get(f"/v1/leases/{lease['id']}?wait=1s")["state"] == "active"
    second.close()
    ended = watcher.get(f"/v1/leases/{lease['id']}?wait=30s&since=active")
    assert (ended["state"], ended["end_reason"]) == ("ended", "owner_gone")
    wrong = watcher.get(f"/v1/leases/{lease['id']}", Sublet_Lease_Token="0" * 32)
    assert (wrong.status, wrong["code"]) == (403, "Denied")


def test_a_wait_learns_of_a_forgotten_end(start_daemon):
    """All leases of a program end at once, more than memory keeps: some are only in the store."""
    daemon = start_daemon(config=QUICK + "[limits]\nleases = 2000\nwaiters = 4\n")
    ask(daemon.api(), 3 * GIB, ttl_seconds=600)
    program = daemon.spawn("sleep", "600")
    told = {}

    def wait(name, call):
        told[name] = call(Api(daemon.socket, timeout=3600))  # until all leases are asked for, however long that takes

    def begin(name, call):
        each = threading.Thread(target=wait, args=(name, call))
        each.start()
        return each

    def queued():
        return daemon.get("/v1/status")["leases"]["queued"]

    def get(lease):
        def once_there_is_a_place(api):  # the requests that check whether all of them wait may have taken the place
            while (answer := api.get(f"/v1/leases/{lease}?wait=1h&since=queued")).status == 503:
                pass
            return answer
        return once_there_is_a_place

    owner = {"pid": program.pid}
    waits = [begin("asks", lambda api: ask(api, 2 * GIB, owner=owner, wait_seconds=3600))]
    wait_until(lambda: queued() == 1, "it has asked and waits")
    api = daemon.api()
    leases = [ask(api, 2 * GIB, owner=owner)["id"] for _ in range(1100)]
    some = [leases[0], leases[1], leases[-1]]
    waits += [begin(lease, get(lease)) for lease in some]
    wait_until(lambda: api.get(f"/v1/leases/{leases[2]}?wait=100ms&since=queued").status == 503, "all of them wait")
    program.kill()
    program.wait()
    for each in waits:
        each.join()
    assert set(told) == {"asks", *some}
    assert {answer.status for answer in told.values()} <= {200, 201}, told
    assert {answer["state"] for answer in told.values()} == {"ended"}, told


def test_a_token_lease_expires_unless_renewed(start_daemon):
    daemon = start_daemon(config=QUICK)
    api = daemon.api()
    kept = token_lease(api, ttl=2)
    left = token_lease(api, ttl=2)
    until = kept["expires_at"]
    renewed = api.post(f"/v1/leases/{kept['id']}/renew", {"ttl_seconds": 600})
    assert renewed["expires_at"] > until and renewed["ttl_seconds"] == 600
    ended = api.get(f"/v1/leases/{left['id']}?wait=30s&since=active")
    assert (ended["state"], ended["end_reason"]) == ("ended", "expired")
    assert api.lease(kept["id"])["state"] == "active"


def test_a_process_owns_a_lease_and_its_end_ends_it(start_daemon):
    daemon = start_daemon(config=QUICK)
    api = daemon.api()
    owner = daemon.spawn("sleep", "600")
    lease = ask(api, owner={"pid": owner.pid})
    assert lease["owner"] == {"kind": "process", "pid": owner.pid, "keeper_pid": None, "keeper_killed": False,
                               "cgroup": None}
    daemon.restart()
    api = daemon.api()
    assert api.lease(lease["id"])["state"] == "active"
    owner.kill()
    owner.wait()
    ended = api.get(f"/v1/leases/{lease['id']}?wait=30s&since=active")
    assert ended["state"] == "ended"


def test_a_lease_whose_processes_hold_vram_is_in_use(start_daemon):
    daemon = start_daemon(config=QUICK)
    api = daemon.api()
    program = daemon.spawn("simgpu-load", "--alloc", "1GiB", "--seconds", "600")
    lease = token_lease(api, 2 * GIB)
    api.post(f"/v1/leases/{lease['id']}/attach", {"pid": program.pid})
    wait_until(lambda: api.lease(lease["id"])["used_bytes"] >= GIB, "its use is measured")
    row = next(p for p in api.get("/v1/processes")["processes"] if p["pid"] == program.pid)
    assert (row["lease"], row["link"], row["lease_ended"]) == (lease["id"], "attached", False)
    assert api.get(f"/v1/processes?lease={lease['id']}")["processes"] == [row]
    assert api.get("/v1/processes?lease=lease-99")["processes"] == []
    assert api.get("/v1/processes?lease=mine").status == 400
    assert api.get("/v1/status")["unleased_processes"] == []
    refused = api.post(f"/v1/leases/{lease['id']}/release", {})
    assert (refused.status, refused["code"]) == (409, "InUse")
    daemon.restart()  # the booking is made again
    api = daemon.api()
    wait_until(lambda: api.lease(lease["id"])["used_bytes"] >= GIB, "its use is measured by the new daemon")
    assert api.post(f"/v1/leases/{lease['id']}/release", {"force": True})["state"] == "ended"
    device = api.get("/v1/devices")["devices"][0]  # released, but the bytes are still there and still charged
    assert device["leased_bytes"] + device["other_bytes"] >= GIB
    assert program.poll() is None  # a program that Sublet did not start is never signalled for that
    row, = (p for p in api.get("/v1/processes")["processes"] if p["pid"] == program.pid)
    assert (row["lease"], row["lease_ended"]) == (lease["id"], True)
    assert api.get("/v1/status")["unleased_processes"] == [row], "every list says that it is without a lease"
    assert f"{lease['id']} (ended)" in daemon.cli("proclist").stdout
    assert f"({lease['id']} has ended)" in daemon.cli("status").stdout.split("unleased processes:")[1]
    program.kill()
    wait_until(lambda: api.get("/v1/devices")["devices"][0]["used_bytes"] == 0, "its bytes are measured gone")


# --- idempotency ---

def test_a_retry_gets_the_same_answer_also_after_a_restart(daemon):
    api = daemon.api()
    body = {"vram_bytes": GIB, "ttl_seconds": 600}
    first = api.post("/v1/leases", body, Idempotency_Key="k1")
    second = api.post("/v1/leases", body, Idempotency_Key="k1")
    assert (second.status, second.body) == (first.status, first.body)
    daemon.restart()
    api = daemon.api()
    third = api.post("/v1/leases", body, Idempotency_Key="k1")
    assert (third.status, third.body) == (first.status, first.body)
    assert len(api.get("/v1/leases")["leases"]) == 1
    other = api.post("/v1/leases", dict(body, vram_bytes=2 * GIB), Idempotency_Key="k1")
    assert other.status == 409 and "k1" in other["detail"]
    for _ in range(2):
        assert api.post(f"/v1/leases/{first['id']}/renew", {"ttl_seconds": 900}, Idempotency_Key="k2").status == 200
    assert api.post("/v1/leases", body, Idempotency_Key="x" * 129).status == 400


# --- rights ---

AS_NOBODY = """
import http.client, json, os, socket, sys
os.setgid(int(sys.argv[3])); os.setuid(int(sys.argv[3]))
connection = http.client.HTTPConnection("localhost")
connection.sock = socket.socket(socket.AF_UNIX)
connection.sock.connect(sys.argv[1])
connection.request("GET", sys.argv[2])
reply = connection.getresponse()
print(reply.status, reply.read().decode())
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")
def test_other_users_get_healthz_only(daemon):
    daemon.dir.chmod(0o711)  # only its user may enter a private daemon's directory; this opens the way to the socket
    def as_other(path):
        done = subprocess.run([sys.executable, "-c", AS_NOBODY, str(daemon.socket), path, "12345"], capture_output=True,
                              text=True, check=True)
        return done.stdout
    assert as_other("/healthz").startswith("200")
    refused = as_other("/v1/status")
    assert refused.startswith("403") and "12345" in refused and "the group 'sublet'" in refused
    refused = subprocess.run([sys.executable, "-c", AS_NOBODY, str(daemon.socket), "/v1/status", "65534"],
                             capture_output=True, text=True, check=True).stdout
    assert refused.startswith("403") and "does not identify the caller" in refused


def test_a_user_cannot_fill_the_store_with_ended_leases(start_daemon):
    daemon = start_daemon(config=QUICK + '[store]\nended_per_user = 16\n')
    api = daemon.api()
    last = 0
    for _ in range(60):
        lease = token_lease(api)
        last = lease["id"]
        assert api.post(f"/v1/leases/{last}/release", {})["state"] == "ended"

    def kept():
        return [row["id"] for row in api.get("/v1/leases?all=true&limit=1000")["leases"]]

    wait_until(lambda: 16 <= len(kept()) <= 18, "the oldest are gone")
    assert last in kept() and "lease-1" not in kept()
    assert api.get("/v1/leases/lease-99").status == 404
    daemon.restart()
    api = daemon.api()
    assert 16 <= len(kept()) <= 18 and last in kept()
    assert api.get("/v1/leases/lease-1/why").status == 404


def test_a_second_daemon_on_the_same_directory_is_refused(daemon):
    other = subprocess.run([BIN / "subletd", "--dir", daemon.dir], capture_output=True, text=True, timeout=60)
    assert other.returncode != 0
    assert str(daemon.process.pid) in other.stderr and str(daemon.dir) in other.stderr
    assert daemon.api().get("/healthz").status == 200


# --- the contract itself ---

def test_the_contract_lists_the_codes_of_the_program():
    listed = contract.document()["components"]["schemas"]["Code"]["enum"]
    header = (ROOT / "src" / "base" / "error.h").read_text()
    enumerated = header[header.index("enum class Code {"):header.index("};")]
    names = [line.split(",")[0].strip() for line in enumerated.splitlines()[1:] if line.strip()]
    assert listed == names


def test_garbage_on_the_socket_does_no_harm(shared_daemon):
    for rubbish in (b"\x00" * 100, b"GET\r\n\r\n", b"POST /v1/leases HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
                    b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 5000 + b"\r\n"):
        with socket.socket(socket.AF_UNIX) as raw:
            raw.connect(str(shared_daemon.socket))
            raw.sendall(rubbish)
            raw.shutdown(socket.SHUT_WR)
            try:
                while raw.recv(65536):
                    pass
            except ConnectionResetError:
                pass  # the connection was cut before all of it was read
    assert shared_daemon.api().get("/healthz").status == 200


def test_connections_per_user_are_limited(start_daemon):
    daemon = start_daemon(config='[limits]\nconnections = 8\n')
    for api in daemon.apis:
        api.close()
    sockets = []
    def refused():
        raw = socket.socket(socket.AF_UNIX)
        sockets.append(raw)
        raw.connect(str(daemon.socket))
        raw.settimeout(0.2)
        try:
            return raw.recv(4096).decode()
        except TimeoutError:
            return ""
    said = next(text for text in (refused() for _ in range(20)) if text)
    assert said.startswith("HTTP/1.1 503") and "limits.connections" in said
    for raw in sockets:
        raw.close()
    def serves():
        try:
            return daemon.api().get("/healthz").status == 200
        except (OSError, http.client.HTTPException, AssertionError):
            return False
    wait_until(serves, "there is room again")
