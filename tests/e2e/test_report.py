# SPDX-License-Identifier: Apache-2.0
"""`report`: holders and waiting times, of the past and of running leases."""
import datetime

import pytest

from tests.support.parking import until
from tests.support.retrying import Hook
from tests.support.sessions import WORK, act, fills, open_session, reaches, start_sessions
from tests.support.sublet import GIB, MIB, Daemon, lent, wait_until


def make_past(daemon):
    """Makes two consumers with a past, one that holds, one that waits."""
    daemon.cli("run", "--vram", "1GiB", "--name", "train", "--", "simgpu-load", "--alloc", "256MiB", "--seconds", "3",
               check=0)
    daemon.cli("run", "--vram", "1GiB", "--name", "train", "--", "false", check=1)
    holder, waiter = daemon.api(), daemon.api()
    ask = {"owner": {"connection": True}, "tenant": "team"}
    assert holder.post("/v1/leases", dict(ask, vram_bytes=3 * GIB, consumer="serve", wait_seconds=60)).status == 201
    assert waiter.post("/v1/leases", dict(ask, vram_bytes=2 * GIB, consumer="late")).status == 202
    return daemon


@pytest.fixture(scope="module")
def past_daemon():
    daemon = Daemon("1x4GiB")
    try:
        yield make_past(daemon.start())
    finally:
        daemon.close()


@pytest.fixture
def past(past_daemon):
    with lent(past_daemon):
        yield past_daemon


def reported(daemon, by):
    report = daemon.json("report", "--by", by)
    assert report["by"] == by and report["complete"] and report["from"] == report["complete_since"] < report["to"]
    return report


def rows(daemon, by):
    report = reported(daemon, by)
    return {row["name"]: row for row in report["rows"]}, report["total"]


def at(text):
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def test_it_counts_the_past_and_the_present(past):
    found, total = rows(past, "consumer")
    assert found.keys() == {"train", "serve", "late"}
    train = found["train"]
    assert train["leases"] == 2 and train["active"] == 0 and sum(train["ended"].values()) == 2
    assert train["held_mib_seconds"] >= 1024 and train["peak_used_bytes"] >= 256 * MIB
    assert 0 < train["never_used_mib_seconds"] < train["held_mib_seconds"]
    assert found["serve"]["active"] == 1 and not found["serve"]["ended"]
    assert found["late"]["waiting"] == 1 and found["late"]["held_mib_seconds"] == 0
    assert total["leases"] == 4 and total["wait"]["max_ms"] >= found["late"]["wait"]["p50_ms"] > 0


def test_rows_are_grouped_as_requested(past):
    assert rows(past, "tenant")[0]["team"]["leases"] == 2
    by_user, total = rows(past, "user")
    assert len(by_user) == 1 and total["leases"] == 4


def test_the_past_outlives_a_restart(daemon):
    make_past(daemon).restart()
    assert rows(daemon, "consumer")[0]["train"]["leases"] == 2


def test_more_than_one_slice_of_the_past_is_counted(daemon):
    api = daemon.api()
    for _ in range(600):
        lease = api.post("/v1/leases", {"vram_bytes": MIB, "ttl_seconds": 60, "consumer": "many"})
        assert api.post(f"/v1/leases/{lease['id']}/release", {}).status == 200
    assert rows(daemon, "consumer")[0]["many"]["leases"] == 600


@pytest.fixture
def yielding(daemon):
    """A lease of 1 GiB that yields at once, with the calls that pause and resume it."""
    hook = Hook()
    ask = {"vram_bytes": GIB, "ttl_seconds": 3600, "tag": "yields", "consumer": "train"}
    lease = daemon.api().post("/v1/leases", ask)

    def call(what, state=None, **body):
        assert daemon.api().post(f"/v1/leases/{lease['id']}/{what}", body).status in (200, 202)
        return state and until(daemon, "yields", state)

    call("cooperate", way="webhook", url=hook.url)
    yield daemon, call
    hook.close()


def check_sums(daemon, until_then=None):
    """Held and paused time sum up to the time since the grant, for any kind of rows. Returns the paused time."""
    for by in ("consumer", "tenant", "user"):
        report = reported(daemon, by)
        lease = daemon.get("/v1/leases/yields")
        row, = report["rows"]
        held, paused = row["held_mib_seconds"] / 1024, row["paused_mib_seconds"] / 1024
        end = until_then or report["to"]
        assert held + paused == pytest.approx(at(end) - at(lease["granted_at"]), abs=0.01)
        assert dict(report["total"], name=row["name"]) == row
    return paused


def test_paused_time_is_not_held(yielding):
    daemon, call = yielding
    assert check_sums(daemon) == 0
    call("pause", "paused")
    first, second = check_sums(daemon), check_sums(daemon)
    assert 0 < first < second, "it grows while it is paused"
    daemon.restart()
    assert check_sums(daemon) > second, "over a restart too"
    call("resume", "active")
    paused = check_sums(daemon)
    assert paused > second and check_sums(daemon) == pytest.approx(paused, abs=0.01), "it runs again"
    assert daemon.get("/v1/leases/yields")["paused_seconds"] == pytest.approx(paused - 0.5, abs=0.51), "whole ones"
    call("pause", "paused")
    call("resume", "active")
    wait_until(lambda: daemon.api().post("/v1/leases/yields/release", {}).status == 200, "it is measured what it holds")
    lease = daemon.get("/v1/leases/yields")
    assert check_sums(daemon, lease["ended_at"]) > paused
    table = daemon.cli("report", "--by", "consumer", "-o", "name,held,paused", check=0).stdout
    assert "PAUSED GiB·h" in table


def test_every_size_counts_for_as_long_as_it_was(daemon):
    api = daemon.api()
    lease = api.post("/v1/leases", {"vram_bytes": 2 * GIB, "ttl_seconds": 600, "consumer": "train"})

    def held():
        return rows(daemon, "consumer")[0]["train"]["held_mib_seconds"]

    wait_until(lambda: held() > 1024, "half a second has passed")
    before = held()
    assert api.post(f"/v1/leases/{lease['id']}/resize", {"vram_bytes": MIB}).status == 200
    why = daemon.cli("why", lease["id"], check=0).stdout
    assert "has held 1.0 MiB on gpu0 since it was resized" in why and "in total" in why
    assert held() >= before
    daemon.restart()
    assert daemon.api().post(f"/v1/leases/{lease['id']}/release", {}).status == 200
    assert held() >= before


def test_people_get_a_table(past):
    lines = past.cli("report", "--by", "consumer", check=0).stdout.splitlines()
    assert lines[0].split()[:3] == ["NAME", "LEASES", "ACTIVE"] and "GiB·h" in lines[0]
    assert lines[-1].startswith("(all)")
    done = past.cli("report", "--since", "1s", "--no-header", "-o", "name,leases", check=0)
    assert "serve" not in done.stdout  # by user


@pytest.mark.parametrize("arguments, says", [
    (["--by", "colour"], "not one of user, consumer, tenant"),
    (["--since", "soon"], "'soon'"),
    (["--since", "0s"], "between 1s and 3650d"),
])
def test_wrong_questions_are_usage_errors(shared_daemon, arguments, says):
    done = shared_daemon.cli("report", *arguments, check=2)
    assert says in done.stderr and not done.stdout


def test_an_empty_question_is_a_wrong_one(shared_daemon):
    refused = shared_daemon.api().get("/v1/report?by=")
    assert (refused.status, refused["code"]) == (400, "BadRequest") and "user" in refused["detail"]


def test_leases_that_the_store_has_dropped_are_counted(start_daemon):
    daemon = start_daemon(config="[store]\nended_per_user = 16\n")
    api = daemon.api()
    ask = {"vram_bytes": GIB, "owner": {"connection": True}, "consumer": "many", "wait_seconds": 60}
    for _ in range(40):
        assert api.post(f"/v1/leases/{api.post('/v1/leases', ask)['id']}/release", {}).status == 200
    wait_until(lambda: len(daemon.get("/v1/leases?all=true&limit=1000")["leases"]) <= 18, "the oldest are gone")
    assert rows(daemon, "consumer")[0]["many"]["leases"] == 40
    daemon.restart()
    assert rows(daemon, "consumer")[0]["many"]["leases"] == 40


def test_dropped_history_is_told(start_daemon):
    daemon = start_daemon(config="[limits]\nevents = 16\n[meter]\nenabled = false\n")
    api = daemon.api()
    ask = {"vram_bytes": GIB, "ttl_seconds": 600, "consumer": "many"}
    kept = api.post("/v1/leases", ask)
    for _ in range(40):
        assert api.post(f"/v1/leases/{api.post('/v1/leases', ask)['id']}/release", {}).status == 200
    (daemon.dir / "sublet.toml").write_text("[limits]\nevents = 16\n")  # the meter begins with a part of the events

    def check():
        report = daemon.json("report", "--by", "consumer")
        assert at(report["from"]) < at(report["complete_since"]) <= at(report["to"])
        gap = next(gap for gap in report["gaps"] if gap["what"] == "leased")
        assert gap["from"].startswith("1970") and gap["to"] == report["complete_since"]
        row, = report["rows"]
        assert row["leases"] < 41 and row["active"] == 1, "a lease that lives is counted from the gap's end on"
        said = daemon.cli("report", check=0).stderr
        assert "ago or earlier are not counted: the events of this time are no longer stored" in said
        return row["held_mib_seconds"]

    daemon.restart()
    first = check()
    daemon.restart()
    wait_until(lambda: check() > first, "it is counted on")
    assert daemon.api().post(f"/v1/leases/{kept['id']}/release", {}).status == 200


def test_an_empty_report_is_told(shared_daemon):
    assert "no lease in this period" in shared_daemon.cli("report", check=0).stderr


def test_a_session_has_a_row_of_its_own(start_daemon):
    daemon = start_sessions(start_daemon)
    opened = open_session(daemon, WORK)
    fills(daemon, opened["id"])
    act(daemon, opened["id"], "close", park=False)
    reaches(daemon, opened["id"], "closed")
    found, _ = rows(daemon, "session")
    assert found[opened["id"]]["leases"] == 1 and found[opened["id"]]["ended"] == {"released": 1}
    assert found[opened["id"]]["held_mib_seconds"] > 0
