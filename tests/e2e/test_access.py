# SPDX-License-Identifier: Apache-2.0
"""The API over TCP, which the configuration turns on and access tokens open; and the secrets in the store."""
import contextlib
import json
import os
import pwd
import subprocess
import time

import pytest

from tests.support.events import Stream
from tests.support.sublet import BIN, GIB, wait_until
from tests.support.system import GROUP, System
from tests.support.tcp import TcpApi, free_port, start_with_tcp

QUICK = ('[gpu]\ninterval_idle = "500ms"\ninterval_busy = "200ms"\n'
         '[lease]\nlinger = "500ms"\nreconnect = "2s"\n')
ASK = {"vram_bytes": GIB, "ttl_seconds": 600}


@pytest.fixture
def served(start_daemon):
    return start_with_tcp(start_daemon, QUICK)


def token(daemon, scope, **more):
    return daemon.api().post("/v1/tokens", {"scope": scope, **more})["token"]


def test_without_a_token_there_is_only_healthz(served):
    stranger = TcpApi(served.port)
    assert stranger.get("/healthz").status == 200
    for wrong in (None, "nonsense", "sublet_1_", "sublet_99_" + "0" * 32):
        stranger.token = wrong
        refused = stranger.get("/v1/status")
        assert (refused.status, refused["code"]) == (401, "Denied") and "sublet token create" in refused["hint"]
        assert refused.headers["WWW-Authenticate"] == "Bearer"
    good = token(served, "read")
    assert TcpApi(served.port, good).get("/v1/status").status == 200
    assert TcpApi(served.port, good[:-1] + ("0" if good[-1] != "0" else "1")).get("/v1/status").status == 401
    scheme = TcpApi(served.port)
    for word, status in (("Basic ", 401), ("Bearer", 401), ("bearer ", 200), ("BEARER  ", 200)):
        assert scheme.get("/v1/status", Authorization=word + good).status == status, word


def test_tcp_is_off_unless_asked_for_and_never_open_to_others(start_daemon):
    daemon = start_daemon()
    listening = subprocess.run(["ss", "-Hltnp"], capture_output=True, text=True) if os.path.exists("/bin/ss") else None
    if listening:
        assert f"pid={daemon.process.pid}," not in listening.stdout
    for address, words in (("0.0.0.0:4711", "other machines"), ("192.0.2.1:4711", "other machines"),
                           ("127.0.0.1", "with a port"), ("127.0.0.1:0", "with a port"),
                           ("127.0.0.1:x", "with a port")):
        (daemon.dir / "sublet.toml").write_text(f'[api]\ntcp = "{address}"\n')
        told = daemon.cli("config", "check", check=78).stderr
        assert "api.tcp" in told and words in told
        refused = subprocess.run([BIN / "subletd", "--dir", daemon.dir], capture_output=True, text=True, timeout=60)
        assert refused.returncode == 78 and words in refused.stderr


def test_a_port_that_is_taken_is_named(served, start_daemon):
    other = start_daemon(config=f'[api]\ntcp = "127.0.0.1:{served.port}"\n', expect_ready=False)
    assert other.process.wait(60) != 0
    assert f"127.0.0.1:{served.port}" in other.log() and "in use" in other.log()


def test_scopes(served):
    own = served.api()
    lease = own.post("/v1/leases", ASK)
    release = f"/v1/leases/{lease['id']}/release"
    read, submit, admin = (TcpApi(served.port, token(served, scope)) for scope in ("read", "submit", "admin"))
    assert read.get("/v1/leases")["leases"][0]["id"] == lease["id"]
    refused = read.post("/v1/leases", ASK)
    assert (refused.status, refused["code"]) == (403, "Denied") and "scope read" in refused["detail"]
    assert read.post(release, {}).status == 403
    mine = submit.post("/v1/leases", ASK)
    assert mine.status == 201 and mine["user"] == lease["user"]  # in the name of the token's maker
    assert submit.post(f"/v1/leases/{mine['id']}/release", {})["state"] == "ended"
    for api in (read, submit):
        assert api.get("/v1/tokens").status == 403 and api.post("/v1/tokens", {"scope": "read"}).status == 403
    assert len(admin.get("/v1/tokens")["tokens"]) == 3
    assert admin.post("/v1/tokens", {"scope": "read"}).status == 201
    assert submit.post("/v1/leases", dict(ASK, tier="critical")).status == 403  # no admin, even if an admin made it
    assert admin.post("/v1/leases", dict(ASK, tier="critical")).status in (201, 202)


def test_no_process_is_owned_over_tcp(served):
    for scope in ("submit", "admin"):
        api = TcpApi(served.port, token(served, scope))
        refused = api.post("/v1/leases", {"vram_bytes": GIB, "owner": {"pid": os.getpid()}})
        assert refused.status == 403 and "process" in refused["detail"]
        lease = api.post("/v1/leases", ASK)
        for what in ({"pid": os.getpid()}, {"cgroup": "/sys/fs/cgroup"}):
            refused = api.post(f"/v1/leases/{lease['id']}/attach", what)
            assert refused.status == 403 and "Unix socket" in refused["hint"]
        api.post(f"/v1/leases/{lease['id']}/release", {})


def test_a_lease_lives_by_a_tcp_connection(served):
    api = TcpApi(served.port, token(served, "submit"))
    lease = api.post("/v1/leases", {"vram_bytes": GIB})
    assert lease["owner"]["kind"] == "connection"
    api.close()
    ended = served.api().get(f"/v1/leases/{lease['id']}?wait=30s&since=active")
    assert (ended["state"], ended["end_reason"]) == ("ended", "owner_gone")


def test_a_token_has_no_more_rights_than_its_owner():
    port, user = free_port(), 2  # "bin", an account of every Debian
    name = pwd.getpwuid(user).pw_name
    system = System(config=f'[api]\ntcp = "127.0.0.1:{port}"\n')

    def members(users, admins):
        """Replaces the account database. The daemon remembers old answers for a minute, or until a restart."""
        (system.home / "group").write_text(f"root:x:0:\ndaemon:x:1:\nsublet:x:{GROUP}:{users}\n"
                                           f"sublet-admin:x:{GROUP + 1}:{admins}\n")
        if system.process:
            system.process.terminate()
            system.process.wait(60)
        system.start_daemon()

    def make(scope, group):
        done = subprocess.run(system.inside(user, "sublet", "token", "create", "--scope", scope, groups=(group,)),
                              env=system.env(), capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return lambda: TcpApi(port, done.stdout.strip())  # a connection does not outlive the daemon

    try:
        system.start_actor()
        members(name, name)
        submit, admin = make("submit", GROUP), make("admin", GROUP + 1)
        assert submit().post("/v1/leases", ASK).status == 201 and admin().get("/v1/tokens").status == 200
        members(name, "")  # no longer an admin
        assert submit().get("/v1/status").status == 200
        refused = admin().get("/v1/status")
        assert (refused.status, refused["code"]) == (403, "Denied") and "no longer an admin" in refused["detail"]
        assert name in refused["detail"] and "'sublet-admin'" in refused["hint"]
        members("", "")
        refused = submit().post("/v1/leases", ASK)
        assert refused.status == 403 and "this daemon" in refused["detail"]
        assert "'sublet'" in refused["hint"] and "token revoke" in refused["hint"]
        assert len(system.get("/v1/leases")["leases"]) == 1
        members(name, name)  # an admin again
        assert submit().get("/v1/status").status == admin().get("/v1/tokens").status == 200
    finally:
        system.close()


def test_another_host_name_is_refused(served):
    api = TcpApi(served.port, token(served, "admin"))
    for name in ("evil.example", f"evil.example:{served.port}", "127.0.0.1.evil.example", ""):
        refused = api.get("/v1/status", Host=name)
        assert refused.status == 403 and "Host" in refused["detail"]
    for name in ("localhost", f"localhost:{served.port}", "127.0.0.1", f"[::1]:{served.port}"):
        reply = api.get("/v1/status", Host=name)
        assert reply.status == 200
        assert not [header for header in reply.headers if header.lower().startswith("access-control")]
        assert "Set-Cookie" not in reply.headers


def test_tokens_are_revoked_expire_and_outlive_a_restart(served):
    api = served.api()
    kept, gone = (api.post("/v1/tokens", {"scope": "read", "name": name}) for name in ("kept", "gone"))
    short = api.post("/v1/tokens", {"scope": "read", "ttl_seconds": 1})
    open_one = TcpApi(served.port, gone["token"])
    assert open_one.get("/v1/status").status == 200
    assert api.call("DELETE", f"/v1/tokens/{gone['id']}")["name"] == "gone"
    assert open_one.connection.sock.recv(1) == b""
    assert TcpApi(served.port, gone["token"]).get("/v1/status").status == 401
    assert api.call("DELETE", f"/v1/tokens/{gone['id']}").status == 404
    wait_until(lambda: TcpApi(served.port, short["token"]).get("/v1/status").status == 401, "it expires")
    served.restart()
    api = served.api()
    assert TcpApi(served.port, kept["token"]).get("/v1/status").status == 200
    assert TcpApi(served.port, gone["token"]).get("/v1/status").status == 401
    assert [entry["name"] for entry in api.get("/v1/tokens")["tokens"]] == ["kept"]
    later = api.post("/v1/tokens", {"scope": "read"})
    assert int(later["id"].split("-")[1]) > int(short["id"].split("-")[1])  # numbers are not given twice


def test_open_calls_end_with_their_token(served):
    """After a token is revoked or has expired, its open calls get nothing new."""
    api = served.api()
    holder = api.post("/v1/leases", dict(ASK, vram_bytes=3 * GIB))
    waiting = api.post("/v1/leases", dict(ASK, vram_bytes=3 * GIB))["id"]
    short, long, other = (api.post("/v1/tokens", {"scope": "read", **ttl}) for ttl in ({"ttl_seconds": 4}, {}, {}))
    with contextlib.ExitStack() as stack:
        def opened(token):
            """A wait and, after its answer, a stream."""
            wait = stack.enter_context(contextlib.closing(TcpApi(served.port).connection))
            wait.request("GET", f"/v1/leases/{waiting}?wait=60s&since=queued",
                         headers={"Authorization": f"Bearer {token['token']}"})
            return wait, stack.enter_context(Stream(served, "?heartbeat=5m", token=token["token"]))
        def answer(wait):
            reply = wait.getresponse()
            return reply.status, json.loads(reply.read())
        (refused, ends), (still, going), (later, last) = map(opened, (long, other, short))
        assert api.call("DELETE", f"/v1/tokens/{long['id']}").status == 200
        for wait, stream, token in ((refused, ends, long), (later, last, short)):
            began = time.monotonic()
            gap = stream.next()
            assert gap["type"] == "gap" and f"{token['id']} was revoked" in gap["text"]
            assert stream.next() is None and time.monotonic() < began + 8  # sooner than the regular check
            status, body = answer(wait)
            assert (status, body["code"]) == (401, "Denied") and token["id"] in body["detail"]
        api.post(f"/v1/leases/{holder['id']}/release", {})
        assert answer(still)[1]["state"] != "queued"
        assert going.until(lambda event: event.get("lease") == waiting)


def test_a_revoked_token_ends_its_connections_and_their_leases(served):
    api = served.api()
    gone, other = (api.post("/v1/tokens", {"scope": "submit"}) for _ in range(2))
    held, kept = (TcpApi(served.port, one["token"]) for one in (gone, other))
    lease, stays = (one.post("/v1/leases", {"vram_bytes": GIB}) for one in (held, kept))
    assert lease["state"] == stays["state"] == "active" and lease["owner"]["kind"] == "connection"
    # the last token that this connection showed
    assert held.get("/v1/status", Authorization=f"Bearer {other['token']}").status == 200
    waits = TcpApi(served.port, gone["token"]).connection
    waits.request("POST", "/v1/leases", body=json.dumps({"vram_bytes": 3 * GIB, "wait_seconds": 60}),
                  headers={"Authorization": f"Bearer {gone['token']}"})
    wait_until(lambda: len(api.get("/v1/queue")["queue"]) == 1, "it waits")
    assert api.call("DELETE", f"/v1/tokens/{gone['id']}").status == 200
    reply = waits.getresponse()
    assert reply.status == 401 and reply.headers["Connection"] == "close"
    reply.read()
    assert held.connection.sock.recv(1) == b""  # closed without a request
    wait_until(lambda: api.lease(lease["id"])["end_reason"] == "owner_gone", "nobody holds it")
    wait_until(lambda: not api.get("/v1/queue")["queue"], "nobody waits")
    assert kept.get("/v1/status").status == 200
    assert api.lease(stays["id"])["state"] == "active"


def test_expired_tokens_do_not_count(served):
    api = served.api()
    for _ in range(100):
        last = api.post("/v1/tokens", {"scope": "read", "ttl_seconds": 1})
    wait_until(lambda: TcpApi(served.port, last["token"]).get("/v1/status").status == 401, "they expire")
    for _ in range(100):
        assert api.post("/v1/tokens", {"scope": "read"}).status == 201
    refused = api.post("/v1/tokens", {"scope": "read"})
    assert refused["code"] == "Quota" and "has 100 tokens" in refused["detail"]


def test_no_secret_is_in_the_store(served):
    api = served.api()
    lease = api.post("/v1/leases", ASK, Idempotency_Key="a-key-of-a-lease")
    access = api.post("/v1/tokens", {"scope": "admin"}, Idempotency_Key="a-key-of-a-token")
    plain = api.post("/v1/leases", ASK)
    served.restart()  # data of the store's log is in its file, or the other way round
    api = served.api()
    again = api.post("/v1/leases", ASK, Idempotency_Key="a-key-of-a-lease")
    assert (again.status, again.body) == (lease.status, lease.body)
    again = api.post("/v1/tokens", {"scope": "admin"}, Idempotency_Key="a-key-of-a-token")
    assert (again.status, again.body) == (access.status, access.body)
    assert TcpApi(served.port, again["token"]).get("/v1/status").status == 200
    assert api.lease(lease["id"], Sublet_Lease_Token=lease["token"])["state"] == "active"
    files = b"".join(path.read_bytes() for path in (served.dir / "state").glob("store.db*"))
    assert lease["id"].removeprefix("lease-").encode() in files
    for secret in (lease["token"], plain["token"], access["token"].split("_")[2], "a-key-of-a-lease"):
        assert secret.encode() not in files


def test_an_unusable_token_is_reported(daemon, served, tmp_path):
    unserved = daemon.cli("token", "create", "--scope", "read", "--file", tmp_path / "unserved", check=0)
    assert "cannot be used yet" in unserved.stderr and "`api.tcp`" in unserved.stderr
    assert daemon.get("/v1/status")["daemon"]["tcp"] is None
    assert "cannot be used yet" not in served.cli("token", "create", "--scope", "read", check=0).stderr
    assert served.api().get("/v1/status")["daemon"]["tcp"] == f"127.0.0.1:{served.port}"


def test_token_errors_name_the_flags(daemon):
    done = daemon.cli("token", "create", "--name", "x" * 300)
    assert done.returncode == 2 and "--name is " in done.stderr, done.stderr
    assert "see: sublet token create --help" in done.stderr


def test_the_command_line_over_tcp(served, tmp_path):
    file = tmp_path / "token"
    made = served.cli("token", "create", "--scope", "submit", "--name", "ci", "--file", file, check=0)
    assert made.stdout == "token-1\n" and "SUBLET_TOKEN_FILE" in made.stderr
    assert file.stat().st_mode & 0o777 == 0o600
    assert served.cli("token", "create", "--file", file).returncode == 2  # it is not overwritten
    over = dict(SUBLET_HOST=f"http://127.0.0.1:{served.port}", SUBLET_TOKEN_FILE=str(file))
    assert served.cli("status", check=0, **over).stdout
    assert json.loads(served.cli("ps", "--json", check=0, **over).stdout) == {"leases": [], "next": None}
    refused = served.cli("run", "--vram", "1GiB", "--", "true", **over)
    assert refused.returncode == 77 and "over TCP" in refused.stderr and "unix://" in refused.stderr
    assert served.cli("run", "--vram", "1GiB", "--dry-run", "--", "true", **over).returncode == 0
    assert served.api().get("/v1/leases?all=true")["leases"] == []  # the daemon got no request
    assert served.cli("token", "ls", **over).returncode == 77
    listed = served.cli("token", "ls", check=0).stdout
    assert "token-1" in listed and "ci" in listed and file.read_text().strip() not in listed
    shown = served.cli("token", "create", check=0)
    assert shown.stdout.startswith("sublet_") and shown.stdout.count("\n") == 1
    served.cli("token", "revoke", "token-1", check=0)
    assert served.cli("status", **over).returncode == 77
    assert served.cli("token", "revoke", "token-1").returncode == 4
    assert served.cli("status", **dict(over, SUBLET_HOST="http://192.0.2.1:80")).returncode == 2
    assert served.cli("status", **dict(over, SUBLET_TOKEN_FILE="/nonexistent")).returncode != 0
