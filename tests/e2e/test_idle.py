# SPDX-License-Identifier: Apache-2.0
"""Utilisation of devices and processes, and leases whose programs do nothing."""
import datetime
import os
import re
import shlex
import signal
import subprocess

import pytest

from tests.e2e.test_suspend import HOURS, machine  # noqa: F401
from tests.support.parking import CONFIG, start_parking
from tests.support.sublet import GIB, MIB, ROOT, wait_until

HOLD = {"vram_bytes": GIB, "ttl_seconds": 600}


def start(start_daemon, rules=""):
    """A private daemon on which no lease is paused but by idle rules."""
    return start_parking(start_daemon, "automatic = false\n" + rules)


def run(daemon, busy, *flags, vram="1GiB", alloc="512MiB"):
    """Starts a leased program that computes in `busy` percent of the time. Returns its lease, measured."""
    known = {lease["id"] for lease in daemon.leases()}
    daemon.spawn("sublet", "run", "--vram", vram, *flags, "--", "simgpu-load", "--alloc", alloc, "--busy", busy,
                 "--seconds", "600")
    least = int(alloc.removesuffix("MiB")) * MIB
    return wait_until(lambda: next((lease for lease in daemon.leases() if lease["id"] not in known and
                                    lease["used_bytes"] >= least), None), "it has its memory")["id"]


def lease_of(daemon, id):
    return daemon.get(f"/v1/leases/{id}")


def use_of(daemon, id):
    """Returns the utilisation of the lease's process in the last reading."""
    return next((row["busy_percent"] for row in daemon.json("proclist")["processes"] if row["lease"] == id), None)


def card(daemon):
    return daemon.json("gpus")["devices"][0]


def reaches(daemon, id, state):
    wait_until(lambda: lease_of(daemon, id)["state"] == state, f"{id} is {state}")


def reasons(daemon, id, code):
    return [reason for reason in daemon.get(f"/v1/leases/{id}/why")["reasons"] if reason["code"] == code]


def idle_for(daemon, id):
    """Returns the seconds for which the lease has done nothing; 0 while it works or its state is not known."""
    activity = lease_of(daemon, id)["activity"]
    if activity is None or activity["state"] != "idle":
        return 0
    since = datetime.datetime.fromisoformat(activity["since"].replace("Z", "+00:00"))
    return (datetime.datetime.now(datetime.timezone.utc) - since).total_seconds()


def is_idle(daemon, id, seconds):
    wait_until(lambda: idle_for(daemon, id) >= seconds, f"{id} does nothing for {seconds} s")


def waiter(daemon, vram=3 * GIB):
    """Asks for memory that only a pause frees."""
    reply = daemon.api().post("/v1/leases", dict(HOLD, vram_bytes=vram))
    assert reply.status == 202
    return reply["id"]


# -------------------------------------------------------------------------------- utilisation

def test_gpus_and_proclist_show_utilisation(start_daemon):
    daemon = start(start_daemon)
    wait_until(lambda: card(daemon)["busy_percent"] == 0, "the card does nothing")
    busy, idle = run(daemon, 50), run(daemon, 0)
    wait_until(lambda: use_of(daemon, idle) == 0, "one program does nothing")
    wait_until(lambda: (use_of(daemon, busy) or 0) > 10 and card(daemon)["busy_percent"] > 10, "the other one computes")
    wait_until(lambda: daemon.json("status")["activity"] == {"busy": 1, "idle": 1, "unknown": 0}, "both are counted")
    assert " %" in daemon.cli("proclist", "--columns", "pid,busy", check=0).stdout
    assert " %" in daemon.cli("gpus", "--columns", "gpu,busy", check=0).stdout


def test_without_utilization_every_lease_counts_as_busy(start_daemon):
    daemon = start(start_daemon)
    daemon.ctl("fault", "nvml-no-utilization")
    daemon.restart()
    lease = run(daemon, 0, "--idle-pause", "1s", vram="2GiB")
    waits = waiter(daemon)
    assert card(daemon)["busy_percent"] is None and use_of(daemon, lease) is None
    asked = ("nvmlDeviceGetUtilizationRates", "nvmlDeviceGetProcessUtilization")
    before = daemon.cards()["calls"]
    wait_until(lambda: daemon.cards()["calls"]["nvmlDeviceGetMemoryInfo_v2"] >=
               before["nvmlDeviceGetMemoryInfo_v2"] + 20, "the card is read ten times more")
    after = daemon.cards()["calls"]
    assert [after.get(call, 0) for call in asked] == [before.get(call, 0) for call in asked], "asked once"
    assert lease_of(daemon, lease)["activity"]["state"] == "unknown"
    assert (lease_of(daemon, lease)["state"], lease_of(daemon, waits)["state"]) == ("active", "queued")


# -------------------------------------------------------------------------------- pause and return

def test_an_idle_lease_is_paused_only_for_one_that_waits(start_daemon):
    daemon = start(start_daemon)
    idle = run(daemon, 0, "--idle-pause", "1s", vram="2GiB")
    busy = run(daemon, 60, "--idle-pause", "1s")
    is_idle(daemon, idle, 3)
    assert lease_of(daemon, idle)["state"] == "active", "nobody waits"
    waits = waiter(daemon, 2 * GIB)
    reaches(daemon, idle, "paused")
    wait_until(lambda: lease_of(daemon, waits)["state"] in ("offered", "active"), "it has the memory")
    pause = lease_of(daemon, idle)["pause"]
    assert (pause["cause"], pause["resume_requested"]) == ("idle", False)
    assert f"{waits} (unnamed" in pause["reason"]
    assert f"sublet touch {idle}" in daemon.cli("why", idle, check=0).stdout
    assert lease_of(daemon, busy)["state"] == "active" and not reasons(daemon, busy, "pausing")


def test_an_idle_pause_ends_with_its_cause(start_daemon):
    daemon = start(start_daemon)
    idle = run(daemon, 0, "--idle-pause", "1s", vram="2GiB")
    first, second = waiter(daemon, 2 * GIB), waiter(daemon, 2 * GIB)
    reaches(daemon, idle, "paused")
    assert f"{first} (unnamed, " in lease_of(daemon, idle)["pause"]["reason"]
    wait_until(lambda: lease_of(daemon, first)["state"] == "offered", "it has the memory")
    daemon.api().post(f"/v1/leases/{first}/claim", {})
    assert "has its memory" in lease_of(daemon, idle)["pause"]["reason"]
    daemon.api().post(f"/v1/leases/{first}/release", {})
    wait_until(lambda: lease_of(daemon, second)["state"] == "offered", "another lease waited for the memory")
    daemon.api().post(f"/v1/leases/{second}/claim", {})
    pause = lease_of(daemon, idle)["pause"]
    assert not pause["resume_requested"] and "has its memory" not in pause["reason"], pause
    daemon.restart()
    daemon.api().post(f"/v1/leases/{second}/release", {})
    reaches(daemon, idle, "active")


def test_an_idle_pause_ends_when_its_memory_is_free(start_daemon):
    daemon = start(start_daemon)
    idle = run(daemon, 0, "--idle-pause", "1s")
    other = daemon.api().post("/v1/leases", HOLD)["id"]
    waits = waiter(daemon, 2 * GIB)
    reaches(daemon, idle, "paused")
    wait_until(lambda: lease_of(daemon, waits)["state"] == "offered", "it has the memory")
    daemon.api().post(f"/v1/leases/{waits}/claim", {})
    daemon.api().post(f"/v1/leases/{other}/release", {})
    reaches(daemon, idle, "active")
    assert lease_of(daemon, waits)["state"] == "active"


@pytest.mark.parametrize("verb", ["touch", "resume"])
def test_touch_and_resume_bring_it_back(start_daemon, verb):
    daemon = start(start_daemon)
    idle = run(daemon, 0, "--idle-pause", "1s", vram="2GiB")
    waits = waiter(daemon)
    reaches(daemon, idle, "paused")
    wait_until(lambda: lease_of(daemon, waits)["state"] == "offered", "it has the memory")
    assert daemon.api().post(f"/v1/leases/{idle}/{verb}", {}).status == 202, "it waits for its memory"
    assert lease_of(daemon, idle)["pause"]["resume_requested"]
    daemon.api().post(f"/v1/leases/{waits}/release", {})
    reaches(daemon, idle, "active")
    assert idle_for(daemon, idle) < 30


def test_always_pauses_although_nobody_waits(start_daemon):
    daemon = start(start_daemon, '[idle]\nwhen = "always"\npause = "2s"\n')
    idle, busy = run(daemon, 0), run(daemon, 60)
    reaches(daemon, idle, "paused")
    assert lease_of(daemon, idle)["pause"]["cause"] == "idle" and lease_of(daemon, busy)["state"] == "active"


def test_a_pinned_lease_is_not_paused_and_why_says_so(start_daemon):
    daemon = start(start_daemon, '[idle]\nwhen = "always"\n')
    pinned = run(daemon, 0, "--idle-pause", "1s", "--pausable", "no")
    is_idle(daemon, pinned, 3)
    assert lease_of(daemon, pinned)["state"] == "active"
    assert "--pausable no" in lease_of(daemon, pinned)["idle"]["problem"]
    assert "pause after 1 s (lease)" in daemon.cli("why", pinned, check=0).stdout


def test_a_pause_that_is_refused_is_told_as_a_problem(start_daemon):
    daemon = start(start_daemon, '[idle]\nwhen = "always"\n')
    program = daemon.spawn("simgpu-load", "--alloc", "256MiB", "--busy", "0", "--seconds", "600")
    lease = daemon.api().post("/v1/leases", dict(HOLD, idle={"pause_seconds": 1}))["id"]
    attach = {"pid": program.pid, "owner": False}
    wait_until(lambda: daemon.api().post(f"/v1/leases/{lease}/attach", attach).status == 200, "it is attached")
    wait_until(lambda: lease_of(daemon, lease)["idle"]["problem"], "its pause is refused")
    assert lease_of(daemon, lease)["state"] == "active" and program.poll() is None
    assert lease_of(daemon, lease)["idle"]["problem"] in daemon.cli("why", lease, check=0).stdout


# -------------------------------------------------------------------------------- warning and end

def test_the_owner_is_warned_once_until_the_next_activity(start_daemon):
    daemon = start(start_daemon, '[idle]\nwarn = "1s"\nend = "10m"\n')
    idle = run(daemon, 0)
    wait_until(lambda: len(reasons(daemon, idle, "idle_warned")) == 1, "it is warned")
    is_idle(daemon, idle, 4)
    assert len(reasons(daemon, idle, "idle_warned")) == 1
    assert "the lease ends after 10 min without work (default rule)" in reasons(daemon, idle, "idle_warned")[0]["text"]
    daemon.cli("touch", idle, check=0)
    assert idle_for(daemon, idle) < 4
    wait_until(lambda: len(reasons(daemon, idle, "idle_warned")) == 2, "it is warned again")
    said = daemon.cli("events", "--no-follow", "--since", "0", "--json", "--type", "lease", check=0).stdout
    assert said.count('"idle_warned"') >= 2


def test_an_idle_lease_ends_with_its_program(start_daemon):
    daemon = start(start_daemon)
    idle, busy = run(daemon, 0, "--idle-end", "2s"), run(daemon, 60, "--idle-end", "2s")
    pid = lease_of(daemon, idle)["owner"]["pid"]
    reaches(daemon, idle, "ended")
    assert lease_of(daemon, idle)["end_reason"] == "expired"
    assert [reason["kind"] for reason in reasons(daemon, idle, "ended")] == ["idle_ended"]
    wait_until(lambda: not os.path.exists(f"/proc/{pid}"), "its program has ended")
    assert lease_of(daemon, busy)["state"] == "active"


def test_a_lease_that_is_paused_for_idleness_ends_too(start_daemon):
    daemon = start(start_daemon, '[idle]\nwhen = "always"\n')
    idle = run(daemon, 0, "--idle-pause", "1s", "--idle-end", "6s")
    reaches(daemon, idle, "paused")
    pid = lease_of(daemon, idle)["owner"]["pid"]
    reaches(daemon, idle, "ended")
    assert reasons(daemon, idle, "idle_warned") and not os.path.exists(f"/proc/{pid}")


# -------------------------------------------------------------------------------- rules

RULES = """[idle]
pause = "30m"
[[idle.rule]]
name = "a"
tier = "batch"
warn = "5m"
pause = "10m"
[[idle.rule]]
name = "b"
consumer = "chat"
pause = "off"
[[idle.rule]]
name = "c"
tenant = "chem"
end = "3h"
"""


def parts(rule):
    return None if rule is None else tuple((rule[f"{part}_seconds"], rule[f"{part}_from"])
                                           for part in ("warn", "pause", "end"))


@pytest.mark.parametrize("fields, rule", [
    ({}, ((None, "default"), (1800, "default"), (None, "default"))),
    ({"tier": "batch"}, ((300, "tier"), (600, "tier"), (None, "default"))),
    ({"tier": "batch", "consumer": "chat"}, ((300, "tier"), (None, "consumer"), (None, "default"))),
    ({"tier": "batch", "idle": {"warn_seconds": 0, "end_seconds": 60}},
     ((None, "lease"), (600, "tier"), (60, "lease"))),
])
def test_the_nearest_rule_wins_and_outlives_the_daemon(start_daemon, fields, rule):
    daemon = start_daemon("1x4GiB", config=CONFIG + RULES)
    lease = daemon.api().post("/v1/leases", dict(HOLD, **fields))
    assert lease.status == 201 and parts(lease["idle"]) == rule
    daemon.restart()
    assert parts(lease_of(daemon, lease["id"])["idle"]) == rule
    daemon.api().post(f"/v1/leases/{lease['id']}/release", {})
    daemon.kill()
    with daemon.store() as store:
        assert store.execute("select count(*) from capability_rows where kind = 'idle'").fetchone() == (0,)


def test_each_start_of_a_supervised_program_has_its_rule(daemon):
    daemon.cli("run", "--detach", "--tag", "job", "--vram", "64MiB", "--idle-end", "1h", "--", "sleep", "600", check=0)

    def started(starts):
        program = daemon.get("/v1/programs/job")
        return program["state"] == "running" and program["starts"] == starts and program["lease"]

    first = wait_until(lambda: started(1), "it runs")
    daemon.cli("restart", "job", check=0)
    again = wait_until(lambda: started(2), "it runs again")
    assert first != again and parts(lease_of(daemon, again)["idle"])[2] == (3600, "lease")


def test_by_default_there_is_no_rule(daemon):
    lease = daemon.api().post("/v1/leases", HOLD)
    assert lease["idle"] is None
    wait_until(lambda: (lease_of(daemon, lease["id"])["activity"] or {}).get("state") == "idle", "it has no process")
    assert "nothing" not in daemon.cli("why", lease["id"], check=0).stdout


@pytest.mark.parametrize("idle", [{"pause_seconds": -1}, {"pause_seconds": "10m"}, {"paws_seconds": 1}, [],
                                  {"end_seconds": 1 << 40}])
def test_a_wrong_rule_is_refused(shared_daemon, idle):
    assert shared_daemon.api().post("/v1/leases", dict(HOLD, idle=idle)).status == 400


@pytest.mark.parametrize("config, named", [
    ('[idle]\npause = "soon"\n', "idle.pause: "),
    ('[sessions]\nidle_end = "10ms"\n', "sessions.idle_end: "),
    ('[[idle.rule]]\nname = "a"\npause = "1m"\n', "idle.rule 'a' names 0 of tier, tenant and consumer"),
    ('[[idle.rule]]\nname = "a"\ntier = "batch"\ntenant = "chem"\n', "idle.rule 'a' names 2 of"),
])
def test_a_wrong_configuration_is_refused(start_daemon, config, named):
    daemon = start_daemon("1x4GiB", config=config, expect_ready=False)
    assert daemon.process.wait(60) == 78 and named in daemon.log()


def test_switched_off_rules_are_refused_and_touch_still_answers(start_daemon):
    daemon = start_daemon("1x4GiB", config='[idle]\nenabled = false\npause = "1s"\n')
    refused = daemon.api().post("/v1/leases", dict(HOLD, idle={"pause_seconds": 60}))
    assert refused.status == 503 and "idle.enabled" in refused["hint"]
    lease = daemon.api().post("/v1/leases", HOLD)
    assert lease["idle"] is None and daemon.api().post(f"/v1/leases/{lease['id']}/touch", {}).status == 200


def test_a_lease_that_has_ended_cannot_be_touched(daemon):
    lease = daemon.api().post("/v1/leases", HOLD)["id"]
    daemon.api().post(f"/v1/leases/{lease}/release", {})
    refused = daemon.api().post(f"/v1/leases/{lease}/touch", {})
    assert (refused.status, refused["code"]) == (409, "Stale")


@pytest.mark.parametrize("call, body", [("touch", {}), ("renew", {}), ("resize", {"vram_bytes": GIB // 2})])
def test_calls_of_the_owner_are_activity(start_daemon, call, body):
    daemon = start(start_daemon)
    lease = daemon.api().post("/v1/leases", HOLD)["id"]
    is_idle(daemon, lease, 3)
    assert daemon.api().post(f"/v1/leases/{lease}/{call}", body).status == 200
    assert idle_for(daemon, lease) < 3


# -------------------------------------------------------------------------------- clocks

def test_sleep_of_the_machine_is_no_idle_time(start_daemon, machine):  # noqa: F811
    daemon = start_daemon("1x4GiB", config=CONFIG)
    lease = daemon.api().post("/v1/leases", dict(HOLD, ttl_seconds=100 * 3600, idle={"end_seconds": 3600}))["id"]
    is_idle(daemon, lease, 1)
    before = lease_of(daemon, lease)["activity"]["since"]
    machine.sleep(HOURS)
    wait_until(lambda: lease_of(daemon, lease)["activity"]["since"] > before, "its idle time is moved")
    assert lease_of(daemon, lease)["state"] == "active"


def test_a_daemon_that_stood_still_counts_no_idle_time(start_daemon):
    daemon = start_daemon("1x4GiB", config=CONFIG)
    lease = daemon.api().post("/v1/leases", dict(HOLD, idle={"end_seconds": 6}))["id"]
    is_idle(daemon, lease, 1)
    before = datetime.datetime.now()
    daemon.process.send_signal(signal.SIGSTOP)
    wait_until(lambda: datetime.datetime.now() - before > datetime.timedelta(seconds=7), "the time is over")
    daemon.process.send_signal(signal.SIGCONT)
    wait_until(lambda: "stood still" in daemon.log(), "it notices")
    assert lease_of(daemon, lease)["state"] == "active"
    reaches(daemon, lease, "ended")


# -------------------------------------------------------------------------------- the document

def blocks(kind):
    return re.findall(rf"(?ms)^```{kind}\n(.*?)^```$", (ROOT / "docs/idle.md").read_text())


def test_the_document(start_daemon):
    """Every command runs, with another program than the notebook server, and the configuration is valid."""
    (rules,) = blocks("toml")
    daemon = start(start_daemon, rules)
    commands = [line[2:] for block in blocks("console") for line in block.splitlines()]
    assert len(commands) == 8
    first = shlex.split(commands[0].replace("jupyter lab", "simgpu-load --alloc 64MiB --busy 0 --seconds 600"))
    daemon.spawn(*first)
    wait_until(lambda: [lease["tag"] for lease in daemon.leases() if lease["used_bytes"] > 64 * MIB] == ["notebook"],
               "it runs")
    said = {}
    for command in commands[1:]:
        if command == "sublet resume notebook":
            daemon.cli("pause", "notebook", check=0)
            reaches(daemon, "notebook", "paused")
        done = subprocess.run(shlex.split(command, comments=True), env=daemon.env(), text=True, capture_output=True,
                              timeout=60)
        assert done.returncode == 0, (command, done.stderr)
        said[shlex.split(command)[1]] = done.stdout
    assert "warn after 30 min (default), pause after 10 min (lease), end after 8 h (lease)" in said["why"]
    assert "pause after 10 min (lease)" in said["ps"] and "BUSY" in said["gpus"]
    reaches(daemon, "notebook", "active")


def test_a_program_without_memory_on_the_card_is_not_paused(start_daemon):
    daemon = start(start_daemon)
    daemon.spawn("sublet", "run", "--vram", "3GiB", "--idle-pause", "1s", "--tag", "quiet", "--", "sleep", "600")
    quiet = wait_until(lambda: next(iter(daemon.leases()), None), "it runs")["id"]
    daemon.spawn("sublet", "run", "--vram", "2GiB", "--tag", "waits", "--", "sleep", "600")
    wait_until(lambda: idle_for(daemon, quiet) >= 4, "its rule is due")
    assert not reasons(daemon, quiet, "pausing") and lease_of(daemon, quiet)["state"] == "active"
    assert daemon.get("/v1/leases/waits")["state"] == "queued", "there is nothing to park"
