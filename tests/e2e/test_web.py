# SPDX-License-Identifier: Apache-2.0
"""The page for browsers: `sublet web` and the page of api.tcp, without a browser: admission, rights, the files that
are sent, and bad input.
"""
import json
import re
import signal
import socket

import pytest

from tests.support.events import Stream
from tests.support.sublet import GIB, wait_until
from tests.support.tcp import free_port, start_with_tcp
from tests.support.web import WEB, Web, call

ASK = {"vram_bytes": GIB, "ttl_seconds": 600}
FIRST_VIEW = 150 * 1024  # bytes, compressed


@pytest.fixture
def web(daemon):
    return Web(daemon)


def files_of(web):
    """Returns the answers of all files of the page by path, found as a browser finds them."""
    found, todo = {}, ["/"]
    while todo:
        path = todo.pop()
        if path in found:
            continue
        found[path] = answer = call(web.port, "GET", path)
        assert answer.status == 200, path
        here = path.rsplit("/", 1)[0] + "/"
        named = re.findall(r'(?:href|src)="([^"#]+)"', answer.text) if path == "/" else \
            re.findall(r'(?:from|import)\s*\(?"(\.[^"]+)"', answer.text)
        for name in named:
            words = []
            for word in (here + name).split("/"):
                if word == "..":
                    words.pop()
                elif word != ".":
                    words.append(word)
            todo.append("/".join(words))
    return found


# --- admission ---

def test_the_address_works_once(web):
    assert web.get("/v1/status").status == 401
    wrong = web.call("POST", "/web/session", {"secret": "0" * 32})
    assert (wrong.status, wrong["code"]) == (403, "Denied")
    cookie = web.enter().headers["Set-Cookie"]
    assert cookie.endswith("; Path=/; HttpOnly; SameSite=Strict")
    assert web.get("/v1/status")["caller"]["admin"] is True
    spent = call(web.port, "POST", "/web/session", {"secret": web.secret})
    assert spent.status == 403 and "works once" in spent["detail"]


def test_cookie_and_key_are_both_needed(web):
    web.enter()
    for missing in ("Cookie", "Authorization"):
        given = {name: value for name, value in web.pass_headers.items() if name != missing}
        refused = call(web.port, "GET", "/v1/status", **given)
        assert refused.status == 401 and refused["by"] == "sublet web", "a cookie goes to all ports of a host"
    other = web.pass_headers["Cookie"].replace(f"-{web.port}=", "-1=")
    assert call(web.port, "GET", "/v1/status", **{**web.pass_headers, "Cookie": other}).status == 401
    among = f"a=b; {web.pass_headers['Cookie']}; c=d"
    assert call(web.port, "GET", "/v1/status", **{**web.pass_headers, "Cookie": among}).status == 200


@pytest.mark.parametrize("headers", [
    {"Host": "evil.example"}, {"Host": "evil.example:80"}, {"Host": "127.0.0.1.evil.example"},
    {"Origin": "http://evil.example"}, {"Origin": "null"}, {"Origin": "http://127.0.0.1:1"},
    {"Sec_Fetch_Site": "cross-site"}, {"Sec_Fetch_Site": "same-site"}])
def test_requests_of_other_pages_are_refused(web, headers):
    web.enter()
    for method, target in (("GET", "/v1/status"), ("POST", "/v1/leases"), ("POST", "/web/session")):
        refused = web.call(method, target, ASK if method == "POST" else None, **headers)
        assert (refused.status, refused["code"]) == (403, "Denied"), (method, target)
    assert web.get("/v1/leases")["leases"] == []


def test_a_tunnel_may_have_another_port(web):
    web.enter()
    for host in ("localhost:9000", "127.0.0.1:9000", "[::1]:9000"):
        assert web.get("/v1/status", Host=host, Origin=f"http://{host}", Sec_Fetch_Site="same-origin").status == 200


def test_calls_have_the_rights_of_the_user(web, daemon):
    web.enter()
    lease = web.call("POST", "/v1/leases", ASK, Origin=f"http://127.0.0.1:{web.port}")
    assert lease.status == 201
    assert web.get(f"/v1/leases/{lease['id']}")["uid"] == daemon.get("/v1/status")["caller"]["uid"]
    assert web.call("POST", f"/v1/leases/{lease['id']}/release", {}).status == 200


def test_other_users_get_the_page_and_nothing_else(web):
    page = call(web.port, "GET", "/")
    assert page.status == 200 and "<title>Sublet</title>" in page.text
    for target in ("/v1/leases", "/metrics", "/healthz", "/v1/events", "/page", "/nothing"):
        assert call(web.port, "GET", target).status == 401, target


# --- the proxy ---

def test_the_stream_of_events_comes_as_it_happens(web, daemon):
    web.enter()
    with socket.create_connection(("127.0.0.1", web.port), timeout=60) as browser:
        head = "".join(f"{name}: {value}\r\n" for name, value in web.pass_headers.items())
        browser.sendall(f"GET /v1/events?readings=true HTTP/1.1\r\nHost: 127.0.0.1\r\n{head}\r\n".encode())
        stream = browser.makefile()
        assert "200" in stream.readline()
        daemon.api().post("/v1/leases", ASK)
        seen = next(line for line in stream if line.startswith("data: "))
        assert json.loads(seen[6:])["lease"] == "lease-1"


def test_readings_come_with_the_events_when_figures_change(daemon):
    stream = Stream(daemon, "?readings=true")
    daemon.spawn("sublet", "run", "--vram", "2GiB", "--", "simgpu-load", "--alloc", "1GiB", "--seconds", "60")
    seen = stream.until(lambda event: event["type"] == "reading" and
                        any(one["used_bytes"] >= GIB for one in event["leases"]))
    assert seen[-1]["leases"][0]["lease"] == "lease-1"
    assert any(event["devices"] for event in seen if event["type"] == "reading")
    without = Stream(daemon)
    daemon.api().post("/v1/leases/lease-1/release", {"stop": True})
    ended = without.until(lambda event: event["type"] == "lease" and event["state"] == "ended")
    assert "reading" not in {event["type"] for event in ended}
    refused = daemon.api().get("/v1/events?readings=perhaps")
    assert refused.status == 400
    stream.socket.close(), without.socket.close()


def test_a_restart_of_the_daemon_is_outlived(web, daemon):
    web.enter()
    daemon.kill()
    away = web.get("/v1/status")
    assert (away.status, away["code"], away["by"]) == (503, "Unavailable", "sublet web")
    daemon.start()
    assert web.get("/v1/status").status == 200


def test_a_program_has_the_surroundings_of_the_command(daemon, tmp_path):
    env = daemon.env(HOME=str(tmp_path), SECRET="x")
    web = Web(daemon, env=env, cwd=tmp_path)
    assert web.call("POST", "/web/program", {"line": "true"}).status == 401
    web.enter()
    told = web.call("POST", "/web/line", {"line": "python3 train.py --epochs 3"})
    assert (told["tag"], told["directory"]) == ("train.py", str(tmp_path)) and "environment" not in told.body
    ask = {"line": "sleep 60", "vram_bytes": GIB, "tag": "night", "restart": "always"}
    assert web.call("POST", "/web/program", ask).status == 201
    program = daemon.get("/v1/programs/night")
    assert (program["command"], program["restart"], program["directory"]) == ("sleep 60", "always", str(tmp_path))
    assert f"HOME={tmp_path}" in program["environment"] and "SECRET=x" not in program["environment"]
    for body, word in (({"line": " "}, "line is empty"), ("nonsense", "line is empty"),
                       ({"line": "sleep 60"}, "vram_bytes is missing"), ({**ask, "tag": "a/b"}, "printable")):
        refused = web.call("POST", "/web/program", body)
        assert refused.status == 400 and word in refused["detail"], body


def test_a_daemon_behind_a_token_is_reached_too(start_daemon, tmp_path):
    served = start_with_tcp(start_daemon)
    file = tmp_path / "token"
    served.cli("token", "create", "--scope", "read", "--file", file, check=0)
    env = served.env(SUBLET_HOST=f"http://127.0.0.1:{served.port}", SUBLET_TOKEN_FILE=str(file))
    web = Web(served, env=env)
    web.enter()
    assert web.get("/v1/status")["caller"]["scope"] == "read"
    refused = web.call("POST", "/v1/leases", ASK)
    assert refused.status == 403 and "scope read" in refused["detail"]


# --- the files ---

def test_every_file_is_guarded_and_compressed(web):
    for path, answer in files_of(web).items():
        policy = answer.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy and "unsafe" not in policy, path
        assert "script-src 'self'" in policy and "require-trusted-types-for 'script'" in policy
        assert answer.headers["Content-Encoding"] == "gzip" and answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Referrer-Policy"] == "no-referrer" and answer.headers["X-Frame-Options"] == "DENY"
        cached = answer.headers["Cache-Control"]
        assert cached == "no-cache" if path == "/" else "immutable" in cached, path


def test_the_page_is_small_and_names_no_other_host(web):
    files = files_of(web)
    assert {"words.js", "cards.js", "preact.js", "uplot.js", "page.css"} <= {path.rsplit("/", 1)[-1] for path in files}
    assert sum(answer.sent_bytes for answer in files.values()) <= FIRST_VIEW
    for path, answer in files.items():
        hosts = set(re.findall(r"(?:https?:)?//([a-z0-9-]+(?:\.[a-z0-9-]+)+)", answer.text))
        assert hosts <= {"www.w3.org"}, f"{path} names {hosts}"  # the names of two vocabularies
    first = files["/"].text
    assert not re.search(r"<script(?![^>]*\ssrc=)|<style|\son[a-z]+=|style=", first), "the policy would refuse it"


def test_all_files_of_the_folder_are_used(web):
    sent = {path.split("/", 3)[-1] for path in files_of(web) if path != "/"} | {"index.html"}
    there = {str(path.relative_to(WEB)) for path in WEB.rglob("*") if path.suffix in (".js", ".css", ".svg", ".html")}
    assert sent == there


def test_a_file_of_another_version_is_not_found(web):
    path = next(path for path in files_of(web) if path.endswith("/page.js"))
    old = call(web.port, "GET", re.sub("/page/[0-9a-f]+/", "/page/0123456789abcdef/", path))
    assert old.status == 404 and "reload the page" in old["hint"]
    assert call(web.port, "GET", path.replace("page.js", "nothing.js")).status == 404


def test_a_daemon_serves_the_page_over_tcp(start_daemon):
    served = start_with_tcp(start_daemon)
    page = call(served.port, "GET", "/")
    assert page.status == 200 and "Content-Security-Policy" in page.headers
    head = call(served.port, "HEAD", "/")
    assert head.status == 200 and head.headers["Content-Length"] == str(page.sent_bytes)
    assert call(served.port, "GET", "/", Host="evil.example").status == 403
    token = served.api().post("/v1/tokens", {"scope": "read"})["token"]
    own = {"Authorization": f"Bearer {token}"}
    assert call(served.port, "GET", "/v1/status", **own, Origin=f"http://127.0.0.1:{served.port}").status == 200
    refused = call(served.port, "GET", "/v1/status", **own, Origin="http://evil.example")
    assert refused.status == 403 and "another server" in refused["detail"]


# --- bad input ---

def raw(port, text):
    with socket.create_connection(("127.0.0.1", port), timeout=60) as browser:
        browser.sendall(text)
        browser.shutdown(socket.SHUT_WR)
        return browser.makefile("rb").read()


@pytest.mark.parametrize("text, status", [
    (b"nonsense\r\n\r\n", 400),
    (b"GET / HTTP/2\r\n\r\n", 400),
    (b"PUT / HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
    (b"GET http://evil.example/ HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
    (b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n", 400),
    (b"GET / HTTP/1.1\r\nHost: localhost\r\nbad header: x\r\n\r\n", 400),
    (b"GET / HTTP/1.1\r\nHost: local\x01host\r\n\r\n", 400),
    (b"POST /web/session HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
    (b"POST /web/session HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n", 400),
    (b"POST /web/session HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999\r\n\r\n", 413),
    (b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 4000, 431),
    (b"GET / HTTP/1.1\r\n\r\n", 403),
])
def test_what_is_no_request_of_a_browser_is_refused(web, text, status):
    answer = raw(web.port, text)
    assert answer.startswith(f"HTTP/1.1 {status} ".encode()), answer
    assert json.loads(answer.split(b"\r\n\r\n", 1)[1])["hint"]


@pytest.mark.parametrize("text", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: localhost\r\n"])
def test_a_browser_that_leaves_early_gets_no_answer(web, text):
    assert raw(web.port, text) == b""
    assert call(web.port, "GET", "/").status == 200


def test_the_verb_says_what_is_wrong(daemon):
    port = free_port()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen()
        failed = daemon.cli("web", "--no-open", "--port", port, check=1)
        assert f"127.0.0.1:{port}" in failed.stderr and "choose another port" in failed.stderr
    assert "--port" in daemon.cli("web", "--port", "0", check=2).stderr
    daemon.kill()
    daemon.cli("web", "--no-open", check=69)


def test_a_signal_ends_it_and_the_address_is_for_programs_too(daemon):
    port = free_port()
    process = daemon.spawn("sublet", "web", "--no-open", "--json", "--port", str(port))
    told = json.loads(process.stdout.readline())
    assert told["port"] == port and told["address"].startswith(f"http://127.0.0.1:{port}/#secret=")
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == -signal.SIGINT


def test_the_browser_is_led_by_a_file_of_the_user_alone(daemon, tmp_path):
    """The command line of a browser can be read by all users, and the secret must not be on it."""
    (tmp_path / "bin").mkdir()
    opener = tmp_path / "bin" / "xdg-open"
    opener.write_text(f'#!/bin/sh\n( echo "$@"; stat -c %a "$1"; cat "$1" ) > {tmp_path}/told.new\n'
                      f'mv {tmp_path}/told.new {tmp_path}/told\n')
    opener.chmod(0o755)
    env = daemon.env(DISPLAY=":9", XDG_RUNTIME_DIR=str(tmp_path))
    env["PATH"] = f"{tmp_path / 'bin'}:{env['PATH']}"
    process = daemon.spawn("sublet", "web", env=env)
    address = process.stdout.readline().strip()
    wait_until((tmp_path / "told").exists, "the browser is opened")
    arguments, mode, text = (tmp_path / "told").read_text().split("\n", 2)
    assert "secret" not in arguments and mode == "600" and address in text
    process.send_signal(signal.SIGTERM)
    process.wait(60)
    assert not list(tmp_path.glob("*.html"))


def test_the_build_has_the_files_of_the_folder(web):
    """A file of web/ that was changed after the build is no file of this page."""
    for path, answer in files_of(web).items():
        if path != "/":
            assert answer.text.encode() == (WEB / path.split("/", 3)[-1]).read_bytes(), path
