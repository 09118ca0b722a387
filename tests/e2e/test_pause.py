# SPDX-License-Identifier: Apache-2.0
"""Programs are paused and resumed by hand: through the driver, verified, with their bytes intact."""
import os
import signal

import pytest

from tests.support.parking import ends_well, lease_of, quick_checkpoints, trace, until, until_filled, used_on_card
from tests.support.sublet import GIB, MIB, living, wait_until

CONFIG = ('[gpu]\ninterval_idle = "300ms"\ninterval_busy = "100ms"\n'
          '[lease]\nlinger = "500ms"\nreconnect = "5s"\ngrace = "5s"\n[pause]\nverify_timeout = "2s"\n')


@pytest.fixture
def daemon(start_daemon):
    daemon = start_daemon("1x4GiB", config=CONFIG)
    quick_checkpoints(daemon)
    return daemon


def start(daemon, tag, size="2GiB", alloc="1GiB", *more):
    """A program that fills `alloc` of the card and checks every byte of it until it is stopped."""
    program = daemon.spawn("sublet", "run", "--vram", size, "--tag", tag, "--", "simgpu-load", "--alloc", alloc,
                           "--seconds", "600", "--verify", *more)
    until_filled(daemon, tag, alloc)
    return program


def test_processes_started_while_paused_do_not_fail_the_restore(daemon, tmp_path):
    '''A restore without memory would fail for good, and a restore into other leases' memory would take it from them.'''
    # A pipe for each word: the writer of the first may still have it open when the second is awaited.
    more, enough = tmp_path / "more", tmp_path / "enough"
    for pipe in (more, enough):
        os.mkfifo(pipe)
    script = (f"simgpu-load --alloc 1GiB --seconds 600 --verify & first=$!; read line < {more}; "
              "simgpu-load --alloc 1GiB --seconds 600 & second=$!; "
              f"read line < {enough}; kill $first; wait $first; code=$?; kill $second; exit $code")
    program = daemon.spawn("sublet", "run", "--vram", "1500MiB", "--tag", "tree", "--", "sh", "-c", script)
    until_filled(daemon, "tree", "1GiB")
    assert daemon.cli("pause", "tree").returncode == 0
    other = start(daemon, "other", "1700MiB", "1400MiB")
    more.write_text("now\n")
    wait_until(lambda: lease_of(daemon, "tree")["used_bytes"] >= GIB, "a process of it that is not parked takes memory")
    asked = daemon.spawn("sublet", "resume", "tree")

    def why():
        return str(daemon.get("/v1/leases/tree/why")["reasons"])

    wait_until(lambda: "more that its processes hold above its size" in why(), "it is told what it waits for")
    assert lease_of(daemon, "tree")["state"] == "paused", "the other may use all of its room: " + why()
    os.kill(lease_of(daemon, "other")["owner"]["pid"], signal.SIGTERM)
    other.wait(60)
    until(daemon, "tree", "active")
    assert asked.wait(60) == 0, asked.communicate()
    enough.write_text("now\n")
    assert program.wait(60) == 128 + signal.SIGTERM, f"every byte is as it was: {program.communicate()}"


def test_a_restore_without_listed_bytes_stays_charged(start_daemon):
    """The simulated driver lists a process in a restore only once it has all of its bytes."""
    daemon = start_daemon("1x4GiB,restore_us=4000000", config=CONFIG)
    train = start(daemon, "train", "3GiB", "2500MiB")
    free = daemon.get("/v1/devices")["devices"][0]["effective_free_bytes"]
    assert daemon.cli("pause", "train").returncode == 0
    assert daemon.cli("resume", "train", "--no-wait").returncode == 0

    def comes_back():
        card = daemon.get("/v1/devices")["devices"][0]
        assert card["problem"] is None and card["other_bytes"] == 0, card
        assert lease_of(daemon, "train")["state"] == "resuming", "it was seen too late"
        return card if card["used_bytes"] >= 2 * GIB else None

    card = wait_until(comes_back, "its bytes are on the card, and it is in no list")
    assert card["effective_free_bytes"] == free
    granted = daemon.cli("run", "--vram", "256MiB", "--no-wait", "--", "true")
    assert granted.returncode == 0, granted.stderr
    until(daemon, "train", "active")
    ends_well(daemon, "train", train)


def test_a_paused_program_gives_its_memory_and_gets_it_back(daemon):
    first = start(daemon, "first", "2GiB", "1GiB", "--json")
    done = daemon.cli("pause", "first")
    assert done.returncode == 0 and "is paused" in done.stderr, done.stderr
    paused = lease_of(daemon, "first")
    assert paused["state"] == "paused" and paused["reserved_bytes"] <= 64 * MIB and paused["used_bytes"] == 0
    assert paused["pause"]["method"] == "driver" and paused["pause"]["reason"] == "requested by its owner"
    assert used_on_card(daemon) < 64 * MIB
    ledger = daemon.get("/v1/ledger")
    assert [entry["lease"] for entry in ledger["entries"]] == [paused["id"]] and ledger["entries"][0]["settled"]
    # Another program takes the memory, and the first program's wait to resume does not disturb it.
    second = start(daemon, "second", "3GiB", "2GiB")
    done = daemon.cli("resume", "first", "--no-wait")
    assert done.returncode == 0 and "waits for memory, at place 1" in done.stderr, done.stderr
    assert [row["id"] for row in daemon.get("/v1/queue")["queue"]] == [paused["id"]]
    ends_well(daemon, "second", second)
    until(daemon, "first", "active")
    ends_well(daemon, "first", first)
    assert daemon.get("/v1/ledger")["entries"] == []


def test_whole_trees(daemon, tmp_path):
    enough = tmp_path / "enough"
    os.mkfifo(enough)
    one = "simgpu-load --alloc 600MiB --seconds 600 --verify"
    script = (f"{one} & first=$!; {one} & second=$!; read line < {enough}; kill $first $second; "
              "wait $first; code=$?; wait $second; [ $? = $code ] || exit 1; exit $code")
    tree = daemon.spawn("sublet", "run", "--vram", "3GiB", "--tag", "tree", "--", "sh", "-c", script)
    wait_until(lambda: lease_of(daemon, "tree").get("used_bytes", 0) >= 2 * (600 + 256) * MIB, "both have filled it")
    assert daemon.cli("pause", "tree").returncode == 0
    assert used_on_card(daemon) < 64 * MIB
    assert daemon.cli("resume", "tree").returncode == 0
    enough.write_text("it is\n")
    assert tree.wait(timeout=60) == 128 + signal.SIGTERM, tree.communicate()[1]


def test_many_processes_and_many_leases_are_measured_gone_at_once(start_daemon):
    """The driver keeps a little memory of each parked process, on no list: so many of them hide no process."""
    daemon = start_daemon("1x4GiB,context_bytes=16777216", config=CONFIG)
    quick_checkpoints(daemon)
    workers = ("for i in $(seq 20); do simgpu-load --alloc 16MiB --seconds 600 & done; "
               "trap 'kill $(jobs -p); wait; exit 0' TERM; while :; do wait; done")
    tree = daemon.spawn("sublet", "run", "--vram", "1500MiB", "--tag", "tree", "--", "bash", "-c", workers)
    small = {f"small{i}": daemon.spawn("sublet", "run", "--vram", "100MiB", "--tag", f"small{i}", "--", "simgpu-load",
                                       "--alloc", "48MiB", "--seconds", "600", "--verify") for i in range(18)}
    wait_until(lambda: lease_of(daemon, "tree").get("used_bytes", 0) >= 20 * 32 * MIB, "all of them use the card")
    for tag in small:
        wait_until(lambda tag=tag: lease_of(daemon, tag).get("used_bytes", 0) >= 64 * MIB, f"{tag} uses it too")
    for tag in ("tree", *small):
        assert daemon.cli("pause", tag, "--no-wait").returncode == 0
    for tag in ("tree", *small):
        until(daemon, tag, "paused")
    for tag, child in small.items():
        assert daemon.cli("resume", tag).returncode == 0
        ends_well(daemon, tag, child)
    assert daemon.cli("resume", "tree").returncode == 0
    os.kill(lease_of(daemon, "tree")["owner"]["pid"], signal.SIGTERM)
    assert tree.wait(60) == 0, tree.communicate()


def test_a_paused_program_is_parked_over_a_restart(daemon):
    program = start(daemon, "patient")
    assert daemon.cli("pause", "patient").returncode == 0
    daemon.kill()
    daemon.start()
    assert until(daemon, "patient", "paused")["parked_bytes"] > 0
    assert used_on_card(daemon) < 64 * MIB
    done = daemon.cli("resume", "patient")
    assert done.returncode == 0 and "runs again" in done.stderr, done.stderr
    assert program.poll() is None
    done = daemon.cli("resume", "patient")
    assert done.returncode == 0 and "is running already" in done.stderr, done.stderr


def test_stop_brings_it_back_first(daemon):
    program = start(daemon, "first")
    assert daemon.cli("pause", "first").returncode == 0
    refused = daemon.cli("release", "first")
    assert refused.returncode == 1 and "resume it first" in refused.stderr, refused.stderr
    assert daemon.cli("stop", "first").returncode == 0
    assert program.wait(timeout=60) == 128 + signal.SIGTERM
    codes = [reason["code"] for reason in daemon.get("/v1/leases/first/why")["reasons"]]
    assert codes.index("resumed") > codes.index("stopping"), codes


def test_a_signal_that_waits_for_the_resume_is_reported(daemon):
    program = start(daemon, "first")
    assert daemon.cli("pause", "first").returncode == 0
    program.send_signal(signal.SIGINT)
    line = next(line for line in program.stderr if "SIGINT" in line)
    assert "lease-1 is paused: its program got SIGINT" in line, line
    assert "`sublet resume lease-1`" in line, line
    assert lease_of(daemon, "first")["state"] == "paused"
    assert daemon.cli("resume", "first").returncode in (0, 1), "it may have ended before that is seen"
    assert program.wait(timeout=60) == 128 + signal.SIGINT, "then it acts on it"


def test_dies_while_it_is_parked(daemon):
    program = start(daemon, "mortal")
    assert daemon.cli("pause", "mortal").returncode == 0
    os.kill(lease_of(daemon, "mortal")["owner"]["pid"], signal.SIGKILL)
    assert until(daemon, "mortal", "ended")["end_reason"] == "owner_gone"
    assert program.wait(timeout=60) == 128 + signal.SIGKILL
    assert daemon.get("/v1/ledger")["entries"] == []
    wait_until(lambda: used_on_card(daemon) == 0, "nothing of it is left on the card")


def test_an_impossible_pause_is_refused(daemon):
    api = daemon.api()
    held = api.post("/v1/leases", {"vram_bytes": GIB, "ttl_seconds": 600})
    refused = api.post(f"/v1/leases/{held['id']}/pause", {})
    assert (refused.status, refused["code"]) == (409, "PauseUnsafe") and "no program" in refused["detail"]
    start(daemon, "pinned", "2GiB", "1GiB")
    pinned = daemon.spawn("sublet", "run", "--vram", "500MiB", "--tag", "no", "--pausable", "no", "--", "sleep", "600")
    until(daemon, "no", "active")
    wait_until(lambda: lease_of(daemon, "no")["owner"]["kind"] == "process", "it owns its lease")
    done = daemon.cli("pause", "no")
    assert done.returncode == 1 and "pinned" in done.stderr, done.stderr
    assert pinned.poll() is None


def test_host_memory_is_not_promised_twice(start_daemon):
    daemon = start_daemon("1x4GiB", config=CONFIG + '[ledger]\nlimit = "1GiB"\n')
    start(daemon, "large")
    refused = daemon.api().post("/v1/leases/large/pause", {})
    assert (refused.status, refused["code"]) == (409, "HostMemory") and "1.0 GiB" in refused["detail"]
    assert lease_of(daemon, "large")["state"] == "active"


def test_a_traced_program_is_left_alone(daemon):
    # The driver refuses a process that a debugger holds; nothing of it is touched.
    program = start(daemon, "traced")
    pid = lease_of(daemon, "traced")["owner"]["pid"]
    tracer = trace(daemon, pid)
    done = daemon.cli("pause", "traced")
    assert done.returncode == 1, done.stderr
    said = f"it was not paused: a debugger (pid {tracer.pid}) is attached to process {pid}"
    assert said in done.stderr and "hint: detach the debugger" in done.stderr, done.stderr
    assert "rest" not in done.stderr, f"nothing of it was touched: {done.stderr}"
    assert "to pause it: detach the debugger" in daemon.cli("why", "traced").stdout
    assert lease_of(daemon, "traced")["state"] == "active" and program.poll() is None
    tracer.kill()
    tracer.wait()
    assert daemon.cli("pause", "traced").returncode == 0
    assert daemon.cli("resume", "traced").returncode == 0
    assert daemon.get("/v1/leases/traced/why")["helps"] == []
    ends_well(daemon, "traced", program)
    assert f"lease-1 runs on: {said}" in program.communicate()[1]


def test_a_debugger_only_delays_the_resume(daemon):
    program = start(daemon, "traced")
    pid = lease_of(daemon, "traced")["owner"]["pid"]
    assert daemon.cli("pause", "traced").returncode == 0
    tracer = trace(daemon, pid)
    daemon.cli("resume", "traced", "--no-wait")
    told = f"a debugger (pid {tracer.pid}) is attached to process {pid}"
    wait_until(lambda: told in why(daemon, "traced"), "why it does not come back")
    assert lease_of(daemon, "traced")["state"] == "resuming"
    assert daemon.cards()["calls"].get("cuCheckpointProcessRestore", 0) == 0, "the driver is not asked for it"
    tracer.kill()
    tracer.wait()
    until(daemon, "traced", "active")
    ends_well(daemon, "traced", program)


def test_a_delayed_resume_tells_its_reason(daemon):
    program = start(daemon, "still")
    pid = lease_of(daemon, "still")["owner"]["pid"]
    assert daemon.cli("pause", "still").returncode == 0
    assert lease_of(daemon, "still")["pause"]["problem"] is None
    os.kill(pid, signal.SIGSTOP)
    daemon.cli("resume", "still", "--no-wait")
    told = f"process {pid} is stopped or frozen"
    now = wait_until(lambda: (lambda pause: pause if pause["problem"] else None)(lease_of(daemon, "still")["pause"]),
                     "what is in the way")
    assert now["problem"].startswith(told), now
    waits = daemon.cli("resume", "still", "--wait", "1s")
    assert waits.returncode == 124 and f"is not running again yet: {told}" in waits.stderr, waits.stderr
    for words in (["ps"], ["why", "still"]):
        assert f"is not running again yet: {told}" in daemon.cli(*words, COLUMNS="300").stdout
    os.kill(pid, signal.SIGCONT)
    until(daemon, "still", "active")
    ends_well(daemon, "still", program)


def test_a_checkpoint_that_fails_is_undone(daemon):
    program = start(daemon, "first")
    daemon.ctl("fault", "checkpoint-fail")
    done = daemon.cli("pause", "first")
    assert done.returncode == 1, done.stderr
    assert lease_of(daemon, "first")["state"] == "active" and lease_of(daemon, "first")["pause"] is None
    daemon.ctl("clear")
    wait_until(lambda: used_on_card(daemon) > GIB, "its bytes never left the card")
    assert program.poll() is None


def why(daemon, tag):
    return str(daemon.get(f"/v1/leases/{tag}/why")["reasons"])


def test_half_a_pause_is_undone_only_into_free_memory(daemon):
    '''One of two processes is parked, the other cannot be, and an unleased process took the memory of the first.'''
    one = "simgpu-load --alloc 1GiB --seconds 600 --verify"
    program = daemon.spawn("sublet", "run", "--vram", "3GiB", "--tag", "two", "--", "sh", "-c",
                           f"{one} & first=$!; {one}; code=$?; kill $first; wait $first && exit 1; exit $code")
    wait_until(lambda: lease_of(daemon, "two").get("used_bytes", 0) >= 2 * (GIB + 256 * MIB),
               "both have filled their memory")
    pids = [row["pid"] for row in daemon.get("/v1/processes")["processes"]]
    daemon.ctl("fault", "checkpoint-hang", "--pid", max(pids))
    asked = daemon.spawn("sublet", "pause", "two")
    wait_until(lambda: used_on_card(daemon) < 2 * GIB, "one of them is parked")
    unleased = daemon.spawn("simgpu-load", "--alloc", "2400MiB", "--seconds", "600")
    wait_until(lambda: used_on_card(daemon) > 3 * GIB + 600 * MIB,
               "somebody without a lease has taken its room")
    daemon.ctl("fault", "checkpoint-fail", "--pid", max(pids))
    daemon.ctl("clear", "checkpoint-hang")
    wait_until(lambda: "its program does not run yet" in why(daemon, "two"), "it is told that there is no room")
    assert lease_of(daemon, "two")["state"] == "resuming", why(daemon, "two")
    assert str(unleased.pid) in why(daemon, "two"), "and who is in the way"
    daemon.ctl("clear")
    os.kill(unleased.pid, signal.SIGTERM)
    until(daemon, "two", "active")
    assert asked.wait(60) == 1, asked.communicate()
    assert daemon.get("/v1/ledger")["entries"] == []
    os.kill(max(pids), signal.SIGTERM)
    assert program.wait(60) == 128 + signal.SIGTERM, f"every byte is as it was: {program.communicate()}"
    said = program.communicate()[1]
    assert "lease-1 runs again: its pause was undone: " in said and "checkpoint of process" in said, said


def test_half_a_pause_over_a_restart_needs_the_parked_bytes_alone(daemon):
    '''One of two processes is parked. The memory is enough for that process beside the other, but not for the whole
    lease.
    '''
    one = "simgpu-load --alloc 1GiB --seconds 600 --verify"
    program = daemon.spawn("sublet", "run", "--vram", "3GiB", "--tag", "two", "--", "sh", "-c",
                           f"{one} & first=$!; {one}; code=$?; kill $first; wait $first && exit 1; exit $code")
    wait_until(lambda: lease_of(daemon, "two").get("used_bytes", 0) >= 2 * (GIB + 256 * MIB),
               "both have filled their memory")
    pids = [row["pid"] for row in daemon.get("/v1/processes")["processes"]]
    daemon.ctl("fault", "checkpoint-hang", "--pid", max(pids))
    daemon.spawn("sublet", "pause", "two")
    wait_until(lambda: used_on_card(daemon) < 2 * GIB, "one of them is parked")
    daemon.kill()
    daemon.ctl("fault", "checkpoint-fail", "--pid", max(pids))
    daemon.ctl("clear", "checkpoint-hang")
    unleased = daemon.spawn("simgpu-load", "--alloc", "512MiB", "--seconds", "600")
    daemon.start()
    until(daemon, "two", "active")
    assert daemon.get("/v1/ledger")["entries"] == [] and unleased.poll() is None
    os.kill(max(pids), signal.SIGTERM)
    assert program.wait(60) == 128 + signal.SIGTERM, f"every byte is as it was: {program.communicate()}"


def test_bytes_beyond_the_lease_count_after_a_restart_too(daemon):
    program = start(daemon, "greedy", "1GiB", "1700MiB")
    wait_until(lambda: lease_of(daemon, "greedy")["used_bytes"] >= 1700 * MIB, "it holds more than its lease")
    assert daemon.cli("pause", "greedy").returncode == 0
    other = start(daemon, "other", "2500MiB", "600MiB")
    daemon.kill()
    daemon.start()
    wait_until(lambda: daemon.get("/v1/devices")["devices"][0]["state"] == "ok", "the card is read again")
    assert daemon.cli("resume", "greedy", "--no-wait").returncode == 0
    wait_until(lambda: "more that its processes hold above its size" in why(daemon, "greedy"),
               "it is told what it waits for")
    assert lease_of(daemon, "greedy")["state"] == "paused", "the other may use all of its room"
    os.kill(lease_of(daemon, "other")["owner"]["pid"], signal.SIGTERM)
    other.wait(60)
    until(daemon, "greedy", "active")
    os.kill(lease_of(daemon, "greedy")["owner"]["pid"], signal.SIGTERM)
    assert program.wait(60) == 128 + signal.SIGTERM, f"every byte is as it was: {program.communicate()}"


def test_a_lease_of_the_whole_card_resumes_beside_an_unleased_process(daemon):
    '''There is memory for the resume and for little else. Neither the margin, nor the context of the helper that
    reserves the memory, nor the driver's unlisted residue of a parked process may prevent it.
    '''
    daemon.spawn("simgpu-load", "--alloc", "200MiB", "--seconds", "600")
    wait_until(lambda: used_on_card(daemon) > 200 * MIB, "an unleased process is there")
    free = wait_until(lambda: (lambda card: card["effective_free_bytes"] if card["other_bytes"] > 200 * MIB else 0)(
        daemon.get("/v1/devices")["devices"][0]), "and counted")
    context = 4 * GIB // 16
    program = start(daemon, "whole", f"{free // MIB}MiB", f"{(free - context) // MIB - 8}MiB")
    wait_until(lambda: lease_of(daemon, "whole")["used_bytes"] > free - 64 * MIB, "it uses all that it has")
    assert daemon.cli("pause", "whole").returncode == 0
    assert daemon.cli("resume", "whole").returncode == 0, why(daemon, "whole")
    assert lease_of(daemon, "whole")["state"] == "active"
    os.kill(lease_of(daemon, "whole")["owner"]["pid"], signal.SIGTERM)
    assert program.wait(60) == 128 + signal.SIGTERM, program.communicate()


def test_a_failed_restore_is_final_and_reported(daemon):
    program = start(daemon, "unlucky")
    assert daemon.cli("pause", "unlucky").returncode == 0
    daemon.ctl("fault", "restore-fail")
    done = daemon.cli("resume", "unlucky")
    assert done.returncode == 1 and "poisoned" in done.stderr, done.stderr
    refused = daemon.api().post("/v1/leases/unlucky/resume", {})
    assert (refused.status, refused["code"]) == (409, "PauseUnsafe") and "never" not in refused["hint"]
    pid = lease_of(daemon, "unlucky")["owner"]["pid"]
    assert living(pid), "never killed by us"
    assert daemon.cli("stop", "unlucky").returncode == 0, "but on its owner's word"
    assert program.wait(timeout=60) != 0 and not living(pid)


def test_an_unleased_process_blocks_the_restore_and_is_named(daemon):
    start(daemon, "first", "3GiB")
    assert daemon.cli("pause", "first").returncode == 0
    unleased = daemon.spawn("simgpu-load", "--alloc", "2GiB", "--seconds", "600")
    wait_until(lambda: used_on_card(daemon) > 2 * GIB, "somebody without a lease took the room")
    done = daemon.cli("resume", "first", "--no-wait")
    assert done.returncode == 0, done.stderr
    queue = lease_of(daemon, "first")["queue"]
    assert any(str(unleased.pid) in holder["what"] for holder in queue["holders"]), queue
    assert lease_of(daemon, "first")["state"] == "paused"
    unleased.kill()
    until(daemon, "first", "active")


def test_a_forced_stop_does_not_wait_for_the_resume(daemon):
    program = start(daemon, "large")
    assert daemon.cli("pause", "large").returncode == 0
    other = daemon.spawn("sublet", "run", "--vram", "3GiB", "--tag", "other", "--", "sleep", "600")
    until(daemon, "other", "active")
    assert daemon.cli("stop", "large", "--no-wait").returncode == 0
    wait_until(lambda: lease_of(daemon, "large")["queue"], "it waits for its room, to save its work then")
    assert program.poll() is None
    assert daemon.cli("stop", "large", "--force").returncode == 0
    assert program.wait(timeout=60) != 0
    assert lease_of(daemon, "large")["state"] == "ended" and lease_of(daemon, "other")["state"] == "active"
    assert daemon.get("/v1/ledger")["entries"] == []
    assert daemon.cli("stop", "other").returncode == 0
    other.wait(timeout=60)


def test_why_tells_the_method_and_why_not_the_others(daemon):
    program = start(daemon, "works")
    methods = {its["method"]: its for its in daemon.get("/v1/leases/works/why")["pause_methods"]}
    assert [name for name, its in methods.items() if its["chosen"]] == ["driver"]
    assert methods["driver"]["why_not"] is None
    assert methods["cooperative"]["why_not"] == "its program has not registered as cooperative"
    said = daemon.cli("why", "works").stdout
    assert "Pause method: driver\n  - not cooperative: its program has not registered as cooperative\n" in said
    program.send_signal(signal.SIGTERM)
    program.wait(60)
