# SPDX-License-Identifier: Apache-2.0
"""`sublet run` as a parent: exit statuses, signals, the terminal, the whole tree, restarts of the daemon, its own death.

The programs are shell scripts: what a keeper does has nothing to do with what its program computes.
"""
import json
import os
import re
import signal
import subprocess

import pytest

from tests.support.sublet import BIN, wait_until
from tests.support.terminal import Shell

SUBLET = BIN / "sublet"


@pytest.fixture
def daemon(start_daemon):
    """A private daemon with one small simulated card, and short periods so that tests of them are short."""
    return start_daemon("1x4GiB", config='[lease]\ngrace = "1s"\nlinger = "1s"\n[gpu]\ninterval_idle = "1s"\n')


def lease(daemon, name):
    api = daemon.api()
    try:
        return api.lease(name)
    finally:
        api.close()


def ended(daemon, name):
    """The lease, once it has ended."""
    return wait_until(lambda: (now := lease(daemon, name))["state"] == "ended" and now, f"{name} ends")


def wait_file(path, text=""):
    """Waits until the file holds something, and `text`; its content."""
    def content():
        try:
            found = path.read_text()
        except FileNotFoundError:
            return None
        return found if text in found else None
    return wait_until(content, f"{path} holds {text!r}")


def read_until(stream, text):
    """Reads lines until one holds `text`; that line."""
    lines = []
    while not lines or text not in lines[-1]:
        lines.append(stream.readline())
        assert lines[-1], lines
    return lines[-1]


# ------------------------------------------------------------------------------------------- exit status

@pytest.mark.parametrize("command, status", [
    (["true"], 0),
    (["sh", "-c", "exit 7"], 7),
    (["sh", "-c", "exit 255"], 255),
    (["sh", "-c", "kill -TERM $$"], 128 + signal.SIGTERM),
    (["sh", "-c", "kill -KILL $$"], 128 + signal.SIGKILL),
    (["sh", "-c", "kill -INT $$"], 128 + signal.SIGINT),
])
def test_exit_status_is_the_programs(daemon, command, status):
    done = daemon.cli("run", "--vram", "64MiB", "--tag", "it", "--", *command)
    assert done.returncode == status, done.stderr
    assert done.stdout == ""
    now = lease(daemon, "it")
    assert now["state"] == "ended"
    assert now["exit_status"] == status


def test_what_cannot_be_executed(daemon, tmp_path):
    plain = tmp_path / "plain"
    plain.write_text("x")
    broken = tmp_path / "broken"
    broken.write_text("#!/no/such/interpreter\n")
    broken.chmod(0o755)
    for program, status in [("no-such-program-here", 127), (str(plain), 126), (str(tmp_path), 126)]:
        done = daemon.cli("run", "--vram", "64MiB", "--", program)
        assert done.returncode == status, done.stderr
        assert program in done.stderr
    assert daemon.leases(all=True) == []  # found out before anything was asked for
    done = daemon.cli("run", "--vram", "64MiB", "--tag", "broken", "--", str(broken))
    assert done.returncode == 127, done.stderr
    assert lease(daemon, "broken")["end_reason"] == "failed"


def test_arguments_and_streams_are_untouched(daemon):
    words = ["[1,2]", "", "--json", "a b", "%%", "-m", "ü", "{}"]
    done = daemon.cli("run", "--vram", "64MiB", "--", "sh", "-c", 'cat; printf "%s|" "$@"; echo err >&2', "sh", *words,
                      input="in\n")
    assert done.stdout == "in\n" + "".join(word + "|" for word in words)
    assert "err\n" in done.stderr


def test_environment(daemon):
    done = daemon.cli("run", "--vram", "64MiB", "--tag", "env", "--", "env")
    values = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    now = lease(daemon, "env")
    assert values["CUDA_VISIBLE_DEVICES"] == now["devices"][0]
    assert values["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert values["SUBLET_LEASE"] == now["id"]
    assert values["SUBLET_LEASE_BYTES"] == str(64 << 20)
    assert values["SUBLET_HOST"] == f"unix://{daemon.socket}"
    assert "SUBLET_SOCKET" not in values
    for name, value in daemon.api().get("/v1/status")["program_env"].items():
        assert values[name].split(":")[0] == value.split(":")[0]


def test_refusals(daemon, tmp_path):
    def code(*arguments):
        return daemon.cli(*arguments).returncode
    assert code("run", "--vram", "64MiB", "true") == 2  # no --
    assert code("run", "--vram", "64MiB", "--") == 2
    assert code("run", "--vran", "64MiB", "--", "true") == 2
    assert code("run", "--vram", "-1", "--", "true") == 2
    assert code("run", "--detach", "--", "true") == 2
    assert code("run", "--vram", "64MiB", "--status-fd", "77", "--", "true") == 2
    assert code("run", "--vram", "100GiB", "--", "true") == 125
    assert "did you mean '--vram'" in daemon.cli("run", "--vran", "1G", "--", "true").stderr
    missing = daemon.cli("--host", f"unix://{tmp_path}/none.sock", "run", "--vram", "1GiB", "--", "true")
    assert missing.returncode == 69
    assert "hint:" in missing.stderr


# ------------------------------------------------------------------------------------------- signals

RECORDER = """
for s in INT TERM HUP QUIT USR1; do trap "echo $s >> '{out}'" $s; done
trap 'exit 9' USR2
echo ready > '{ready}'
while :; do sleep 0.05; done
"""


def test_signals_are_passed_on_once(daemon, tmp_path):
    out, ready = tmp_path / "out", tmp_path / "ready"
    run = daemon.spawn("sublet", "run", "--vram", "64MiB", "--", "bash", "-c", RECORDER.format(out=out, ready=ready))
    wait_file(ready)
    names = ["INT", "TERM", "HUP", "QUIT", "USR1"]
    for count, name in enumerate(names, 1):
        run.send_signal(getattr(signal, "SIG" + name))
        wait_until(lambda: out.exists() and len(out.read_text().split()) >= count, f"{name} to arrive")
    run.send_signal(signal.SIGUSR2)
    assert run.wait(timeout=60) == 9
    assert out.read_text().split() == names


def test_what_the_caller_ignores_stays_ignored(daemon, tmp_path):
    ready = tmp_path / "ready"
    run = daemon.spawn("sublet", "run", "--vram", "64MiB", "--", "sh", "-c", f"grep SigIgn /proc/self/status > {ready}; read x; exit 4",
                       stdin=subprocess.PIPE, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    ignored = int(wait_file(ready, "\n").split()[1], 16)
    assert ignored & (1 << (signal.SIGHUP - 1))
    assert not ignored & (1 << (signal.SIGINT - 1))
    run.send_signal(signal.SIGHUP)
    run.communicate("\n", timeout=60)
    assert run.returncode == 4


# ------------------------------------------------------------------------------------------- the tree

def test_waits_for_descendants_and_says_so(daemon, tmp_path):
    go, out = tmp_path / "go", tmp_path / "out"
    script = f"setsid sh -c 'while [ ! -e {go} ]; do sleep 0.05; done; echo done > {out}' & exit 3"
    run = daemon.spawn("sublet", "run", "--vram", "64MiB", "--tag", "tree", "--", "sh", "-c", script)
    read_until(run.stderr, "waiting for")
    assert lease(daemon, "tree")["state"] == "active"
    go.touch()
    assert run.wait(timeout=60) == 3
    assert out.read_text() == "done\n"
    assert lease(daemon, "tree")["exit_status"] == 3


def test_time_to_live_ends_the_tree(daemon, tmp_path):
    pids = tmp_path / "pids"
    script = f"trap '' TERM; setsid sh -c 'trap \"\" TERM; echo $$ >> {pids}; while :; do sleep 0.05; done' & " \
             f"echo $$ >> {pids}; while :; do sleep 0.05; done"
    done = daemon.cli("run", "--vram", "64MiB", "--ttl", "1s", "--tag", "ttl", "--", "sh", "-c", script)
    assert done.returncode == 128 + signal.SIGKILL, done.stderr
    assert "time is up" in done.stderr
    for pid in pids.read_text().split():
        assert not os.path.exists(f"/proc/{pid}")
    assert lease(daemon, "ttl")["end_reason"] == "expired"


def test_stop(daemon, tmp_path):
    ready = tmp_path / "ready"
    run = daemon.spawn("sublet", "run", "--vram", "64MiB", "--tag", "victim", "--", "sh", "-c", f"echo > {ready}; exec sleep 1000")
    wait_file(ready)
    assert daemon.cli("stop", "victim").returncode == 0
    assert run.wait(timeout=60) == 128 + signal.SIGTERM
    assert lease(daemon, "victim")["state"] == "ended"
    assert daemon.cli("wait", "victim").returncode == 128 + signal.SIGTERM


# ------------------------------------------------------------------------------------------- restarts

def test_daemon_killed_and_restarted_while_running(daemon, tmp_path):
    ready, go = tmp_path / "ready", tmp_path / "go"
    run = daemon.spawn("sublet", "run", "--vram", "64MiB", "--tag", "long", "--", "sh", "-c",
                       f"echo > {ready}; while [ ! -e {go} ]; do sleep 0.05; done; exit 5")
    wait_file(ready)
    daemon.kill()
    assert run.poll() is None
    daemon.start()
    assert lease(daemon, "long")["state"] == "active"
    go.touch()
    assert run.wait(timeout=60) == 5
    assert lease(daemon, "long")["exit_status"] == 5


def test_program_ends_while_the_daemon_is_away(daemon, tmp_path):
    ready, go = tmp_path / "ready", tmp_path / "go"
    run = daemon.spawn("sublet", "run", "--vram", "64MiB", "--tag", "away", "--", "sh", "-c",
                       f"echo > {ready}; while [ ! -e {go} ]; do sleep 0.05; done; exit 6")
    wait_file(ready)
    daemon.kill()
    go.touch()
    read_until(run.stderr, "waiting up to a minute")
    run.send_signal(signal.SIGINT)  # whoever does not want to wait for the daemon leaves the record to it
    assert run.wait(timeout=60) == 6
    daemon.start()
    assert ended(daemon, "away")["exit_status"] == 6


def test_keeper_killed(daemon, tmp_path):
    ready, go = tmp_path / "ready", tmp_path / "go"
    run = daemon.spawn("sublet", "run", "--vram", "64MiB", "--tag", "orphan", "--", "sh", "-c",
                       f"echo $$ > {ready}; while [ ! -e {go} ]; do sleep 0.05; done; exit 7")
    pid = int(wait_file(ready, "\n"))
    run.kill()
    run.wait(timeout=60)
    assert os.path.exists(f"/proc/{pid}")
    assert lease(daemon, "orphan")["state"] == "active"
    go.touch()
    assert ended(daemon, "orphan")["exit_status"] is None


# ------------------------------------------------------------------------------------------- the queue

@pytest.fixture
def full(daemon):
    """The card is taken by a lease named `blocker`."""
    hold = daemon.spawn("sublet", "hold", "--vram", "3GiB", "--tag", "blocker")
    assert hold.stdout.readline().strip()
    yield hold
    if hold.poll() is None:
        hold.terminate()
        assert hold.wait(timeout=60) == 0


def queued(daemon, tag):
    return wait_until(lambda: next((x for x in daemon.leases() if x["tag"] == tag and x["state"] == "queued"), None),
                      f"{tag} to queue")


def test_waits_says_so_and_starts(daemon, full, tmp_path):
    status = tmp_path / "status"
    with open(status, "w") as status_file:
        fd = status_file.fileno()
        run = daemon.spawn("sublet", "run", "--vram", "2GiB", "--tag", "next", "--status-fd", str(fd), "--", "sh", "-c", "exit 3",
                           pass_fds=[fd])
    line = run.stderr.readline()
    assert re.match(r"sublet: lease-\d+ waits: place 1 · .* short", line), line
    assert "blocker" in line or "lease-" in line.split("held by")[1]
    full.terminate()
    assert run.wait(timeout=60) == 3
    events = [json.loads(text) for text in status.read_text().splitlines()]
    assert [event["event"] for event in events if event["event"] != "queued"] == ["granted", "started", "exit"]
    assert events[0]["event"] == "queued" and events[0]["place"] == 1
    assert events[-1]["code"] == 3 and events[-1]["by"] == "program"


def test_ctrl_c_leaves_the_queue(daemon, full):
    run = daemon.spawn("sublet", "run", "--vram", "2GiB", "--tag", "impatient", "--", "true")
    queued(daemon, "impatient")
    run.send_signal(signal.SIGINT)
    assert run.wait(timeout=60) == 130
    assert lease(daemon, "impatient")["end_reason"] == "cancelled"


def test_killed_in_the_queue(daemon, full):
    run = daemon.spawn("sublet", "run", "--vram", "2GiB", "--tag", "gone", "--", "true")
    queued(daemon, "gone")
    run.kill()
    run.wait(timeout=60)
    assert ended(daemon, "gone")["end_reason"] == "cancelled"


def test_gives_up_or_does_not_wait(daemon, full):
    done = daemon.cli("run", "--vram", "2GiB", "--wait", "100ms", "--tag", "w", "--", "true")
    assert done.returncode == 124, done.stderr
    assert lease(daemon, "w")["end_reason"] == "cancelled"
    done = daemon.cli("run", "--vram", "2GiB", "--no-wait", "--", "true")
    assert done.returncode == 75, done.stderr


def test_daemon_restarted_while_queued(daemon, full):
    run = daemon.spawn("sublet", "run", "--vram", "2GiB", "--tag", "patient", "--", "sh", "-c", "exit 8")
    before = queued(daemon, "patient")["id"]
    daemon.kill()
    daemon.start()
    assert queued(daemon, "patient")["id"] == before
    full.terminate()
    assert full.wait(timeout=60) == 0
    assert run.wait(timeout=60) == 8
    assert lease(daemon, "patient")["id"] == before


# ------------------------------------------------------------------------------------------- run in run, hold

def test_run_inside_run(daemon):
    inner = f"{SUBLET} run --vram 1GiB -- sh -c 'echo $SUBLET_LEASE; exit 5'"
    done = daemon.cli("run", "--vram", "2GiB", "--tag", "outer", "--", "sh", "-c", inner)
    assert done.returncode == 5, done.stderr
    assert done.stdout.strip() == lease(daemon, "outer")["id"]
    assert "inside lease-" in done.stderr
    # One that does not fit asks for its own; and the variable alone makes nobody a member.
    too_big = f"{SUBLET} run --vram 3GiB --no-wait -- true"
    assert daemon.cli("run", "--vram", "2GiB", "--", "sh", "-c", too_big).returncode == 75
    done = daemon.cli("run", "--vram", "1GiB", "--", "sh", "-c", "echo $SUBLET_LEASE",
                         SUBLET_LEASE="lease-1")
    assert done.stdout.strip() not in ("", "lease-1")


def test_hold_in_the_foreground(daemon):
    hold = daemon.spawn("sublet", "hold", "--vram", "1GiB", "--tag", "mine")
    printed = hold.stdout.readline().strip()
    assert lease(daemon, "mine")["id"] == printed
    daemon.kill()
    daemon.start()
    assert lease(daemon, "mine")["state"] == "active"
    hold.send_signal(signal.SIGINT)
    assert hold.wait(timeout=60) == 0
    assert lease(daemon, "mine")["end_reason"] == "released"


def test_hold_killed(daemon):
    hold = daemon.spawn("sublet", "hold", "--vram", "1GiB", "--tag", "mine")
    hold.stdout.readline()
    hold.kill()
    hold.wait(timeout=60)
    assert ended(daemon, "mine")["end_reason"] == "owner_gone"


def test_hold_for_a_process(daemon):
    owner = subprocess.Popen(["sleep", "1000"])
    try:
        done = daemon.cli("hold", "--vram", "1GiB", "--pid", str(owner.pid), "--tag", "theirs")
        assert done.returncode == 0, done.stderr
        assert lease(daemon, "theirs")["owner"]["pid"] == owner.pid
        assert lease(daemon, "theirs")["state"] == "active"
    finally:
        owner.kill()
        owner.wait()
    ended(daemon, "theirs")


def test_hold_by_token(daemon, tmp_path):
    token = tmp_path / "token"
    hold = ["hold", "--vram", "1GiB", "--token-file", str(token), "--ttl", "60s", "--tag", "token"]
    assert daemon.cli(*hold[:-4]).returncode == 2  # no --ttl
    assert not token.exists()
    done = daemon.cli(*hold)
    assert done.returncode == 0, done.stderr
    assert token.stat().st_mode & 0o777 == 0o600
    assert token.read_text().strip() not in done.stdout + done.stderr
    again = daemon.cli(*hold)
    assert again.returncode == 2 and "exists already" in again.stderr
    assert len(daemon.leases()) == 1
    assert daemon.cli("renew", "token", "--ttl", "90s", "--token-file", str(token)).returncode == 0
    assert lease(daemon, "token")["ttl_seconds"] == 90
    wrong = tmp_path / "wrong"
    wrong.write_text("not it\nnot it")
    assert daemon.cli("renew", "token", "--token-file", str(wrong)).returncode == 2
    reply = daemon.cli("release", "token", "--json")
    assert json.loads(reply.stdout)["end_reason"] == "released"
    assert daemon.cli("wait", "token").returncode == 0


# ------------------------------------------------------------------------------------------- the terminal

COUNTER = r"""
n=0
trap 'n=$((n+1)); echo int-$n' INT
trap 'stty size' WINCH
trap 'echo continued' CONT
echo up-$$
while :; do read -t 0.1 line && case $line in quit) exit $n;; esac; done
"""


@pytest.fixture
def shell(daemon, tmp_path):
    script = tmp_path / "counter.sh"
    script.write_text(COUNTER)
    with Shell(daemon.env()) as running:
        running.command = f"{SUBLET} run --vram 64MiB -- bash {script}"
        yield running


def test_ctrl_c_reaches_the_program_once(shell):
    shell.type(shell.command)
    shell.expect(r"up-\d+")
    shell.key("c")
    shell.expect("int-1")
    shell.key("c")
    shell.expect("int-2")
    shell.type("quit")
    shell.prompt()
    assert shell.status() == 2


def test_ctrl_c_ends_a_loop_of_the_shell(shell, daemon):
    shell.type(f"for i in 1 2 3; do {SUBLET} run --vram 64MiB -- sh -c 'echo round-; exec sleep 1000'; done")
    shell.expect("round-\r")
    shell.key("c")
    shell.prompt()
    assert shell.status() == 130
    assert shell.seen().count("round-\r") == 1


def test_ctrl_c_in_the_queue_ends_a_loop_of_the_shell(shell, full):
    shell.type(f"for i in 1 2 3; do {SUBLET} run --vram 2GiB -- true; done")
    shell.expect("place 1 ")
    shell.key("c")
    shell.prompt()
    assert shell.status() == 130
    assert len(set(re.findall(r"lease-\d+ waits", shell.seen()))) == 1


def test_ctrl_z_stops_the_job_and_fg_goes_on(shell):
    shell.type(shell.command)
    shell.expect(r"up-\d+")
    shell.key("z")
    shell.expect("Stopped")
    shell.prompt()
    shell.type("jobs -s | wc -l")
    shell.expect(r"\b1\b")
    shell.prompt()
    for _ in range(2):
        shell.type("fg")
        shell.expect("continued")
        shell.key("z")
        shell.expect("Stopped")
        shell.prompt()
    shell.type("fg")
    shell.expect("continued")
    shell.key("c")
    shell.expect("int-1")
    shell.type("quit")
    shell.prompt()
    assert shell.status() == 1


def test_in_the_background_and_to_the_foreground(shell):
    shell.type(shell.command + " &")
    # It reads from the terminal in the background: the job stops, as any would.
    shell.expect(r"up-\d+")
    shell.type("")
    shell.expect("Stopped")
    shell.type("fg")
    shell.expect("continued")
    shell.type("quit")
    shell.prompt()
    assert shell.status() == 0


def test_window_size(shell):
    shell.type(shell.command)
    shell.expect(r"up-\d+")
    shell.resize(33, 77)
    shell.expect("33 77")
    shell.type("quit")
    shell.prompt()


def test_in_a_pipeline(shell):
    shell.type(shell.command + " | cat")
    shell.expect(r"up-\d+")
    shell.key("z")
    shell.expect("Stopped")
    shell.prompt()
    shell.type("fg")
    shell.expect("continued")
    shell.type("quit")
    shell.prompt()
    shell.type(f"{SUBLET} run --vram 64MiB -- sh -c 'echo up-$$; exec sleep 1000' | cat")
    pid = int(shell.expect(r"up-(\d+)\r").group(1))
    shell.key("c")
    shell.prompt()
    wait_until(lambda: not os.path.exists(f"/proc/{pid}"), "the program ends")


def test_in_a_script(shell, tmp_path):
    script = tmp_path / "script.sh"
    script.write_text(f"{shell.command}\necho after-$?\n")
    shell.type(f"sh {script}")
    shell.expect(r"up-\d+")
    shell.key("c")
    shell.expect("int-1")
    shell.type("quit")
    shell.prompt()
    assert shell.seen().count("int-2") == 0


def test_keeper_killed_on_a_terminal(shell, daemon):
    shell.type(shell.command)
    pid = int(shell.expect(r"up-(\d+)").group(1))
    keeper = daemon.leases()[0]["owner"]["keeper_pid"]
    os.kill(keeper, signal.SIGKILL)
    shell.expect("Killed")
    shell.prompt()
    assert os.path.exists(f"/proc/{pid}")
    os.kill(pid, signal.SIGKILL)


def test_waiting_line_on_a_terminal(shell, daemon, full):
    shell.type(f"{SUBLET} run --vram 2GiB -- echo started")
    shell.expect(r"waits: place 1 ")
    shell.expect("\x1b\\[K")  # written anew in place
    shell.key("z")
    shell.expect("Stopped")
    shell.prompt()
    shell.type("fg")
    shell.expect(r"waits: place 1 ")
    shell.key("c")
    shell.prompt()
    assert shell.status() == 130
