# SPDX-License-Identifier: Apache-2.0
"""`sublet run` as a parent: exit statuses, signals, the whole tree, restarts of the daemon, its own death.

The programs are shell scripts: a keeper's work does not depend on its program.
"""
import ctypes
import json
import os
import pathlib
import signal
import subprocess

import pytest

from tests.support.keeping import daemon, ended, full, lease, queued, read_until, wait_file  # noqa: F401
from tests.support.sublet import wait_until


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


def test_commands_that_cannot_be_executed(daemon, tmp_path):
    plain = tmp_path / "plain"
    plain.write_text("x")
    broken = tmp_path / "broken"
    broken.write_text("#!/no/such/interpreter\n")
    broken.chmod(0o755)
    windows = tmp_path / "windows"
    windows.write_bytes(b"#!/bin/sh\r\nexit 0\r\n")
    windows.chmod(0o755)
    unfound = tmp_path / "unfound"
    unfound.write_text("#!/usr/bin/env no-such-interpreter\n")
    unfound.chmod(0o755)
    for program, status, word in [("no-such-program-here", 127, "PATH"), (str(plain), 126, "Permission denied"),
                                  (str(tmp_path), 126, "it is a directory"),
                                  (str(broken), 127, "'/no/such/interpreter'"), (str(windows), 127, "CRLF"),
                                  (str(unfound), 127, "'no-such-interpreter' was not found in PATH")]:
        done = daemon.cli("run", "-q", "--vram", "64MiB", "--", program)
        assert done.returncode == status, done.stderr
        assert program in done.stderr and word in done.stderr
    assert daemon.leases(all=True) == []  # found before any request


def test_what_disappears_in_the_queue_is_named(daemon, full, tmp_path):
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    run = daemon.spawn("sublet", "run", "-q", "--vram", "3GiB", "--tag", "broken", "--", script)
    queued(daemon, "broken")
    script.write_text("#!/no/such/interpreter\n")
    full.terminate()
    _, stderr = run.communicate(timeout=60)
    assert run.returncode == 127
    assert "'/no/such/interpreter'" in stderr
    assert lease(daemon, "broken")["end_reason"] == "failed"


def test_a_removed_working_directory(daemon, tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    run = daemon.spawn("sh", "-c", f"rmdir {gone}; exec sublet run -q --vram 64MiB -- true", cwd=gone)
    assert "working directory was removed" in run.communicate(timeout=60)[1]
    assert run.returncode == 125
    assert daemon.leases(all=True) == []


# Options of `unshare` for a new pid namespace.
PID_NAMESPACE = ["-p", "-f"] if os.getuid() == 0 else ["-r", "-p", "-f"]
needs_pid_namespace = pytest.mark.skipif(
    subprocess.run(["unshare", *PID_NAMESPACE, "true"], capture_output=True).returncode != 0,
    reason="needs a new pid namespace")


@needs_pid_namespace
def test_another_pid_namespace_is_refused_before_the_queue(daemon, full):
    run = daemon.spawn("unshare", *PID_NAMESPACE, "sublet", "run", "-q", "--vram", "3GiB", "--", "true")
    _, stderr = run.communicate(timeout=60)
    assert run.returncode == 77, stderr
    assert "--pid=host" in stderr and "hold --vram SIZE --pid PID" in stderr
    assert [row["tag"] for row in daemon.leases(all=True)] == ["blocker"]


@needs_pid_namespace
def test_a_daemon_in_its_own_pid_namespace_refuses_callers_outside(start_daemon):
    daemon = start_daemon(command=["unshare", "--kill-child", *PID_NAMESPACE], wait_for_cards=False)
    for verb in (["run", "--vram", "64MiB", "--", "true"], ["hold", "--vram", "64MiB", "--pid", os.getpid()]):
        refused = daemon.cli(*verb, check=77)
        assert "pid namespace that does not show the caller" in refused.stderr and "--pid=host" in refused.stderr
    daemon.kill()  # `unshare` ignores SIGTERM


def test_arguments_and_streams_are_untouched(daemon):
    words = ["[1,2]", "", "--json", "a b", "%%", "-m", "ü", "{}"]
    done = daemon.cli("run", "--vram", "64MiB", "--", "sh", "-c", 'cat; printf "%s|" "$@"; echo err >&2', "sh",
                      *words, input="in\n")
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


def unprivileged():
    """Makes this process one that cannot raise its hard limits."""
    cap_sys_resource, pr_capbset_drop = 24, 24
    ctypes.CDLL(None).prctl(pr_capbset_drop, cap_sys_resource)


@pytest.mark.parametrize("limit", ["-f 0", "-n 32", "-s 256", "-t 1", "-u 8000"])
def test_limits_are_the_programs(daemon, limit):
    script = "ulimit -S -a; ulimit -H -a; exit 7"
    plain = subprocess.run(["sh", "-c", f"ulimit {limit}; {script}"], preexec_fn=unprivileged, capture_output=True,
                           text=True)
    run = daemon.spawn("sh", "-c", f'ulimit {limit}; exec sublet run --vram 64MiB --tag it -- sh -c "{script}"',
                       preexec_fn=unprivileged)
    stdout, stderr = run.communicate(timeout=60)
    assert run.returncode == 7, stderr
    assert stdout == plain.stdout
    assert lease(daemon, "it")["exit_status"] == 7
    assert ("cannot write the exit record" in stderr) == (limit == "-f 0"), stderr


@pytest.mark.parametrize("stream", ["2>&-", "2>/dev/full", "3>/dev/full"])
def test_streams_that_cannot_be_written(daemon, stream):
    script = f'exec sublet run --vram 64MiB {"--status-fd 3" if stream == "3>/dev/full" else ""} -- sh -c "exit 7"'
    run = daemon.spawn("sh", "-c", f"{script} {stream}")
    _, stderr = run.communicate(timeout=60)
    assert run.returncode == 7
    assert stderr.count("--status-fd 3 cannot be written: No space left on device") == (stream == "3>/dev/full")


def test_refusals(daemon, tmp_path):
    def code(*arguments):
        return daemon.cli(*arguments).returncode
    assert code("run", "--vram", "64MiB", "true") == 2  # no --
    assert code("run", "--vram", "64MiB", "--") == 2
    assert code("run", "--vran", "64MiB", "--", "true") == 2
    assert code("run", "--vram", "-1", "--", "true") == 2
    assert code("run", "--restart", "always", "--", "true") == 2
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


@pytest.mark.parametrize("name", ["TERM", "HUP", "USR1"])
def test_a_forwarded_signal_is_named(daemon, tmp_path, name):
    ready = tmp_path / "ready"
    run = daemon.spawn("sublet", "run", "--vram", "64MiB", "--tag", "told", "--", "sh", "-c",
                       f"echo > {ready}; exec sleep 1000")
    wait_file(ready)
    number = getattr(signal, "SIG" + name)
    run.send_signal(number)
    assert run.wait(timeout=60) == 128 + number
    assert lease(daemon, "told")["exit_status"] == 128 + number
    assert f"ended by the SIG{name} that its keeper got and forwarded" in daemon.cli("why", "told").stdout


def test_ignored_signals_stay_ignored(daemon, tmp_path):
    ready = tmp_path / "ready"
    run = daemon.spawn("sublet", "run", "--vram", "64MiB", "--", "sh", "-c",
                       f"grep SigIgn /proc/self/status > {ready}; read x; exit 4", stdin=subprocess.PIPE,
                       preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
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


def test_the_keeper_without_a_reader(daemon, tmp_path):
    ready, go = tmp_path / "ready", tmp_path / "go"
    script = f"setsid sh -c 'while [ ! -e {go} ]; do sleep 0.05; done' & echo > {ready}; read x; exit 3"
    run = daemon.spawn("sublet", "run", "--vram", "64MiB", "--tag", "deaf", "--status-fd", "2", "--",
                       "sh", "-c", script,
                       stdin=subprocess.PIPE)
    wait_file(ready)
    run.stderr.close()  # its later output is lost, and nothing else
    daemon.kill()
    run.stdin.write("\n")
    run.stdin.close()
    daemon.start()
    go.touch()
    assert run.wait(timeout=60) == 3
    assert ended(daemon, "deaf")["exit_status"] == 3


def test_time_to_live_ends_the_tree(daemon, tmp_path):
    pids = tmp_path / "pids"
    script = f"trap '' TERM; setsid sh -c 'trap \"\" TERM; echo $$ >> {pids}; while :; do sleep 0.05; done' & " \
             f"echo $$ >> {pids}; while :; do sleep 0.05; done"
    done = daemon.cli("run", "-q", "--vram", "64MiB", "--ttl", "1s", "--tag", "ttl", "--", "sh", "-c", script)
    assert done.returncode == 128 + signal.SIGKILL, done.stderr
    assert "expired" in done.stderr
    for pid in pids.read_text().split():
        assert not os.path.exists(f"/proc/{pid}")
    assert lease(daemon, "ttl")["end_reason"] == "expired"


def test_stop(daemon, tmp_path):
    ready = tmp_path / "ready"
    run = daemon.spawn("sublet", "run", "--vram", "64MiB", "--tag", "victim", "--", "sh", "-c",
                       f"echo > {ready}; exec sleep 1000")
    wait_file(ready)
    assert daemon.cli("stop", "victim").returncode == 0
    assert run.wait(timeout=60) == 128 + signal.SIGTERM
    assert lease(daemon, "victim")["state"] == "ended"
    assert daemon.cli("wait", "victim").returncode == 128 + signal.SIGTERM


def test_wait_for_several_leases(daemon, tmp_path):
    def start(tag, status):
        return daemon.spawn("sublet", "run", "--vram", "64MiB", "--tag", tag, "--", "sh", "-c",
                            f"while [ ! -e {tmp_path / tag} ]; do sleep 0.05; done; exit {status}")

    runs = [start("first", 0), start("second", 5), start("third", 6)]
    for tag in ("first", "second", "third"):
        wait_until(lambda tag=tag: any(x["tag"] == tag and x["state"] == "active" for x in daemon.leases()), tag)
    assert daemon.cli("wait", "first", "no-such-lease").returncode == 125
    both = daemon.spawn("sublet", "wait", "--json", "first", "third", "second")
    one = daemon.spawn("sublet", "wait", "--any", "first", "second", "third")
    (tmp_path / "second").touch()
    assert one.wait(timeout=60) == 5
    assert "has ended (released)" in one.stderr.read()
    assert both.poll() is None
    for tag in ("first", "third"):
        (tmp_path / tag).touch()
    assert both.wait(timeout=60) == 6  # of the first one in the order given that failed
    assert [json.loads(line)["exit_status"] for line in both.stdout.read().splitlines()] == [0, 6, 5]
    assert [run.wait(timeout=60) for run in runs] == [0, 5, 6]
    assert daemon.cli("wait", "--any", "third", "second").returncode == 6


def test_an_unknown_lease_has_its_own_status(daemon):
    for words in (["why"], ["stop"], ["release"], ["renew"], ["pause"], ["resume"],
                  ["preempt"], ["resize"], ["events"], ["claim"]):
        done = daemon.cli(*words, "no-such-lease", *(["1GiB"] if words == ["resize"] else []))
        assert done.returncode == (125 if words[0] == "wait" else 4), (words, done.stderr)
        assert "no-such-lease" in done.stderr
    for words in (["wait"], ["wait", "--any"]):  # 4 may be the status of a program
        done = daemon.cli(*words, "no-such-lease")
        assert done.returncode == 125 and "no-such-lease" in done.stderr


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
    run.send_signal(signal.SIGINT)  # a keeper that does not wait for the daemon leaves the record to it
    assert "exit record" in read_until(run.stderr, "was not reported")
    assert run.wait(timeout=60) == 6
    daemon.start()
    assert ended(daemon, "away")["exit_status"] == 6


def test_program_ends_without_daemon_and_record(daemon, tmp_path):
    ready, go = tmp_path / "ready", tmp_path / "go"
    run = daemon.spawn("sublet", "run", "--vram", "64MiB", "--tag", "away", "--", "sh", "-c",
                       f"echo > {ready}; while [ ! -e {go} ]; do sleep 0.05; done; exit 6")
    wait_file(ready)
    record = pathlib.Path(lease(daemon, "away")["exit_record"])
    daemon.kill()
    record.parent.rename(record.parent.with_suffix(".gone"))
    go.touch()
    read_until(run.stderr, "cannot open the directory of the exit record")
    read_until(run.stderr, "waiting up to a minute")
    run.send_signal(signal.SIGINT)
    assert "will not know the exit status" in read_until(run.stderr, "was not reported")
    assert run.wait(timeout=60) == 6
    daemon.start()
    assert ended(daemon, "away")["exit_status"] is None


def test_keeper_killed(daemon, tmp_path):
    ready, go = tmp_path / "ready", tmp_path / "go"
    run = daemon.spawn("sublet", "run", "--vram", "64MiB", "--tag", "orphan", "--keep-running", "--", "sh", "-c",
                       f"echo $$ > {ready}; while [ ! -e {go} ]; do sleep 0.05; done; exit 7")
    pid = int(wait_file(ready, "\n"))
    run.kill()
    run.wait(timeout=60)
    assert os.path.exists(f"/proc/{pid}")
    assert lease(daemon, "orphan")["state"] == "active"
    go.touch()
    gone = ended(daemon, "orphan")
    assert (gone["exit_status"], gone["end_reason"]) == (None, "owner_gone")
    waited = daemon.cli("wait", "-q", "orphan")
    assert waited.returncode == 1 and "has ended (owner_gone)" in waited.stderr
    assert "its keeper did not report the exit status" in daemon.cli("why", "orphan").stdout
