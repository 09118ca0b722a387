# SPDX-License-Identifier: Apache-2.0
"""`--watch` and `top`: repeated output, on a terminal and into a pipe."""
import json
import os
import re
import signal
import subprocess

import pytest

from tests.support.keeping import SUBLET, daemon, full, read_until  # noqa: F401
from tests.support.sublet import wait_until
from tests.support.terminal import Shell

LOOKING = ("status", "ps", "queue", "gpus", "proclist")


@pytest.fixture
def shell(daemon):
    with Shell(daemon.env()) as running:
        yield running


@pytest.fixture
def shared_shell(shared_daemon):
    """A shell for tests that only look at the daemon."""
    with Shell(shared_daemon.env()) as running:
        yield running


def watch(daemon, *arguments):
    return daemon.spawn("sublet", *arguments)


# ---------------------------------------------------------------------------------------------- into a pipe

@pytest.mark.parametrize("verb", LOOKING)
def test_watch_writes_blocks_into_a_pipe(shared_daemon, verb):
    watcher = watch(shared_daemon, verb, "--watch", "100ms")
    for _ in range(3):
        assert re.fullmatch(r"== \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ\n", read_until(watcher.stdout, "== "))
    watcher.send_signal(signal.SIGINT)
    assert watcher.wait(timeout=60) == -signal.SIGINT
    assert not watcher.stderr.read()


def test_changes_are_seen(daemon, full):
    watcher = watch(daemon, "ps", "--watch=100ms", "-o", "tag,state")
    read_until(watcher.stdout, "blocker  active")
    full.terminate()
    full.wait()
    read_until(watcher.stdout, "no lease is live")
    watcher.send_signal(signal.SIGTERM)
    assert watcher.wait(timeout=60) == -signal.SIGTERM


def test_json_is_one_reply_a_line(shared_daemon):
    watcher = watch(shared_daemon, "gpus", "--json", "--watch", "100ms")
    for _ in range(3):
        assert json.loads(watcher.stdout.readline())["devices"][0]["id"] == "gpu0"
    watcher.stdout.close()  # the pipe has no reader any more
    assert watcher.wait(timeout=60) == -signal.SIGPIPE
    assert not watcher.stderr.read()


def test_watch_outlives_a_restart_of_the_daemon(daemon):
    watcher = watch(daemon, "gpus", "--watch", "100ms")
    read_until(watcher.stdout, "gpu0")
    daemon.kill()
    assert "retrying" in read_until(watcher.stdout, "! ")
    daemon.start()
    read_until(watcher.stdout, "gpu0")


def test_without_a_daemon_there_is_nothing_to_watch(daemon):
    daemon.kill()
    done = daemon.cli("ps", "--watch", check=69)
    assert "hint:" in done.stderr and not done.stdout


@pytest.mark.parametrize("arguments, says", [
    (["ps", "--watch", "0s"], "0s is not between 100ms and 24h"),
    (["ps", "--watch=never"], "'never'"),
    (["ps", "--watch", "1s", "-o", "idd"], "did you mean 'id'"),
])
def test_wrong_intervals_and_columns_are_usage_errors(shared_daemon, arguments, says):
    done = shared_daemon.cli(*arguments, check=2)
    assert says in done.stderr and not done.stdout


# ---------------------------------------------------------------------------------------------- on a terminal

def test_a_terminal_is_redrawn_in_place_and_given_back(shell, full):
    shell.type(f"{SUBLET} ps --watch 100ms")
    shell.expect(r"\x1b\[\?1049h")  # the other screen
    shell.expect(r"sublet ps, every 100 ms, ")
    shell.expect(r"\x1b\[H.*blocker|\x1b\[H(.|\n)*hold")
    shell.expect(r"\x1b\[Hsublet ps, every|\x1b\[H\x1b\[2msublet ps, every")
    shell.key("c")
    shell.expect(r"\x1b\[\?1049l")
    shell.prompt()
    assert shell.status() == 130
    assert "\x1b[2J" not in shell.seen()  # clearing the screen would flicker


def test_the_last_output_stays_on_the_terminal(shell, full):
    shell.type(f"{SUBLET} gpus --watch")
    shell.expect("every 2 s")
    shell.key("c")
    shell.expect(r"\x1b\[\?1049l")
    shell.expect("gpu0")
    shell.prompt()


def test_lines_are_cut_to_the_window(shell, full):
    shell.resize(6, 20)
    shell.type(f"{SUBLET} status --watch 100ms")
    shell.expect(r"… \d+ more lines")
    shell.key("c")
    shell.prompt()


def test_a_dumb_terminal_gets_blocks(shared_shell):
    shared_shell.type(f"TERM=dumb {SUBLET} gpus --watch 100ms")
    shared_shell.expect(r"== \d{4}-")
    shared_shell.expect(r"== \d{4}-")
    shared_shell.key("c")
    shared_shell.prompt()
    assert "\x1b[?1049h" not in shared_shell.seen()


def test_it_can_be_stopped_and_continued(shared_shell):
    shared_shell.type(f"{SUBLET} gpus --watch 100ms")
    shared_shell.expect("every 100 ms")
    shared_shell.key("z")
    shared_shell.expect(r"\x1b\[\?1049l")
    shared_shell.prompt()
    shared_shell.type("fg")
    shared_shell.expect(r"\x1b\[\?1049h")
    shared_shell.expect("every 100 ms")
    shared_shell.key("c")
    shared_shell.prompt()


# ---------------------------------------------------------------------------------------------- top

def keys(shell, text):
    os.write(shell.master, text.encode())


def settings(shell):
    """The terminal's settings as the shell sees them, for a comparison."""
    shell.type("stty -a | tr -d '\\n'; echo '|end'")
    text = shell.expect(r"speed(.*)\|end\r").group(1)
    shell.prompt()
    return text


def test_top_shows_the_whole_and_gives_the_terminal_back(shell, daemon, full):
    before = settings(shell)
    waiter = daemon.spawn("sublet", "run", "--vram", "2GiB", "--", "true")
    wait_until(lambda: daemon.json("queue")["queue"], "somebody waits")
    shell.type(f"{SUBLET} top --every 200ms")
    shell.expect("sublet top")
    shell.expect(r"gpu0 +\[")
    shell.expect("active")
    shell.expect("queued")
    shell.expect(r"sort by another column \(now id\)")
    keys(shell, "s")
    shell.expect("vram")
    keys(shell, "h")
    shell.expect("PgUp, PgDn")
    keys(shell, "x")
    shell.expect("lease-")
    keys(shell, "jk")
    shell.resize(12, 60)
    shell.expect("sublet top")
    keys(shell, "q")
    shell.prompt()
    assert shell.status() == 0
    shell.resize(40, 200)
    assert settings(shell) == before
    waiter.kill()


def test_at_80_columns_the_reason_is_read_whole(shell, daemon, full):
    waiter = daemon.spawn("sublet", "run", "--vram", "2GiB", "--tag", "mine", "--name", "of-a-rather-long-name", "--",
                          "true")
    wait_until(lambda: daemon.json("queue")["queue"], "somebody waits")
    shell.resize(24, 80)
    below = r"2\.0 GiB[^\n]*\n    place 1, \d[^\n]* short on gpu0; start unknown\r\n"
    for verb, head, row in (("ps", "AGE", below), ("status", "AGE", below),
                            ("queue", "START", r"unknown\r\n    lease-1 \(blocker, [^\n]*\) 3\.0 GiB\r\n")):
        shell.type(f"NO_COLOR=1 {SUBLET} {verb}")
        heading = shell.expect(rf"((PLACE  )?ID  [^\n]*TAG[^\n]*{head})\r\n").group(1)
        assert len(heading) <= 80 and "TIER" not in heading
        assert len(shell.expect(rf"lease-2  of-a-rather…  mine +[^\n]*{row}").group(0)) < 200
        shell.prompt()
    shell.type(f"{SUBLET} top")
    shell.expect(r"lease-2: place 1, [^\n]* short on gpu0; start unknown; the memory is held by")
    shell.expect(r"lease-1[^\n]*\(blocker, ")
    keys(shell, "q")
    shell.prompt()
    waiter.kill()


def test_top_ends_by_ctrl_c_as_others_do(shared_shell):
    before = settings(shared_shell)
    shared_shell.type(f"{SUBLET} top")
    shared_shell.expect("gpu0")
    shared_shell.key("c")
    shared_shell.prompt()
    assert shared_shell.status() == 130
    assert settings(shared_shell) == before


def test_top_stops_and_continues(shared_shell):
    shared_shell.type(f"{SUBLET} top")
    shared_shell.expect("gpu0")
    shared_shell.key("z")
    shared_shell.prompt()
    shared_shell.type("fg")
    shared_shell.expect("gpu0")
    keys(shared_shell, "q")
    shared_shell.prompt()
    assert shared_shell.status() == 0


def test_top_outlives_the_daemon(shell, daemon):
    shell.type(f"{SUBLET} top --every 100ms")
    shell.expect("gpu0")
    daemon.kill()
    shell.expect("retrying")
    daemon.start()
    hold = daemon.spawn("sublet", "hold", "--vram", "1GiB", "--name", "newcomer")
    shell.expect("newcomer")
    hold.kill()
    keys(shell, "q")
    shell.prompt()
    assert shell.status() == 0


@pytest.mark.parametrize("term, says", [("dumb", "needs a terminal"), ("no-such-terminal", "'no-such-terminal'")])
def test_top_refuses_a_terminal_that_it_cannot_use(shared_shell, term, says):
    shared_shell.type(f"TERM={term} {SUBLET} top")
    shared_shell.expect(says)
    shared_shell.expect("status --watch")
    shared_shell.prompt()
    assert shared_shell.status() == 2


def test_top_refuses_a_pipe(shared_daemon):
    done = shared_daemon.cli("top", check=2)
    assert "needs a terminal" in done.stderr and "hint:" in done.stderr


def test_top_without_a_daemon_leaves_the_terminal_alone(shell, daemon):
    daemon.kill()
    shell.type(f"{SUBLET} top")
    shell.expect("hint:")
    shell.prompt()
    assert shell.status() == 69
    assert "\x1b[?1049h" not in shell.seen()


def test_top_ends_with_its_terminal(shared_daemon):
    """The terminal hangs up: no process spins or stays."""
    master, slave = os.openpty()
    env = shared_daemon.env(TERM="xterm")
    top = subprocess.Popen(["setsid", "--ctty", SUBLET, "top"], env=env, stdin=slave, stdout=slave, stderr=slave)
    os.close(slave)
    seen = b""
    while b"gpu0" not in seen:
        seen += os.read(master, 65536)
    os.close(master)
    assert top.wait(timeout=60) in (-signal.SIGHUP, 0)
