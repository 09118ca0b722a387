# SPDX-License-Identifier: Apache-2.0
"""`--share`: the share of a lease, the page of its processes, and the audit by the card. The processes are of
tests/support/sharer.py, which speaks with the daemon as the library does.
"""
import json
import os
import signal
import subprocess
import sys

import pytest

from tests.support.groups import limits_of
from tests.support.interposer import LIBRARY
from tests.support.preload import preloaded
from tests.support.sublet import MIB, ROOT, wait_until

OPTIONS = preloaded(LIBRARY)["ASAN_OPTIONS"]
PAGE = 64 + 16 * 64  # bytes of a share page
NS = 10**9


class Sharer:
    """A lease with one process."""

    def __init__(self, daemon, *words):
        self.daemon = daemon
        self.child = daemon.spawn("sublet", "run", "--vram", "256MiB", "--interposer", *words, "--", sys.executable,
                                  ROOT / "tests/support/sharer.py", stdin=subprocess.PIPE, stderr=None,
                                  env=daemon.env(ASAN_OPTIONS=OPTIONS))

    def ask(self, line):
        self.child.stdin.write(line + "\n")
        self.child.stdin.flush()
        return [int(word) for word in self.child.stdout.readline().split()]

    def lease(self):
        [found] = [lease for lease in self.daemon.leases()
                   if (lease["owner"] or {}).get("keeper_pid") == self.child.pid]
        return found

    def use(self):
        return self.lease()["share_use"]

    def end(self):
        self.child.stdin.close()
        assert self.child.wait(60) == 0


@pytest.fixture
def card(shared_daemon):
    return shared_daemon


def codes(daemon):
    return [warning["code"] for warning in daemon.get("/v1/status")["warnings"]]


# -------------------------------------------------------------------------------- the term of a lease

def test_a_share_is_a_term_of_the_lease_that_is_shown_and_kept(daemon):
    sharer = Sharer(daemon, "--share", "30%", "--tag", "train")
    assert sharer.ask("begin")[3:] == [PAGE, 30]
    assert sharer.lease()["share"] == 30
    assert json.loads(daemon.cli("ps", "--json").stdout)["leases"][0]["share"] == 30
    assert "30 %" in daemon.cli("ps", "-o", "id,share").stdout
    assert "It may use 30 % of the computing time of each device" in daemon.cli("why", "train").stdout
    bare = daemon.spawn("sublet", "run", "--vram", "64MiB", "--tag", "bare", "--", "sleep", "600")
    wait_until(lambda: [lease for lease in daemon.leases() if lease["tag"] == "bare"], "another lease is there")
    assert [lease["share"] for lease in daemon.leases() if lease["tag"] == "bare"] == [None]
    daemon.restart()
    assert [lease["share"] for lease in daemon.leases() if lease["tag"] == "train"] == [30]
    bare.terminate()
    sharer.end()


@pytest.mark.parametrize("words, told", [
    (["run", "--share", "30"], "--share needs --interposer"),
    (["run", "--detach", "--share", "30"], "--share needs --interposer"),
    (["session", "open", "--share", "30"], "--share needs --interposer"),
    (["run", "--interposer", "--share", "0"], "--share: '0' is not between 1 and 100"),
    (["session", "open", "--interposer", "--share", "101"], "--share: '101' is not between 1 and 100"),
    (["run", "--interposer", "--share", "much"], "--share: 'much' is no number of percent")])
def test_a_share_that_cannot_be_is_refused(card, words, told):
    done = card.cli(*words, "--vram", "64MiB", "--", "true")
    assert done.returncode == 2 or done.returncode == 125, done
    assert told in done.stderr and "hint:" in done.stderr
    assert not [lease for lease in card.leases() if lease["state"] != "ended"]


@pytest.mark.parametrize("path", ["/v1/leases", "/v1/programs", "/v1/sessions"])
def test_the_api_refuses_a_share_without_the_library(card, path):
    body = {"vram_bytes": 64 * MIB, "share": 30}
    if path != "/v1/leases":
        body |= {"arguments": ["true"], "directory": "/", "tag": "x"}
    api = card.api()
    for more in ({}, {"interposer": False}, {"interposer": None}):
        reply = api.post(path, body | more)
        assert reply.status == 400 and "share is given without the interposer" in reply["detail"], reply
    for wrong in (0, 101, "30", 2.5, True):
        assert api.post(path, body | {"interposer": True, "share": wrong}).status == 400


def test_supervised_programs_and_sessions_have_a_share(daemon):
    daemon.cli("run", "--detach", "--tag", "serve", "--vram", "64MiB", "--interposer", "--share", "40", "--", "sleep",
               "600", check=0)
    daemon.cli("session", "open", "--tag", "work", "--vram", "64MiB", "--interposer", "--share", "20", "--", "sleep",
               "600", check=0)
    wait_until(lambda: {lease["tag"]: lease["share"] for lease in daemon.leases()} == {"serve": 40, "work": 20},
               "both have their leases")
    program = daemon.get("/v1/programs/serve").body
    assert (program["interposer"], program["share"]) == (True, 40)
    done = daemon.cli("run", "--detach", "--replace", "--tag", "serve", "--vram", "64MiB", "--", "sleep", "60", check=0)
    assert "interposer on -> off, share 40 % -> none" in done.stderr


# -------------------------------------------------------------------------------- the page

def test_all_processes_of_a_lease_get_one_page(daemon):
    sharer, other = Sharer(daemon, "--share", "30"), Sharer(daemon, "--share", "30")
    first = sharer.ask("begin")
    assert first[:2] == [0, 3] and first[3:] == [PAGE, 30]
    assert sharer.ask("begin") == first and other.ask("begin")[2] != first[2]
    daemon.restart()
    again = sharer.ask("begin")
    assert again[:2] == [0, 3] and again[3:] == [PAGE, 30] and sharer.ask("begin") == again
    sharer.end(), other.end()


def test_a_program_in_a_lease_has_the_share_of_that_lease(card):
    inner = "sublet run --vram 16MiB --interposer --share {} -- true"
    for words, outer in (((), "has no share"), (("--share", "50"), "has a share of 50 %")):
        inside = "; ".join(inner.format(share) for share in (30, 50))
        done = card.cli("run", "--vram", "64MiB", "--interposer", *words, "--", "sh", "-c", inside,
                        ASAN_OPTIONS=OPTIONS)
        assert f"which this program is in, {outer}" in done.stderr, done
        assert done.returncode == (0 if words else 2) and ("using that lease" in done.stderr) == bool(words), done


def test_a_whole_share_needs_no_page(card):
    sharer = Sharer(card, "--share", "100")
    assert sharer.ask("begin") == [0, 2, 0, 0, 100]
    assert sharer.lease()["share"] == 100 and sharer.use() is None
    sharer.end()
    sharer = Sharer(card)
    assert sharer.ask("begin") == [0, 2, 0, 0, 0]
    sharer.end()


# -------------------------------------------------------------------------------- the audit

def metric(daemon, name):
    lines = [line.split() for line in daemon.get("/metrics").body.splitlines()]
    return sum(float(line[-1]) for line in lines if line[0].startswith(f"sublet_{name}{{"))


def test_use_and_waits_are_told(daemon):
    sharer = Sharer(daemon, "--share", "30", "--tag", "train")
    sharer.ask("begin")
    sharer.ask(f"say {2 * NS} {123 * NS // 10} 0")
    wait_until(lambda: (sharer.use() or {}).get("waited_seconds") == 12.3, "a reading has come")
    assert sharer.use()["busy_seconds"] == 2
    wait_until(lambda: "its launches have waited 12.3 s" in daemon.cli("why", "train").stdout, "why tells it")
    assert metric(daemon, "interposer_waited_seconds_total") == 12.3
    assert metric(daemon, "interposer_busy_seconds_total") == 2
    assert metric(daemon, "interposer_share_percent") == 30
    sharer.end()


def test_more_than_the_share_is_warned_of_until_it_is_over(daemon):
    sharer = Sharer(daemon, "--share", "30", "--tag", "train")
    sharer.ask("begin")
    sharer.ask("load 90")
    wait_until(lambda: "share_exceeded" in codes(daemon), "the card shows it")
    [warning] = [one for one in daemon.get("/v1/status")["warnings"] if one["code"] == "share_exceeded"]
    assert sharer.lease()["id"] in warning["text"] and "its share is 30 %" in warning["text"]
    assert sharer.use()["devices"][0]["exceeded"] and sharer.use()["devices"][0]["used_percent"] > 40
    assert "which is more than its share" in daemon.cli("why", "train").stdout
    assert 'code="share_exceeded"' in daemon.get("/metrics").body
    def told():
        events = daemon.api().get("/v1/events?follow=false&type=warning", Last_Event_ID="0").body
        return [event for event in events if event.get("code") == "share_exceeded"]
    wait_until(told, "the stream of events tells it")
    sharer.ask("unload")
    wait_until(lambda: "share_exceeded" not in codes(daemon), "it is over")
    assert sharer.lease()["state"] == "active", "nothing was ended for it"
    sharer.end()


def test_processes_without_the_library_do_not_change_the_gain(daemon):
    sharer = Sharer(daemon, "--share", "90")
    sharer.ask("begin")
    sharer.ask("load 60")
    sharer.ask("work 20")
    wait_until(lambda: (sharer.use()["devices"][0]["used_percent"] or 0) > 40, "the card shows it")
    assert sharer.use()["devices"][0]["gain"] == 1
    sharer.end()


def test_a_lease_whose_programs_never_asked_is_audited(daemon):
    child = daemon.spawn("sublet", "run", "--vram", "256MiB", "--interposer", "--share", "30", "--tag", "bare", "--",
                         "env", "-u", "LD_PRELOAD", "simgpu-load", "--alloc", "128MiB", "--seconds", "600", "--busy",
                         "100", stderr=None, env=daemon.env(ASAN_OPTIONS=OPTIONS))
    wait_until(lambda: {"share_exceeded", "uncontrolled"} <= set(codes(daemon)), "both are told")
    assert daemon.leases()[0]["share_use"]["devices"][0]["used_percent"] > 40
    child.terminate()
    child.wait(60)


UNLIMITED = (["-1"], ["max"], [])


def over_its_share(daemon):
    """A supervised program over its share, in a group of its own: -> pid of the load, pid of the program"""
    command = "env -u LD_PRELOAD simgpu-load --alloc 128MiB --seconds 600 --busy 100 & wait; exec sleep 600"
    daemon.cli("run", "--detach", "--tag", "serve", "--vram", "256MiB", "--interposer", "--share", "30", "--", "sh",
               "-c", command, check=0, ASAN_OPTIONS=OPTIONS)
    wait_until(lambda: "share_exceeded" in codes(daemon), "the card shows it")
    [warning] = [one for one in daemon.get("/v1/status")["warnings"] if one["code"] == "share_exceeded"]
    if "its processor time is not limited: " in warning["text"]:
        pytest.skip(f"no group can be made here: {warning['text']}")
    assert "gets less processor time" in warning["text"]
    [lease] = daemon.leases()
    load = wait_until(lambda: [one["pid"] for one in daemon.leases()[0]["interposer"]["uncontrolled"]], "it is named")
    return load[0], lease["owner"]["pid"]


def test_a_supervised_program_over_its_share_is_slowed_down_and_let_go(daemon):
    load, main = over_its_share(daemon)
    wait_until(lambda: 0 < (daemon.leases()[0]["share_use"]["processor_percent"] or 0) < 50, "its use stays")
    assert "of a processor until it is within its share" in daemon.cli("why", "serve").stdout
    assert 0 < int(list(limits_of(main).values())[0]) < 50_000
    os.kill(load, signal.SIGKILL)
    wait_until(lambda: list(limits_of(main).values()) in UNLIMITED, "it is let go")
    wait_until(lambda: "share_exceeded" not in codes(daemon), "it is over")
    assert daemon.leases()[0]["share_use"]["processor_percent"] is None
    assert daemon.leases()[0]["state"] == "active", "nothing was ended for it"


def test_a_restart_of_the_daemon_leaves_no_program_slowed_down(daemon):
    load, main = over_its_share(daemon)
    assert list(limits_of(main).values()) not in UNLIMITED
    daemon.kill()
    os.kill(load, signal.SIGKILL)
    daemon.start()
    wait_until(lambda: list(limits_of(main).values()) in UNLIMITED, "it is let go")
    assert daemon.leases()[0]["state"] == "active"


# -------------------------------------------------------------------------------- the library

def test_a_program_is_held_to_its_share_over_a_restart(daemon):
    child = daemon.spawn("sublet", "run", "--vram", "256MiB", "--interposer", "--share", "30", "--tag", "train", "--",
                         "simgpu-load", "--alloc", "16MiB", "--seconds", "600", "--busy", "100", stderr=None,
                         env=daemon.env(ASAN_OPTIONS=OPTIONS))

    def is_held():
        leases = daemon.leases()
        use = leases and leases[0]["share_use"]
        return use and use["waited_seconds"] > 1 and use["busy_seconds"] > 0 and near(use["devices"][0]["used_percent"])

    def near(percent):
        return percent is not None and 20 < percent < 40

    wait_until(is_held, "its launches wait, and the card shows about 30 %")
    assert "share_exceeded" not in codes(daemon)
    assert "its launches have waited" in daemon.cli("why", "train").stdout
    daemon.restart()
    wait_until(is_held, "the program has found the new daemon")
    child.terminate()
    child.wait(60)


# -------------------------------------------------------------------------------- reports

def reported(daemon, name):
    rows = json.loads(daemon.cli("report", "--by", "consumer", "--json", check=0).stdout)["rows"]
    [found] = [row for row in rows if row["name"] == name]
    return found


def test_reports_count_the_work_of_a_lease_once(daemon):
    daemon.cli("run", "--vram", "64MiB", "--name", "bare", "--", "true", check=0)
    sharer = Sharer(daemon, "--share", "30", "--name", "train")
    sharer.ask("begin")
    wait_until(lambda: reported(daemon, "train")["launches"] == 0, "a process runs behind the interposer")
    sharer.ask(f"say {2 * NS} {123 * NS // 10} 7")
    wait_until(lambda: reported(daemon, "train")["launches"] == 7, "a reading has come")
    told = reported(daemon, "train")
    assert (told["charged_seconds"], told["share_waited_seconds"], told["errors"]) == (2, 12.3, 0)
    bare = reported(daemon, "bare")
    assert {bare[field] for field in ("launches", "errors", "copied_bytes", "share_waited_seconds")} == {None}
    assert "LAUNCHES" in daemon.cli("report", "-o", "name,launches,errors,copied,share-waited", check=0).stdout
    header = daemon.cli("report", "--csv", check=0).stdout.splitlines()[0]
    assert header.endswith("launches,errors,copied_bytes,allocated_bytes,charged_seconds,share_waited_seconds")
    daemon.restart()
    sharer.ask("begin")
    sharer.ask(f"say {2 * NS} {123 * NS // 10} 7")  # the new page has what the process did before
    wait_until(lambda: sharer.lease()["interposer"]["counts"]["launches"] == 7, "it is read")
    assert reported(daemon, "train")["launches"] == 7
    sharer.ask(f"say {2 * NS} {123 * NS // 10} 9")
    wait_until(lambda: reported(daemon, "train")["launches"] == 9, "only new work is added")
    sharer.end()
