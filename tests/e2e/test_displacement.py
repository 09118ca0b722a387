# SPDX-License-Identifier: Apache-2.0
"""Higher tiers pause lower tiers, equal leases take time slices, and all resume with their bytes intact."""
import re
import signal

from tests.support.parking import (daemon, ends_well, late, lease_of, quick_checkpoints,  # noqa: F401
                                   start_parking, until, until_filled)
from tests.support.sublet import GIB, MIB, wait_until
from tests.support.webhook import webhook


def run(daemon, tag, vram, alloc, *flags, seconds=600):
    return daemon.spawn("sublet", "run", "--vram", vram, "--tag", tag, *flags, "--", "simgpu-load", "--alloc", alloc,
                        "--seconds", seconds, "--verify", "--json")


def filled(daemon, tag, vram, alloc, *flags):
    """A program that has filled its memory, and runs until SIGTERM."""
    child = run(daemon, tag, vram, alloc, *flags)
    until_filled(daemon, tag, alloc)
    return child


def helps(daemon, tag):
    return str(daemon.get(f"/v1/leases/{tag}/why").body.get("helps"))


def codes(daemon, tag):
    return [reason["code"] for reason in daemon.get(f"/v1/leases/{tag}/why").body.get("reasons", [])]


def test_a_higher_tier_pauses_a_lower_tier(daemon):
    batch = filled(daemon, "batch", "3GiB", "2GiB", "--tier", "batch")
    urgent = run(daemon, "urgent", "2GiB", "1GiB", "--tier", "interactive")
    paused = until(daemon, "batch", "paused")
    assert (paused["pause"]["cause"], paused["pause"]["preemptor"]) == ("tier", "lease-2"), paused["pause"]
    assert paused["pause"]["resume_requested"] is True
    until_filled(daemon, "urgent", "1GiB")
    ends_well(daemon, "urgent", urgent)
    until(daemon, "batch", "active")
    ends_well(daemon, "batch", batch)
    said = batch.stderr.read()
    assert f"{paused['id']} is paused; `sublet why {paused['id']}`" in said, said
    assert f"{paused['id']} runs again" in said, said
    assert {"pausing", "paused", "resuming", "resumed", "ended"} <= set(codes(daemon, "batch"))
    assert daemon.get("/v1/ledger")["entries"] == []


def test_the_pause_reason_stays_true_after_the_preemptor(daemon):
    batch = filled(daemon, "batch", "3GiB", "1GiB", "--tier", "batch")
    first = filled(daemon, "first", "2GiB", "1GiB", "--tier", "interactive")
    second = run(daemon, "second", "3GiB", "1GiB", "--tier", "interactive", "--pausable", "no")
    wait_until(lambda: lease_of(daemon, "second").get("state") == "queued", "it waits")
    ends_well(daemon, "first", first)
    until_filled(daemon, "second", "1GiB")
    (row,) = [line for line in daemon.cli("ps", COLUMNS="400").stdout.splitlines() if " batch " in line]
    assert re.search(r"parked for lease-2; place 1, .+; resume", row), row
    why = daemon.cli("why", "batch").stdout
    assert re.search(r"preempted for lease-2 \(first, .+\) of the tier interactive, which asked for 2.0 GiB\.", why)
    assert re.search(r"The memory is held by lease-3 \(second, .+\) 3.0 GiB\.", why), why
    ends_well(daemon, "second", second)
    until(daemon, "batch", "active")
    ends_well(daemon, "batch", batch)


def test_pinned_and_equal_leases_are_not_paused(daemon):
    pinned = filled(daemon, "pinned", "3GiB", "1GiB", "--tier", "batch", "--pausable", "no")
    urgent = run(daemon, "urgent", "2GiB", "1GiB", "--tier", "critical", seconds=1)
    until(daemon, "urgent", "queued")
    wait_until(lambda: "is not paused for it" in helps(daemon, "urgent"), "it says why")
    assert "pinned" in helps(daemon, "urgent")
    assert lease_of(daemon, "pinned")["state"] == "active"
    assert daemon.cli("stop", "pinned").returncode == 0
    assert urgent.wait(timeout=60) == 0
    pinned.wait(timeout=60)


def test_without_host_memory_no_lease_is_paused(start_daemon):
    daemon = start_parking(start_daemon, '[ledger]\nlimit = "256MiB"\n')
    batch = filled(daemon, "batch", "3GiB", "1GiB", "--tier", "batch")
    urgent = run(daemon, "urgent", "2GiB", "1GiB", "--tier", "interactive", seconds=1)
    wait_until(lambda: "host memory takes" in helps(daemon, "urgent"), "it says why not")
    assert "pausing" not in codes(daemon, "batch"), "a pause that does not fit is not begun"
    assert daemon.cli("stop", "batch").returncode == 0
    assert urgent.wait(timeout=60) == 0
    batch.wait(timeout=60)


def test_host_memory_for_one_of_two_victims_pauses_neither(start_daemon):
    daemon = start_parking(start_daemon, '[ledger]\nlimit = "2GiB"\n')
    batches = {tag: filled(daemon, tag, "1800MiB", "1GiB", "--tier", "batch") for tag in ("one", "two")}
    urgent = run(daemon, "urgent", "3600MiB", "1GiB", "--tier", "interactive", seconds=1)
    told = ("would have to be paused, but host memory takes no more than 2.0 GiB of parked bytes now, "
            "and they hold 3.5 GiB")
    wait_until(lambda: told in str(daemon.get("/v1/leases/urgent/why").body), "it says why not")
    preview = daemon.cli("preempt", "urgent", "--preview").stdout
    assert told in preview, preview
    seen = daemon.cards()["calls"].get("nvmlDeviceGetMemoryInfo_v2", 0)
    wait_until(lambda: daemon.cards()["calls"]["nvmlDeviceGetMemoryInfo_v2"] > seen + 5, "it is looked at again")
    assert not any("pausing" in codes(daemon, tag) for tag in batches), "a pause that does not fit is not begun"
    for tag, batch in batches.items():
        ends_well(daemon, tag, batch)
    assert urgent.wait(timeout=60) == 0


def test_an_idle_spot_program_is_ended_with_notice(start_daemon):
    daemon = start_parking(start_daemon, 'spot_unused_after = "15s"\n')
    spot = daemon.spawn("sublet", "run", "--vram", "3GiB", "--tag", "spot", "--tier", "spot", "--", "sleep", "600")
    until(daemon, "spot", "active")
    urgent = run(daemon, "urgent", "2GiB", "1GiB", "--tier", "critical", seconds=1)
    wait_until(lambda: "its program holds no memory on a card" in helps(daemon, "urgent"), "it says why not")
    assert lease_of(daemon, "spot")["state"] == "active", "it may only be importing"
    assert urgent.wait(timeout=90) == 0, urgent.communicate()
    assert until(daemon, "spot", "ended")["end_reason"] == "revoked"
    assert "its program has held nothing on a device for a while that could be parked" in \
        str(daemon.get("/v1/leases/spot/why")["reasons"][-2:])
    assert spot.wait(timeout=60) == 128 + signal.SIGTERM


def test_a_spot_program_is_not_ended_for_a_gap_in_its_use(start_daemon):
    daemon = start_parking(start_daemon, 'spot_unused_after = "5s"\n')
    script = "simgpu-load --alloc 2GiB --seconds 8; sleep 1; exec simgpu-load --alloc 2GiB --seconds 60"
    spot = daemon.spawn("sublet", "run", "--vram", "3GiB", "--tag", "spot", "--tier", "spot", "--", "sh", "-c", script)
    until(daemon, "spot", "active")
    wait_until(lambda: lease_of(daemon, "spot")["used_bytes"] > 0, "the first is on the card")
    wait_until(lambda: lease_of(daemon, "spot")["used_bytes"] == 0, "it is gone", timeout=60)
    urgent = run(daemon, "urgent", "2GiB", "1GiB", "--tier", "critical", seconds=1)
    assert urgent.wait(timeout=90) == 0, urgent.communicate()
    assert lease_of(daemon, "spot")["state"] != "ended", "it could be paused once it used its card again"
    daemon.cli("stop", "spot")
    spot.wait(timeout=60)


def test_a_spot_program_that_registers_late_is_paused_and_not_ended(daemon):
    spot = late(daemon, "spot", "3GiB", "2GiB")
    until(daemon, "spot", "active")
    urgent = run(daemon, "urgent", "2GiB", "1GiB", seconds=1)
    until_when = "has not registered as cooperative yet, and still may; it may be ended in about"
    wait_until(lambda: until_when in helps(daemon, "urgent"), "it says until when")
    preview = daemon.cli("run", "--dry-run", "--vram", "2GiB", "--", "true").stdout
    assert until_when in preview, preview
    spot.goes_on()
    assert urgent.wait(timeout=60) == 0, urgent.communicate()
    until(daemon, "spot", "active")
    assert {"cooperates", "paused", "resumed"} <= set(codes(daemon, "spot"))
    until_filled(daemon, "spot", "2GiB")
    ends_well(daemon, "spot", spot)


def test_a_token_spot_lease_has_time_to_register(daemon):
    api = daemon.api()
    spot = api.post("/v1/leases", {"vram_bytes": 3 * GIB, "ttl_seconds": 600, "tier": "spot"})
    urgent = run(daemon, "urgent", "2GiB", "1GiB", seconds=1)
    wait_until(lambda: "has not registered as cooperative yet" in helps(daemon, "urgent"), "it is asked for")
    with webhook() as how:
        assert api.post(f"/v1/leases/{spot['id']}/cooperate", how).status == 200
        assert urgent.wait(timeout=60) == 0, urgent.communicate()
        until(daemon, spot["id"], "active")
        assert {"paused", "resumed"} <= set(codes(daemon, spot["id"]))


def test_an_unused_spot_lease_ends_after_its_time_to_register(start_daemon):
    daemon = start_parking(start_daemon, 'spot_unused_after = "4s"\n')
    spot = daemon.api().post("/v1/leases", {"vram_bytes": 3 * GIB, "ttl_seconds": 600, "tier": "spot"})
    assert run(daemon, "urgent", "2GiB", "1GiB", seconds=1).wait(timeout=60) == 0
    assert until(daemon, spot["id"], "ended")["end_reason"] == "revoked"
    assert "no program said for 4 s how it frees its memory (`pause.spot_unused_after`)" in \
        str(daemon.get(f"/v1/leases/{spot['id']}/why")["reasons"][-1:])


def test_a_request_ends_no_equal_lease(daemon):
    pinned = filled(daemon, "pinned", "3GiB", "1GiB", "--tier", "spot", "--pausable", "no")
    equal = daemon.api().post("/v1/leases", {"vram_bytes": 3 << 30, "ttl_seconds": 600, "tier": "spot"})
    refused = daemon.cli("preempt", equal["id"])
    assert refused.returncode == 1 and "is ended for a higher tier only" in refused.stderr, refused.stderr
    assert lease_of(daemon, "pinned")["state"] == "active"
    ends_well(daemon, "pinned", pinned)


def test_a_spot_program_that_cannot_be_paused_is_ended_with_notice(daemon):
    spot = filled(daemon, "spot", "3GiB", "1GiB", "--tier", "spot", "--pausable", "no")
    urgent = run(daemon, "urgent", "2GiB", "1GiB", seconds=1)
    assert urgent.wait(timeout=60) == 0, urgent.communicate()
    ended = until(daemon, "spot", "ended")
    assert ended["end_reason"] == "revoked"
    assert "spot" in str(daemon.get("/v1/leases/spot/why")["reasons"][-2:])
    assert spot.wait(timeout=60) == 128 + signal.SIGTERM


def test_a_spot_program_that_host_memory_could_never_take_is_ended_with_notice(start_daemon):
    daemon = start_parking(start_daemon, '[ledger]\nlimit = "2GiB"\n')
    spot = filled(daemon, "spot", "3GiB", "1GiB", "--tier", "spot")
    preview = daemon.cli("run", "--dry-run", "--vram", "2GiB", "--", "true").stdout
    assert "cannot be paused" in preview, preview
    assert run(daemon, "urgent", "2GiB", "1GiB", seconds=1).wait(timeout=60) == 0
    assert until(daemon, "spot", "ended")["end_reason"] == "revoked"
    said = str(daemon.get("/v1/leases/spot/why")["reasons"][-2:])
    assert "host memory takes at most 2.0 GiB of its 3.0 GiB (`ledger.limit`)" in said
    assert spot.wait(timeout=60) == 128 + signal.SIGTERM


def in_the_middle(daemon, *asks):
    """Starts a victim whose pause hangs until `daemon.ctl("clear")`, and its preemptor; returns both."""
    batch = filled(daemon, "batch", "3GiB", "2GiB", "--tier", "batch")
    daemon.ctl("fault", "checkpoint-hang")
    urgent = run(daemon, "urgent", *asks, "--tier", "interactive", seconds=1)
    until(daemon, "batch", "pausing")
    return batch, urgent


def back_and_whole(daemon, batch):
    until(daemon, "batch", "active")
    ends_well(daemon, "batch", batch)
    assert daemon.get("/v1/ledger")["entries"] == []


def test_the_preemptor_leaves_during_the_pause(daemon):
    batch, urgent = in_the_middle(daemon, "2GiB", "1GiB")
    urgent.send_signal(signal.SIGINT)
    assert urgent.wait(timeout=60) == 130
    daemon.ctl("clear")
    back_and_whole(daemon, batch)


def test_an_unleased_process_takes_the_memory_and_is_named(daemon):
    batch, urgent = in_the_middle(daemon, "3GiB", "2GiB")
    unleased = daemon.spawn("simgpu-load", "--alloc", "900MiB", "--seconds", "600")
    wait_until(lambda: daemon.get("/v1/devices")["devices"][0]["other_bytes"] >= 900 * MIB, "it is there")
    daemon.ctl("clear")
    until(daemon, "batch", "paused", "resuming", "active")
    said = wait_until(lambda: (lambda text: text if f"pid {unleased.pid}" in text else None)(
        str(daemon.get("/v1/leases/urgent/why").body)), "the unleased process is named")
    assert "still held" not in str(daemon.get("/v1/leases/batch/why").body), said
    unleased.kill()
    unleased.wait()
    assert urgent.wait(timeout=60) == 0, urgent.communicate()
    back_and_whole(daemon, batch)


def test_a_killed_daemon_finishes_or_undoes_the_pause(daemon):
    batch, urgent = in_the_middle(daemon, "2GiB", "1GiB")
    daemon.kill()
    daemon.ctl("clear")
    daemon.start()
    assert urgent.wait(timeout=90) == 0, urgent.communicate()
    back_and_whole(daemon, batch)


def test_every_time_slice_is_announced(daemon):
    children = {"first": filled(daemon, "first", "2500MiB", "2GiB"), "second": run(daemon, "second", "2500MiB", "2GiB")}
    for waits, has in (("second", "first"), ("first", "second"), ("second", "first")):
        def is_told():
            eta = (lease_of(daemon, waits).get("queue") or {}).get("eta_seconds")
            return eta is not None and lease_of(daemon, has).get("next_slice_seconds") is not None
        wait_until(is_told, f"{waits} is told when its turn comes, and {has} when it leaves")
        until(daemon, waits, "active")
    for tag, child in children.items():
        until_filled(daemon, tag, "2GiB")
        ends_well(daemon, tag, child)


def test_a_later_time_slice_tells_the_order(daemon):
    children = {"first": filled(daemon, "first", "2500MiB", "1GiB")}
    for tag in ("second", "third"):
        children[tag] = run(daemon, tag, "2500MiB", "1GiB")
        wait_until(lambda tag=tag: lease_of(daemon, tag).get("state") == "queued", f"{tag} waits")

    def is_told():
        queues = [lease_of(daemon, tag).get("queue") or {} for tag in ("second", "third")]
        etas = [queue.get("eta_seconds") for queue in queues]
        slices = [re.search(r"its time slice begins then: lease-\d", queue.get("basis") or "") for queue in queues]
        return all(slices) and None not in etas and etas[0] != etas[1]

    wait_until(is_told, "one of them comes after the other")
    for tag, child in children.items():
        until_filled(daemon, tag, "1GiB")
        ends_well(daemon, tag, child)


def test_no_time_slice_pauses_a_lease_that_ends_soon(start_daemon):
    """A pause and a resume would take as long as the lease's remaining time, and gain nothing."""
    config = ('[gpu]\ninterval_idle = "300ms"\ninterval_busy = "100ms"\n'
              '[pause]\nmin_residency = "10s"\nslice_overhead = 1.0\n')
    daemon = start_daemon("1x4GiB,checkpoint_us=3000000,restore_us=3000000", config=config)
    first = filled(daemon, "first", "2500MiB", "1GiB", "--ttl", "11s")
    second = run(daemon, "second", "2500MiB", "1GiB")
    until(daemon, "second", "queued")
    assert lease_of(daemon, "first")["state"] == "active", "its time was up before anybody waited: nothing is proven"
    until_filled(daemon, "second", "1GiB")
    assert "pausing" not in codes(daemon, "first"), codes(daemon, "first")
    ends_well(daemon, "second", second)
    first.wait(60)


def test_an_equal_and_a_lower_tier_are_paused_together(daemon):
    equal = filled(daemon, "equal", "1800MiB", "1GiB")
    low = filled(daemon, "low", "1800MiB", "1GiB", "--tier", "batch")
    both = run(daemon, "both", "3500MiB", "1GiB")
    until_filled(daemon, "both", "1GiB")
    reasons = {tag: str(daemon.get(f"/v1/leases/{tag}/why").body.get("reasons")) for tag in ("equal", "low")}
    assert "time slice of" in reasons["equal"]
    assert "preempted for" in reasons["low"]
    ends_well(daemon, "both", both)
    for tag, child in (("equal", equal), ("low", low)):
        until_filled(daemon, tag, "1GiB")
        ends_well(daemon, tag, child)
    assert daemon.get("/v1/ledger")["entries"] == []


def test_equal_leases_take_time_slices(daemon):
    first = filled(daemon, "first", "2500MiB", "2GiB")
    second = run(daemon, "second", "2500MiB", "2GiB")
    until(daemon, "second", "active")
    assert "pausing" in codes(daemon, "first")
    assert "time slice of" in str(daemon.get("/v1/leases/first/why").body)
    wait_until(lambda: lease_of(daemon, "second").get("next_slice_seconds") is not None
               or lease_of(daemon, "first")["state"] == "active", "the next time slice is announced")
    until(daemon, "first", "active")
    ends_well(daemon, "first", first)
    until_filled(daemon, "second", "2GiB")
    ends_well(daemon, "second", second)
    assert daemon.get("/v1/ledger")["entries"] == []


def test_leases_of_whole_cards_take_time_slices(start_daemon):
    daemon = start_daemon("1x4GiB", config='[gpu]\ninterval_idle = "300ms"\ninterval_busy = "100ms"\n')
    quick_checkpoints(daemon)
    load = ("--", "simgpu-load", "--alloc", "512MiB", "--seconds", "600", "--verify")
    batch = daemon.spawn("sublet", "run", "--tag", "batch", "--tier", "batch", *load)
    until_filled(daemon, "batch", "512MiB")
    urgent = daemon.spawn("sublet", "run", "--tag", "urgent", "--name", "infer", "--tier", "interactive", *load)
    until(daemon, "batch", "paused")
    until_filled(daemon, "urgent", "512MiB")
    assert lease_of(daemon, "urgent")["vram_bytes"] == lease_of(daemon, "batch")["vram_bytes"]
    ends_well(daemon, "urgent", urgent)
    until(daemon, "batch", "active")
    ends_well(daemon, "batch", batch)
