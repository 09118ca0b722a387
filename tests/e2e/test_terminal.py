# SPDX-License-Identifier: Apache-2.0
"""`sublet run` under an interactive shell: keys, job control, the window, the output while waiting."""
import os
import re
import signal
import sys

import pytest

from tests.support.keeping import SUBLET, daemon, full, state_of  # noqa: F401
from tests.support.sublet import wait_until
from tests.support.terminal import Shell

# Handles signals one by one: a trap of bash loses a signal that arrives while it handles one of the same number.
COUNTER = """
import os, select, signal, sys

taken = {signal.SIGINT, signal.SIGWINCH, signal.SIGCONT}
signal.pthread_sigmask(signal.SIG_BLOCK, taken)
interrupted = 0
print(f"up-{os.getpid()}", flush=True)
while True:
    came = signal.sigtimedwait(taken, 0.1)
    if came and came.si_signo == signal.SIGINT:
        interrupted += 1
        print(f"int-{interrupted}", flush=True)
    elif came and came.si_signo == signal.SIGWINCH:
        size = os.get_terminal_size(0)
        print(size.lines, size.columns, flush=True)
    elif came:
        print("continued", flush=True)
    if select.select([0], [], [], 0)[0] and b"quit" in os.read(0, 4096):
        sys.exit(interrupted)
"""


@pytest.fixture
def shell(daemon, tmp_path):
    script = tmp_path / "counter.py"
    script.write_text(COUNTER)
    with Shell(daemon.env()) as running:
        running.command = f"{SUBLET} run --vram 64MiB -- {sys.executable} {script}"
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


def test_ctrl_z_stops_the_job_and_fg_continues_it(shell):
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


READER = f"{SUBLET} run --vram 64MiB -- sh -c 'echo up-$$; while [ ! -e {{go}} ]; do sleep 0.05; done; " \
         "read line; echo got-$line'"


def test_a_background_reader_stops_until_it_is_in_the_foreground(shell, tmp_path):
    shell.type(READER.format(go=tmp_path) + " &")
    keeper = int(shell.expect(r"\[1\] (\d+)").group(1))
    wait_until(lambda: state_of(keeper) == "T", "the job stops")
    shell.type("")
    shell.expect("Stopped")
    shell.type("fg")
    shell.expect(r"fg\r")
    wait_until(lambda: state_of(keeper) != "T", "the job goes on")
    shell.type("hello")
    shell.expect("got-hello")
    shell.prompt()
    assert shell.status() == 0


def test_a_running_job_is_brought_to_the_foreground_and_reads(shell, tmp_path):
    go = tmp_path / "go"
    shell.type(READER.format(go=go) + " &")
    shell.expect(r"up-\d+")
    shell.type("fg")
    shell.expect(r"fg\r")
    go.touch()
    shell.type("hello")
    shell.expect("got-hello")
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
    shell.type(shell.command.replace(" run ", " run --keep-running ", 1))
    pid = int(shell.expect(r"up-(\d+)").group(1))
    keeper = daemon.leases()[0]["owner"]["keeper_pid"]
    os.kill(keeper, signal.SIGKILL)
    shell.expect("Killed")
    shell.prompt()
    assert os.path.exists(f"/proc/{pid}")
    os.kill(pid, signal.SIGKILL)


def test_waiting_line_on_a_terminal(shell, daemon, full):
    shell.resize(24, 80)
    shell.type(f"{SUBLET} run --vram 2GiB -- echo started")
    shell.expect(r"waits: place 1 · [0-9.]+ GiB short on gpu0 · start(s| unknown) ")
    shell.expect("\x1b\\[K")  # rewritten in place
    shell.key("z")
    shell.expect("Stopped")
    shell.prompt()
    shell.type("fg")
    shell.expect(r"waits: place 1 ")
    shell.key("c")
    shell.prompt()
    assert shell.status() == 130
