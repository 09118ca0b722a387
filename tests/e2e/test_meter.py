# SPDX-License-Identifier: Apache-2.0
"""The meter: its amounts are those of the event stream, and its faults are no faults of leases."""
import collections
import contextlib
import datetime
import re
import shlex
import shutil
import subprocess

import pytest

from tests.support.contract import ROOT
from tests.support.machine import has_slept, with_sleep
from tests.support.sublet import GIB, MIB, Daemon, wait_until

QUICK = '[gpu]\ninterval_idle = "300ms"\ninterval_busy = "200ms"\n'
HOLDS = ("offered", "active", "pausing", "resuming")


def at_ms(text):
    return round(datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() * 1000)


def integrate(events, key, until=None):
    """Adds up MiB·s held, and seconds waited, lease by lease, from the events alone."""
    held, waited, now = collections.Counter(), collections.Counter(), {}
    for event in events:
        if event["type"] != "lease":
            continue
        at, before = at_ms(event["at"]), now.get(event["lease"])
        if before and before["state"] in HOLDS:
            held[before[key]] += (at - at_ms(before["at"])) * before["vram_bytes"] * len(before["devices"]) // MIB
        if before and before["state"] == "queued":
            waited[before[key]] += at - at_ms(before["at"])
        now[event["lease"]] = event
    return ({name: amount // 1000 for name, amount in held.items()},
            {name: amount / 1000 for name, amount in waited.items() if amount})


def stored_events(daemon):
    return daemon.api().get("/v1/events?follow=false", Last_Event_ID="0").body


def report(daemon, query=""):
    answer = daemon.get(f"/v1/report?{query}")
    assert answer.status == 200, answer
    return answer.body


def rows(daemon, by):
    return {row["name"]: row for row in report(daemon, f"by={by}")["rows"]}


def ask(api, consumer, size=GIB, tenant="team", **more):
    return api.post("/v1/leases", {"vram_bytes": size, "ttl_seconds": 600, "consumer": consumer, "tenant": tenant,
                                   **more})


def release(api, lease):
    assert api.post(f"/v1/leases/{lease['id']}/release", {}).status == 200


def warning(daemon):
    return next((w["text"] for w in daemon.get("/v1/status")["warnings"] if w["code"] == "meter"), "")


def test_amounts_are_those_of_the_events_over_kills(start_daemon):
    daemon = start_daemon("2x4GiB", config=QUICK)
    for turn in range(3):
        api = daemon.api()
        first = ask(api, f"train-{turn}", 3 * GIB - 512 * MIB, device="gpu0")
        pair = ask(api, "pair", 512 * MIB, devices=2, tenant="other")
        waiting = ask(api, "late", 3 * GIB, device="gpu0")
        assert waiting.status == 202
        if turn == 1:
            report(daemon)  # writes all until now
        if turn == 2:
            daemon.process.terminate()
            daemon.process.wait()
        daemon.restart()  # else by SIGKILL, with leases that live and a lease that waits
        api = daemon.api()
        release(api, first)
        release(api, pair)
        wait_until(lambda: api.lease(waiting["id"])["state"] == "offered", "its turn")
        release(api, waiting)
    wait_until(lambda: not daemon.leases(), "all have ended")
    events = stored_events(daemon)
    for by in ("consumer", "tenant", "user"):
        held, waited = integrate(events, by)
        found = rows(daemon, by)
        assert {name: row["held_mib_seconds"] for name, row in found.items()} == held
        assert {name: row["waited_seconds"] for name, row in found.items() if row["waited_seconds"]} == waited
    told = report(daemon, "by=consumer")
    assert told["complete"] and {gap["what"] for gap in told["gaps"]} == {"used"}
    assert any(gap["why"] == "the daemon did not run" for gap in told["gaps"])
    assert found and all(row["name"] == "(no session)" for row in report(daemon, "by=session")["rows"])
    devices = {row["name"]: row for row in report(daemon, "by=device")["rows"]}
    assert set(devices) == {"gpu0", "gpu1"} and devices["gpu1"]["leases"] is None
    total = sum(row["held_mib_seconds"] for row in devices.values())
    assert abs(total - sum(integrate(events, "user")[0].values())) <= 2


def test_a_kill_loses_the_last_readings_only(start_daemon):
    daemon = start_daemon(config=QUICK)
    ask(daemon.api(), "train")
    journal, = daemon.dir.rglob("meter.db-wal")

    def stored():
        return journal.stat().st_mtime_ns // 1_000_000
    opened = stored()
    first = wait_until(lambda: (now := stored()) > opened and now, "the amounts are stored within a minute", 30)
    wait_until(lambda: stored() > first, "and again", 30)
    daemon.restart()  # by SIGKILL
    gap, = wait_until(lambda: [gap for gap in report(daemon)["gaps"] if "killed" in gap["why"]], "the gap is known")
    assert at_ms(gap["from"]) >= first, gap

    def tells():
        daemon.restart()
        return "are not known for" in daemon.cli("report", check=0).stderr
    wait_until(tells, "the table tells of gaps of a second together")


def test_who_waited_for_whom(start_daemon):
    daemon = start_daemon(config=QUICK)
    api = daemon.api()
    holder = ask(api, "hog", 3 * GIB)
    waiting = ask(api, "late", 2 * GIB)
    wait_until(lambda: rows(daemon, "consumer")["late"]["waited_seconds"] > 1, "it has waited")
    release(api, holder)
    wait_until(lambda: api.lease(waiting["id"])["state"] == "offered", "its turn")
    whole = report(daemon, "by=consumer&whole=true")
    names, seconds = whole["matrix"]["names"], whole["matrix"]["seconds"]
    charged = seconds[names.index("late")][names.index("hog")]
    found = {row["name"]: row for row in whole["rows"]}
    assert charged == pytest.approx(found["late"]["waited_seconds"], abs=0.3)
    assert found["hog"]["wait_caused_seconds"] == charged and whole["neighbours"][0]["name"] == "hog"
    series, = whole["series"]["devices"]
    assert series["device"] == "gpu0" and any(point["leased_bytes"] for point in series["points"])
    assert any(point["waiting"] for point in whole["series"]["waiting"])
    assert whole["trend"]["sentences"] and len(whole["trend"]["hours"]) == 24


def test_use_is_the_integral_of_the_readings(start_daemon):
    daemon = start_daemon(config=QUICK)
    daemon.cli("run", "--vram", "1GiB", "--name", "train", "--", "simgpu-load", "--alloc", "512MiB", "--seconds", "3",
               "--busy", "50", check=0)
    row = rows(daemon, "consumer")["train"]
    assert 0.5 < row["busy_seconds"] < row["held_mib_seconds"] / 1024
    assert 0 <= row["idle_mib_seconds"] < row["held_mib_seconds"] and row["idle_waited_mib_seconds"] == 0
    assert 512 <= row["used_mib_seconds"] < row["held_mib_seconds"] and row["peak_used_bytes"] >= 512 * MIB


def test_an_empty_period(daemon):
    api = daemon.api()
    release(api, ask(api, "train"))
    empty = report(daemon, "since=1h&until=2h&whole=true")
    assert empty["rows"] == [] and empty["complete"] and empty["total"]["leases"] == 0
    assert empty["matrix"] == {"names": [], "seconds": []} and empty["neighbours"] == []
    assert "no lease in this period" in daemon.cli("report", "--until", "2h", "--since", "1h", check=0).stderr
    for flag in ("--html", "--svg"):
        daemon.cli("report", "--until", "2h", flag, daemon.dir / "empty", check=0)
        assert (daemon.dir / "empty").stat().st_size > 100


def test_names_with_markup_are_text_on_the_page(daemon):
    api = daemon.api()
    name = '<script>alert("1")&<b>'
    release(api, ask(api, name))
    page = daemon.dir / "report.html"
    daemon.cli("report", "--by", "consumer", "--html", page, check=0)
    text = page.read_text()
    assert "<script" not in text and "<b>" not in text
    assert "&lt;script&gt;alert(&quot;1&quot;)&amp;&lt;b&gt;" in text
    assert not re.search(r"""(src|href)\s*=\s*["']?(https?:)?//""", text), "it needs no other file"
    assert name.replace('"', '""') in daemon.cli("report", "--by", "consumer", "--csv", check=0).stdout


def test_of_thousands_of_names_the_largest_are_told(start_daemon):
    daemon = start_daemon("1x4GiB", config=QUICK + "[limits]\nleases = 5000\n")
    api = daemon.api()
    for number in range(2000):
        lease = ask(api, f"job-{number}", MIB)
        assert lease.status == 201
    told = report(daemon, "by=consumer")["rows"]
    assert len(told) == 51 and told[50]["name"] == "(rest)"
    assert told[50]["others"] == 1950 and told[50]["leases"] == 1950
    assert "(rest)" in daemon.cli("report", "--by", "consumer", check=0).stdout


def test_a_clock_gap_is_marked(start_daemon, tmp_path):
    daemon = start_daemon(config=QUICK + 'max_age = "2s"\n', command=with_sleep(tmp_path))
    lease = ask(daemon.api(), "train")
    has_slept(tmp_path, 3 * 3600)
    wait_until(lambda: rows(daemon, "consumer")["train"]["held_mib_seconds"] > 3 * 3600 * 1024, "it held while asleep")
    gap = wait_until(lambda: next((g for g in report(daemon)["gaps"] if g["why"] == "the devices were not read"), None),
                     "the gap is marked")
    assert gap["what"] == "used" and at_ms(gap["to"]) - at_ms(gap["from"]) >= 3 * 3600 * 1000 - 2000
    assert daemon.api().lease(lease["id"])["state"] in ("active", "ended")


# --- faults of the file ---

def test_a_damaged_file_is_set_aside_and_leases_go_on(start_daemon):
    daemon = start_daemon(config=QUICK)
    api = daemon.api()
    lease = ask(api, "train")
    for number in range(200):
        release(api, ask(api, f"job-{number}", MIB))
    report(daemon)
    daemon.kill()
    file = daemon.dir / "state" / "meter.db"
    (file.parent / "meter.db-wal").unlink(missing_ok=True)
    with file.open("r+b") as damaged:
        damaged.truncate(max(file.stat().st_size, 65536))
        damaged.seek(4096)
        damaged.write(b"x" * 32768)
    daemon.start()
    assert daemon.api().lease(lease["id"])["state"] == "active"
    told = wait_until(lambda: warning(daemon), "it is told")
    aside, = file.parent.glob("meter.db.damaged-*")
    assert str(aside) in told and "--hint" not in told
    release(daemon.api(), lease)
    whole = report(daemon, "by=consumer")
    held, _ = integrate(stored_events(daemon), "consumer")
    assert {row["name"]: row["held_mib_seconds"] for row in whole["rows"]}["train"] == held["train"], "events are there"
    gap = next(g for g in whole["gaps"] if g["why"] == "the file with earlier amounts was damaged")
    assert gap["what"] == "used" and gap["from"].startswith("1970")


def test_a_file_of_another_program_is_set_aside(start_daemon):
    daemon = start_daemon(config=QUICK)
    daemon.kill()
    file = daemon.dir / "state" / "meter.db"
    (file.parent / "meter.db-wal").unlink(missing_ok=True)
    shutil.copy(file.parent / "store.db", file)
    daemon.start()
    wait_until(lambda: list(file.parent.glob("meter.db.damaged-*")), "it is set aside")
    release(daemon.api(), ask(daemon.api(), "train"))
    assert rows(daemon, "consumer")["train"]["leases"] == 1


@contextlib.contextmanager
def small_disk(size):
    """A daemon whose meter is on a file system of this size."""
    daemon = Daemon("1x4GiB", QUICK)
    disk = daemon.dir / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=0700", "tmpfs", disk], text=True,
                             capture_output=True)
    if mounted.returncode != 0:
        daemon.close()
        pytest.skip(f"needs the right to mount, for a disk that is really full: {mounted.stderr.strip()}")
    try:
        (daemon.dir / "state").mkdir(mode=0o700)
        (daemon.dir / "state" / "meter.db").symlink_to(disk / "meter.db")
        yield daemon, disk
    finally:
        print(daemon.log())
        if daemon.process:
            daemon.kill()
        subprocess.run(["umount", disk], check=True)
        daemon.close()


def fill(path):
    with open(path, "wb", buffering=0) as filler, contextlib.suppress(OSError):
        while True:
            filler.write(b"\0" * 4096)


def test_leases_go_on_while_the_disk_of_the_meter_is_full(start_daemon):
    with small_disk("1m") as (daemon, disk):
        daemon.start()
        api = daemon.api()
        release(api, ask(api, "before"))
        assert rows(daemon, "consumer")["before"]["leases"] == 1
        fill(disk / "filler")
        for number in range(300):  # more than the rest of a page takes
            release(api, ask(api, f"job-{number}", MIB))
        told = report(daemon, "by=consumer")
        assert not told["complete"] and any(gap["why"].startswith("not written: ") for gap in told["gaps"])
        assert "reports lack the newest amounts" in wait_until(lambda: warning(daemon), "it is told")
        (disk / "filler").unlink()
        told = wait_until(lambda: (r := report(daemon, "by=consumer"))["complete"] and r, "there is room again")
        assert told["total"]["leases"] == 301 and warning(daemon) == ""
        held, _ = integrate(stored_events(daemon), "consumer")
        found = {row["name"]: row for row in told["rows"]}
        assert found["before"]["held_mib_seconds"] == held["before"]


def test_a_meter_that_is_switched_off_says_so(start_daemon):
    daemon = start_daemon(config="[meter]\nenabled = false\n")
    refused = daemon.cli("report", check=None)
    assert refused.returncode != 0 and "the meter is switched off" in refused.stderr
    assert "meter.enabled" in refused.stderr and not (daemon.dir / "state" / "meter.db").exists()


# --- the documentation ---

def test_every_command_of_the_page_works(daemon, tmp_path):
    release(daemon.api(), ask(daemon.api(), "train"))
    page = (ROOT / "docs/reports.md").read_text()
    blocks = re.findall(r"^```(\w+)\n(.*?)^```$", page, re.M | re.S)
    assert [kind for kind, _ in blocks] == ["console", "console"]
    lines = "".join(text for _, text in blocks).splitlines()
    for line in lines:
        assert line.startswith("$ sublet report"), line
        done = subprocess.run(shlex.split(line[2:]), cwd=tmp_path, env=daemon.env(), text=True, capture_output=True)
        assert done.returncode == 0, f"{line}\n{done.stderr}"
    assert len(lines) >= 8 and {file.name for file in tmp_path.iterdir()} == {"week.html", "week.svg"}
    for column in re.findall(r"^\| (`[^|]*`) \|", page.split("## Columns")[1].split("##")[0], re.M):
        for name in re.findall(r"`([a-z0-9-]+)`", column):
            daemon.cli("report", "-o", name, check=0)
