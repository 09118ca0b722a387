# SPDX-License-Identifier: Apache-2.0
"""Webhooks that are told of events: formats, filters, signatures, and targets that misbehave."""
import hashlib
import hmac
import json
import socket
import ssl
import subprocess

import pytest

from tests.e2e.test_look import alone
from tests.support.receiver import Receiver
from tests.support.sublet import GIB, Daemon, wait_until

BASE = '[gpu]\ninterval_idle = "1s"\n'
ASK = {"vram_bytes": GIB, "ttl_seconds": 600}


@pytest.fixture
def receiver():
    receiver = Receiver()
    yield receiver
    receiver.close()


@pytest.fixture
def start():
    daemons = []

    def begin(*targets, base=BASE):
        text = base
        for target in targets:
            text += "[[events.webhook]]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in target.items())
        daemons.append(Daemon("1x4GiB", config=text).start())
        return daemons[-1]

    yield begin
    for daemon in daemons:
        daemon.close()


def leases_in(receiver):
    return [json.loads(body) for body in receiver.bodies() if json.loads(body)["type"] == "lease"]


def delivered(daemon, name, result="sent"):
    line = f'sublet_events_delivered_total{{target="{name}",result="{result}"}} '
    return next(int(float(row[len(line):])) for row in daemon.get("/metrics").body.splitlines() if row.startswith(line))


def test_every_event_arrives_once_and_in_order(start, receiver):
    daemon = start({"name": "all", "url": receiver.url + "/hook?x=1", "secret": "a \"key\""})
    api = daemon.api()
    for _ in range(3):
        lease = api.post("/v1/leases", ASK)
        api.post(f"/v1/leases/{lease['id']}/release", {})
    stored = [event for event in api.get("/v1/events?follow=false", Last_Event_ID="0").body if event["type"] != "gap"]
    wait_until(lambda: len(receiver.calls) >= len(stored), "all events arrive")
    ids = [json.loads(body)["id"] for body in receiver.bodies()]
    numbers = [int(name.split("-")[1]) for name in ids]
    assert numbers == sorted(set(numbers)) and [event["code"] for event in leases_in(receiver)].count("granted") == 3
    assert any(json.loads(body)["type"] == "daemon" for body in receiver.bodies()), "the start is an event too"
    for path, headers, body in receiver.calls:
        sign = "sha256=" + hmac.new(b'a "key"', body.encode(), hashlib.sha256).hexdigest()
        assert path == "/hook?x=1" and headers["Sublet-Signature"] == sign
        assert headers["Sublet-Delivery"] == json.loads(body)["id"] and headers["Content-Type"] == "application/json"
    assert delivered(daemon, "all") == len(receiver.calls) and delivered(daemon, "all", "dropped") == 0


def test_filters_choose_by_type_user_and_tier(start, receiver):
    other = Receiver()
    try:
        daemon = start({"name": "spot", "url": receiver.url, "tier": "spot"},
                       {"name": "warnings", "url": other.url, "types": "warning,device"})
        api = daemon.api()
        api.post("/v1/leases", ASK)
        spot = api.post("/v1/leases", {**ASK, "tier": "spot"})
        daemon.ctl("fault", "nvml-error")
        wait_until(lambda: leases_in(receiver) and "warning" in str(other.bodies()), "both are told")
        assert {event["lease"] for event in leases_in(receiver)} == {spot["id"]}
        assert {json.loads(body)["type"] for body in receiver.bodies()} == {"lease"}
        assert {json.loads(body)["type"] for body in other.bodies()} <= {"warning", "device"}
    finally:
        other.close()


@pytest.mark.parametrize("form", ["slack", "discord", "ntfy"])
def test_people_read_a_sentence(start, receiver, form):
    daemon = start({"name": "people", "url": receiver.url, "format": form, "types": "lease"})
    hostile = "<b>&\"'" + "\\"
    lease = daemon.api().post("/v1/leases", {**ASK, "consumer": hostile})
    assert lease.status == 201
    wait_until(lambda: receiver.calls, "it is told")
    _, headers, body = receiver.calls[0]
    text = {"slack": lambda: json.loads(body)["text"], "discord": lambda: json.loads(body)["content"],
            "ntfy": lambda: body}[form]()
    assert text.startswith(f"{socket.gethostname()}: {lease['id']} granted: ")
    shown = hostile.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;") if form == "slack" else hostile
    assert shown in text
    if form == "ntfy":
        assert headers["Title"] == f"Sublet on {socket.gethostname()}: {lease['id']} granted"
        assert headers["Priority"] == "default"


def test_a_target_that_fails_gets_its_events_later_in_order(start, receiver):
    receiver.first = [500, 503, 429]
    daemon = start({"name": "bot", "url": receiver.url, "types": "lease"})
    lease = daemon.api().post("/v1/leases", ASK)
    wait_until(lambda: "events-target" in str(daemon.get("/v1/status")["warnings"]), "three failures are shown")
    [warning] = [row for row in daemon.get("/v1/status")["warnings"] if row["code"] == "events-target"]
    assert "events are not delivered to bot: 127.0.0.1:" in warning["text"] and "status 429" in warning["text"]
    assert "events are not delivered to bot" in daemon.cli("doctor").stdout
    wait_until(lambda: delivered(daemon, "bot") == 1, "it is repeated until it is taken", 30)
    assert len({body for body in receiver.bodies()}) == 1 and leases_in(receiver)[0]["lease"] == lease["id"]
    wait_until(lambda: "events-target" not in str(daemon.get("/v1/status")["warnings"]), "the warning ends")


@pytest.mark.parametrize("status", [302, 404])
def test_a_refused_event_is_dropped_and_counted(start, receiver, status):
    elsewhere = Receiver()
    try:
        receiver.first, receiver.headers = [status], {"Location": elsewhere.url}
        daemon = start({"name": "bot", "url": receiver.url, "types": "lease"})
        api = daemon.api()
        api.post("/v1/leases", ASK)
        wait_until(lambda: delivered(daemon, "bot", "dropped") == 1, "it is dropped")
        second = api.post("/v1/leases", ASK)
        wait_until(lambda: delivered(daemon, "bot") == 1, "the next arrives")
        assert leases_in(receiver)[-1]["lease"] == second["id"] and len(receiver.calls) == 2
        assert elsewhere.calls == [], "redirects are not followed"
    finally:
        elsewhere.close()


def test_a_target_that_hangs_delays_nobody(start, receiver):
    good = Receiver()
    try:
        receiver.hang.set()
        daemon = start({"name": "hangs", "url": receiver.url, "types": "lease"},
                       {"name": "good", "url": good.url, "types": "lease"})
        api = daemon.api()
        for _ in range(20):
            lease = api.post("/v1/leases", ASK)
            api.post(f"/v1/leases/{lease['id']}/release", {})
        wait_until(lambda: len(leases_in(good)) >= 40, "the other target has all")
        assert len(receiver.calls) == 1
    finally:
        good.close()


def test_events_of_a_time_without_a_receiver_arrive_when_it_is_back(start):
    gone = Receiver()
    url, port = gone.url, gone.server.server_port
    gone.close()
    daemon = start({"name": "bot", "url": url, "types": "lease"})
    lease = daemon.api().post("/v1/leases", ASK)
    wait_until(lambda: "Connection refused" in str(daemon.get("/v1/status")["warnings"]), "nobody listens")
    back = Receiver(port)
    try:
        wait_until(lambda: leases_in(back), "it is told", 30)
        assert leases_in(back)[0]["lease"] == lease["id"]
    finally:
        back.close()


def test_a_burst_arrives_whole(start, receiver):
    daemon = start({"name": "all", "url": receiver.url, "types": "lease"})
    api = daemon.api()
    for _ in range(400):
        lease = api.post("/v1/leases", ASK)
        api.post(f"/v1/leases/{lease['id']}/release", {})
    wait_until(lambda: len(leases_in(receiver)) == 800, "800 events, more than are in memory", 60)
    numbers = [int(event["id"].split("-")[1]) for event in leases_in(receiver)]
    assert numbers == sorted(numbers)


def test_a_large_answer_takes_the_event(start, receiver):
    receiver.body = b"x" * 200_000
    daemon = start({"name": "bot", "url": receiver.url, "types": "lease"})
    daemon.api().post("/v1/leases", ASK)
    wait_until(lambda: delivered(daemon, "bot") == 1, "it is taken")
    assert len(receiver.calls) == 1


def test_a_good_test_ends_the_warning(start, receiver):
    receiver.status = 404
    daemon = start({"name": "bot", "url": receiver.url, "types": "lease"})
    daemon.api().post("/v1/leases", ASK)
    wait_until(lambda: "events-target" in str(daemon.get("/v1/status")["warnings"]), "the refusal is shown")
    receiver.status = 200
    assert daemon.cli("events", "--test-target", "bot").returncode == 0
    assert "events-target" not in str(daemon.get("/v1/status")["warnings"])


def test_https_needs_a_certificate_that_is_valid_for_the_host(start, tmp_path, monkeypatch):
    def certificate(name, host):
        key, file = tmp_path / f"{name}.key", tmp_path / f"{name}.pem"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj",
                        f"/CN={name}", "-addext", f"subjectAltName=IP:{host}", "-keyout", key, "-out", file],
                       check=True, capture_output=True)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file, key)
        return context, file
    good, trusted = certificate("good", "127.0.0.1")
    wrong, _ = certificate("wrong", "127.0.0.9")
    (tmp_path / "all.pem").write_text(trusted.read_text() + (tmp_path / "wrong.pem").read_text())
    unknown, _ = certificate("unknown", "127.0.0.1")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "all.pem"))
    receivers = {name: Receiver(tls=context) for name, context in
                 (("good", good), ("wrong", wrong), ("unknown", unknown))}
    try:
        daemon = start(*({"name": name, "url": one.url, "types": "verdict"} for name, one in receivers.items()))
        assert daemon.cli("events", "--test-target", "good").returncode == 0
        for name in ("wrong", "unknown"):
            refused = daemon.cli("events", "--test-target", name)
            assert refused.returncode == 1 and "certificate" in refused.stderr, refused.stderr
            assert receivers[name].calls == []
    finally:
        for one in receivers.values():
            one.close()


def test_a_test_event_says_what_happens(start, receiver):
    daemon = start({"name": "bot", "url": receiver.url, "types": "warning"})
    sent = daemon.cli("events", "--test-target", "bot")
    assert sent.returncode == 0 and sent.stdout == "bot took a test event\n"
    assert [json.loads(body)["type"] for body in receiver.bodies()] == ["test"], "no filter applies"
    receiver.status = 404
    refused = daemon.cli("events", "--test-target", "bot")
    assert refused.returncode == 1 and "answers with status 404" in refused.stderr
    assert json.loads(daemon.cli("events", "--test-target", "bot", "--json").stdout)["sent"] is False
    unknown = daemon.cli("events", "--test-target", "bott")
    assert unknown.returncode == 4 and "the targets are: bot" in unknown.stderr


@pytest.mark.parametrize("line, complaint", [
    ('url = "gopher://h"', "http://"), ('url = "http://h"\ntypes = "leese"', "there is no event type 'leese'"),
    ('url = "http://user:geheim@h"', "a user or a password"), ('url = "http://h"\nformat = "xml"', "json, ntfy, slack"),
    ('url = "http://h"\ntier = "first"', "critical, interactive"),
])
def test_a_wrong_target_refuses_the_start(line, complaint):
    daemon = Daemon("1x4GiB", config=f'[[events.webhook]]\nname = "bot"\n{line}\n')
    try:
        daemon.start(expect_ready=False)
        daemon.process.wait(30)
        assert daemon.process.returncode == 78 and complaint in daemon.log()
        assert "geheim" not in daemon.log()
    finally:
        daemon.close()


def test_show_hides_what_is_secret(tmp_path):
    (tmp_path / "sublet.toml").write_text(
        '[events]\nredis = "redis://ana:geheim@127.0.0.1:6379/2"\n[[events.webhook]]\nname = "bot"\n'
        'url = "https://hooks.example/T0/geheim"\nsecret = "geheim"\n')
    for words in (["config", "show"], ["config", "show", "--json"], ["config", "show", "--origin"]):
        shown = alone(*words, "--file", str(tmp_path / "sublet.toml"))
        assert shown.returncode == 0 and "geheim" not in shown.stdout, shown
        assert "redis://***@127.0.0.1:6379/***" in shown.stdout and "https://hooks.example/***" in shown.stdout
