# SPDX-License-Identifier: Apache-2.0
"""The stream of events: its contents, its readers, and where a reader continues."""
import json
import pathlib
import re
import select
import signal

import pytest

from tests.e2e.test_reconcile import FailingStore
from tests.support.events import Stream
from tests.support.sublet import GIB, wait_until
from tests.support.tcp import start_with_tcp

QUICK = '[gpu]\ninterval_idle = "300ms"\ninterval_busy = "200ms"\n'
ASK = {"vram_bytes": GIB, "ttl_seconds": 600, "consumer": "train", "command": "python secret.py"}


def codes(events, lease):
    return [event["code"] for event in events if event.get("lease") == lease["id"]]


def history(daemon, last_id="0", query=""):
    with Stream(daemon, "?follow=false" + query, last_id=last_id) as stream:
        events = []
        while (event := stream.next()) is not None:
            events.append(event)
        return events, stream.last_id


def test_the_events_of_a_lease_are_complete(daemon):
    api = daemon.api()
    with Stream(daemon) as stream:
        first = api.post("/v1/leases", dict(ASK, vram_bytes=3 * GIB))
        second = api.post("/v1/leases", dict(ASK, vram_bytes=3 * GIB))
        api.post(f"/v1/leases/{first['id']}/release", {})
        api.post(f"/v1/leases/{second['id']}/claim", {})
        api.post(f"/v1/leases/{second['id']}/release", {})
        seen = stream.until(lambda event: event.get("lease") == second["id"] and event["state"] == "ended")
    assert codes(seen, first) == ["granted", "ended"]
    assert codes(seen, second) == ["queued", "offered", "claimed", "ended"]
    granted = seen[0]
    assert (granted["state"], granted["user"], granted["consumer"]) == ("active", first["user"], "train")
    assert granted["devices"] == first["devices"] and "granted" in granted["text"]
    assert "secret.py" not in json.dumps(seen)
    assert [event["at"] for event in seen] == sorted(event["at"] for event in seen)


def test_a_stream_continues_after_the_last_event(daemon):
    api = daemon.api()
    with Stream(daemon) as stream:
        first = api.post("/v1/leases", ASK)
        stream.until(lambda event: event.get("lease") == first["id"])
        last_id = stream.last_id
    second = api.post("/v1/leases", ASK)
    daemon.restart()
    api = daemon.api()
    third = api.post("/v1/leases", ASK)
    with Stream(daemon, last_id=last_id) as stream:
        seen = stream.until(lambda event: event.get("lease") == third["id"])
    assert codes(seen, first) == [] and codes(seen, second) == ["granted"] and codes(seen, third) == ["granted"]
    assert [event["state"] for event in seen if event["type"] == "daemon"] == ["started"]  # it was killed
    assert not [event for event in seen if event["type"] == "gap"]
    again, _ = history(daemon, last_id)
    assert again[:len(seen)] == seen  # the same numbers mean the same events


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_clean_stop_is_told_to_a_returning_reader(daemon, number):
    _, last_id = history(daemon)
    daemon.process.send_signal(number)
    assert daemon.process.wait(60) == 0
    assert not daemon.socket.exists()
    daemon.start()
    seen, _ = history(daemon, last_id)
    assert [event["state"] for event in seen if event["type"] == "daemon"] == ["stopped", "started"]


def test_nohup_is_respected(start_daemon):
    daemon = start_daemon(command=["nohup"])
    daemon.process.send_signal(signal.SIGHUP)
    assert daemon.get("/healthz").status == 200
    daemon.process.send_signal(signal.SIGTERM)
    assert daemon.process.wait(60) == 0
    assert "stopped" in daemon.log()


def test_filters_and_signs_of_life(daemon):
    api = daemon.api()
    mine = api.post("/v1/leases", dict(ASK, tag="mine"))
    other = api.post("/v1/leases", ASK)
    api.post(f"/v1/leases/{mine['id']}/release", {})
    seen, _ = history(daemon, query="&lease=mine")
    assert codes(seen, mine) == ["granted", "ended"] and len(seen) == 2
    seen, _ = history(daemon, query="&type=daemon,device")
    assert {event["type"] for event in seen} == {"daemon", "device"}
    with Stream(daemon, "?type=device&heartbeat=1s") as stream:
        assert stream.last_id is None
        api.post(f"/v1/leases/{other['id']}/release", {})
        _, newest = history(daemon)
        wait_until(lambda: stream.sign_of_life() == newest, "a sign of life that is past what was filtered out")
    assert history(daemon, newest)[0] == []  # a reader that comes back with it has missed nothing
    for query, name in (("?type=lase", "lease"), ("?lease=lease-99", "lease-99"), ("?heartbeat=x", "'x'")):
        reply = api.get(f"/v1/events{query}")
        assert reply.status in (400, 404) and name in reply["detail"]
    reply = api.get("/v1/events", Last_Event_ID="nonsense")
    assert reply.status == 400 and "nonsense" in reply["detail"]


def test_an_id_that_is_too_old_or_of_another_store_gives_a_gap(start_daemon):
    daemon = start_daemon(config=QUICK + "[limits]\nevents = 16\n")
    api = daemon.api()
    _, last_id = history(daemon)
    for _ in range(40):
        api.post(f"/v1/leases/{api.post('/v1/leases', ASK)['id']}/release", {})
    daemon.restart()  # the events in memory do not hide that the store has dropped some
    seen, newest = history(daemon, last_id)
    assert seen[0]["type"] == "gap" and seen[0]["after"] == last_id and "no longer stored" in seen[0]["text"]
    assert 16 <= len(seen) - 1 <= 22
    assert history(daemon, "0")[0] == seen[1:]  # a reader that asks for all kept events misses nothing
    life, number = newest.split("-")
    for foreign in (f"00000000-{number}", f"{life}-{int(number) + 1000}"):
        seen, _ = history(daemon, foreign)
        assert seen[0]["type"] == "gap" and "store" in seen[0]["text"] and len(seen) > 10


def test_a_reader_that_is_too_slow_is_dropped_with_a_gap(start_daemon):
    daemon = start_daemon(config=QUICK + '[limits]\nevents = 64\nwrite_time = "5m"\n')
    api = daemon.api()
    slow = Stream(daemon, receive_buffer=4096)
    lease = api.post("/v1/leases", dict(ASK, ttl_seconds=None, owner={"connection": True}))
    with Stream(daemon) as watcher:  # a reader that keeps up sees everything
        for _ in range(500):
            last = api.post("/v1/leases", ASK)
            api.post(f"/v1/leases/{last['id']}/release", {})
            seen = watcher.until(lambda e: e.get("lease") == last["id"] and e["state"] == "ended")
            assert "gap" not in {event["type"] for event in seen}
    seen = []
    ids = []
    while (event := slow.next()) is not None:
        seen.append(event)
        ids.append(int(slow.last_id.split("-")[1]))
    assert [event["type"] for event in seen].count("gap") == 1
    at = next(i for i, event in enumerate(seen) if event["type"] == "gap")
    assert "too slow" in seen[at]["text"] and len(seen) - at <= 257  # the rest of the page, then the end
    # No event before the gap is missing, and many follow it: a reader that keeps up saw a thousand and more.
    assert ids[:at] == list(range(ids[0], ids[0] + at)) and ids[at + 1] > ids[at - 1] + 1
    assert len(seen) < 1000
    assert api.lease(lease["id"])["state"] == "active"
    slow.close()


@pytest.mark.parametrize("way", ["unix", "tcp"])
def test_a_stalled_reader_finds_a_gap(start_daemon, way):
    daemon = start_with_tcp(start_daemon, QUICK + '[limits]\nwrite_time = "500ms"\n')
    api = daemon.api()
    token = api.post("/v1/tokens", {"scope": "read"})["token"] if way == "tcp" else None
    slow = Stream(daemon, receive_buffer=4096, token=token)
    given_up = select.poll()
    given_up.register(slow.socket, select.POLLRDHUP)

    def cut_off():
        for _ in range(50):
            api.post(f"/v1/leases/{api.post('/v1/leases', ASK)['id']}/release", {})
        # A full buffer delays the end of a TCP stream; a Unix socket reports the end at once.
        return given_up.poll(0) if way == "unix" else made() >= 4000

    def made():
        return float(re.search(r"^sublet_events_total (\S+)$", api.get("/metrics").body, re.M)[1])

    wait_until(cut_off, "it is given up", 120)
    numbers, gap = [], None
    while (event := slow.next()) is not None:
        assert gap is None, "nothing follows the gap"
        if event["type"] == "gap":
            gap = event
        else:
            numbers.append(int(slow.last_id.split("-")[1]))
    assert gap and "too slow" in gap["text"] and gap["after"] == slow.last_id
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers))) and numbers[-1] < made()
    slow.close()
    with Stream(daemon, last_id=slow.last_id) as again:  # and with that id the stream continues without a break
        assert again.next()["type"] == "lease" and again.last_id.split("-")[1] == str(numbers[-1] + 1)


def test_devices_and_warnings_begin_and_end(start_daemon):
    daemon = start_daemon("2x4GiB", config=QUICK)
    with Stream(daemon) as stream:
        daemon.ctl("fault", "device-lost", "--device", "1")
        seen = stream.until(lambda e: e["type"] == "warning")
        lost = [event for event in seen if event["type"] == "device"]
        assert [(event["device"], event["state"]) for event in lost][-1][0] == "gpu1" and lost[-1]["state"] != "ok"
        assert seen[-1]["state"] == "begun" and "gpu1" in seen[-1]["text"]
        daemon.ctl("clear")
        seen = stream.until(lambda e: e["type"] == "device" and e["state"] == "ok")
        assert seen[-1]["device"] == "gpu1"


def test_only_durable_events_are_sent(start_daemon):
    daemon = start_daemon(config=QUICK)
    api = daemon.api()
    with Stream(daemon) as stream:
        with FailingStore(daemon, daemon.api()):
            pass
        after = api.post("/v1/leases", ASK)
        seen = stream.until(lambda event: event.get("lease") == after["id"])
    stored, _ = history(daemon)
    listed = {lease["id"] for lease in api.get("/v1/leases?all=true")["leases"]}
    assert {event["lease"] for event in seen if event["type"] == "lease"} <= listed
    end = stored.index(seen[-1]) + 1
    assert stored[end - len(seen):end] == seen
    down = [event for event in seen if event["type"] == "warning" and event["code"] == "store"]
    assert [event["state"] for event in down] == ["begun", "ended"] and down[1]["since"] < down[1]["at"]


def test_the_command_line_follows_over_a_restart(daemon):
    api = daemon.api()
    follower = daemon.spawn("sublet", "events", "--json")
    lines = []
    def until(wanted):
        while not lines or not wanted(lines[-1]):
            line = follower.stdout.readline()
            assert line, follower.stderr.read()
            lines.append(json.loads(line))
    small = {**ASK, "vram_bytes": 1 << 20}  # as many as are needed until the follower has started; all of them fit
    wait_until(lambda: api.post("/v1/leases", small) and select_ready(follower), "a line")
    until(lambda event: event["type"] == "lease")
    daemon.restart()
    last = daemon.api().post("/v1/leases", small)
    until(lambda event: event.get("lease") == last["id"])
    assert [event["state"] for event in lines if event["type"] == "daemon"] == ["started"]
    told = daemon.cli("events", "--no-follow", last["id"], check=0).stdout
    assert told.count("\n") == 1 and f"{last['id']} granted: " in told and "(train, " in told
    assert daemon.cli("events", "--type", "nothing").returncode == 2
    assert daemon.cli("events", "--since", "nothing").returncode == 2


def test_the_command_line_prints_the_id_to_continue_from(daemon):
    first = daemon.api().post("/v1/leases", ASK)
    done = daemon.cli("events", "--no-follow", "--json", check=0)
    told = [json.loads(line) for line in done.stdout.splitlines()]
    last = re.search(r"--since (\S+)\n", done.stderr).group(1)
    assert told[-1]["lease"] == first["id"] and told[-1]["id"] == last == history(daemon)[1]
    assert daemon.cli("events", "--no-follow", "--since", last, check=0).stdout == ""
    second = daemon.api().post("/v1/leases", ASK)
    for since, events in ((last, 1), (told[-2]["id"], 2)):
        further = daemon.cli("events", "--no-follow", "--json", "--since", since, check=0).stdout.splitlines()
        assert len(further) == events and json.loads(further[-1])["lease"] == second["id"]
    assert daemon.cli("events", "--no-follow", "-q", check=0).stderr == ""


def make_events(api, count):
    for _ in range(count // 2):
        api.post(f"/v1/leases/{api.post('/v1/leases', ASK)['id']}/release", {})


def test_a_slow_pager_gets_all_of_it(start_daemon):
    daemon = start_daemon(config=QUICK + '[limits]\nwrite_time = "300ms"\n')
    api = daemon.api()
    make_events(api, 2400)

    def connections():
        return pathlib.Path("/proc/net/unix").read_text().count(str(daemon.socket))

    before = connections()
    pager = daemon.spawn("sublet", "events", "--no-follow", "--json")
    wait_until(lambda: select_ready(pager) and connections() == before, "it is given up")
    out, err = pager.communicate(timeout=60)
    events = [json.loads(line) for line in out.splitlines()]
    assert pager.returncode == 0, err
    assert "gap" in {event["type"] for event in events}, "it was not slow enough"
    stored, last_id = history(daemon)
    while stored[-1]["type"] == "gap":  # the test itself may have been too slow
        more, last_id = history(daemon, last_id)
        stored[-1:] = more
    seen = [event for event in events if event["type"] != "gap"]
    ids = [event.pop("id") for event in seen]
    assert len(seen) >= 2400 and seen == stored[:len(seen)] and len(set(ids)) == len(ids)


def test_a_daemon_that_dies_midstream_is_reported(daemon):
    make_events(daemon.api(), 2400)
    pager = daemon.spawn("sublet", "events", "--no-follow", "--json")
    wait_until(lambda: select_ready(pager), "it has begun")
    daemon.kill()
    out, err = pager.communicate(timeout=60)
    assert pager.returncode == 1 and 0 < out.count("\n") < 2400, err
    assert "closed the stream" in err and "--since " in err, err


def select_ready(process):
    return bool(select.select([process.stdout], [], [], 0)[0])
