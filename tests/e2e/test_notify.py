# SPDX-License-Identifier: Apache-2.0
"""`sublet run --notify`: a notice when a wait has ended, which never harms the program."""
import json
import os

import pytest

from tests.support.keeping import daemon, full, queued, read_until, wait_file  # noqa: F401

FIELDS = "$SUBLET_LEASE $SUBLET_NAME $SUBLET_WAITED_SECONDS"


def run(daemon, *flags, env=None, program=("true",)):
    """Starts `sublet run` with these flags behind the lease that fills the card."""
    run = daemon.spawn("sublet", "run", "--vram", "3GiB", "--tag", "late", "--name", "train", *flags, "--", *program,
                       env=env)
    queued(daemon, "late")
    return run


def finish(run, full):
    full.terminate()
    out, err = run.communicate(timeout=60)
    assert run.returncode == 0, err
    return out, err


def test_a_command_runs_after_the_wait(daemon, full, tmp_path):
    told = tmp_path / "told"
    waiting = run(daemon, f"--notify=echo {FIELDS} > {told}", "--notify-after", "1ms")
    out, err = finish(waiting, full)
    lease, name, seconds = wait_file(told, "train").split()
    assert lease == daemon.api().lease("late")["id"] and name == "train" and int(seconds) >= 0
    assert out == "" and "warning" not in err


def test_a_desktop_notice(daemon, full, tmp_path):
    told = tmp_path / "told"
    (tmp_path / "notify-send").write_text(
        f'#!/bin/sh\nprintf "%s\\n" "$@" "$SUBLET_WAITED_SECONDS" > {told}.new; mv {told}.new {told}\n')
    (tmp_path / "notify-send").chmod(0o755)
    env = daemon.env()
    env["PATH"] = f"{tmp_path}:{env['PATH']}"
    finish(run(daemon, "--notify", "--notify-after", "1ms", env=env), full)
    words = wait_file(told, "train").splitlines()
    assert words[:3] == ["--app-name=Sublet", "--", "train starts"]
    waited = "less than a second" if words[4] == "0" else f"{words[4]} s"
    assert f"got 3.0 GiB after {waited} in the queue" in words[3], "the text and the variable agree"


@pytest.mark.parametrize("flag, text", [("--notify=exit 3", "exit status 3"), ("--notify=kill -9 $$", "signal 9"),
                                        ("--notify", "'notify-send' was not found in PATH")])
def test_a_failed_notice_is_one_line(daemon, full, tmp_path, flag, text):
    for name in ("sh", "true"):
        (tmp_path / name).symlink_to(f"/bin/{name}")
    env = daemon.env()
    env["PATH"] = f"{env['PATH'].split(':')[0]}:{tmp_path}"
    _, err = finish(run(daemon, flag, "--notify-after", "1ms", env=env), full)
    [line] = [line for line in err.splitlines() if "warning" in line]
    assert line.startswith("sublet: warning: no notice was sent") and text in line


def test_a_failed_notice_is_json_where_all_else_is(daemon, full):
    _, err = finish(run(daemon, "--json", "--notify=exit 3", "--notify-after", "1ms"), full)
    [problem] = [line for line in map(json.loads, err.splitlines()) if line["event"] == "error"]
    assert "no notice was sent: 'exit 3' ended with exit status 3" in problem["detail"]


def test_the_notice_is_no_process_of_the_lease(daemon, full, tmp_path):
    """The lease ends with its program, although the command still runs."""
    gate, told = tmp_path / "gate", tmp_path / "told"
    os.mkfifo(gate)
    waiting = run(daemon, f"--notify=read -r line < {gate}; echo $$ > {told}", "--notify-after", "1ms")
    full.terminate()
    assert waiting.wait(60) == 0
    assert daemon.api().lease("late")["state"] == "ended"
    gate.write_text("go\n")
    wait_file(told, "\n")


def test_a_short_wait_has_no_notice(daemon, tmp_path):
    told = tmp_path / "told"
    daemon.cli("run", "--vram", "64MiB", f"--notify=touch {told}", "--notify-after", "1h", "--", "true", check=0)
    daemon.cli("run", "--vram", "64MiB", f"--notify=touch {told}", "--", "true", check=0)
    daemon.cli("run", "--vram", "64MiB", f"--notify=echo {FIELDS} > {told}-now", "--notify-after", "0", "--", "true",
               check=0)
    wait_file(tmp_path / "told-now", "true")  # the name of the consumer
    assert not told.exists()


@pytest.mark.parametrize("words, text", [
    (["--notify-after", "5s"], "--notify-after needs --notify"),
    (["--notify", "--detach"], "--notify and --detach cannot both be given"),
    (["--notify", "--notify-after", "soon"], "--notify-after")])
def test_flags_that_are_refused(shared_daemon, words, text):
    done = shared_daemon.cli("run", "--vram", "64MiB", *words, "--", "true", check=2)
    assert text in done.stderr


def test_the_notice_holds_no_output_of_the_program(daemon, full, tmp_path):
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    waiting = run(daemon, f"--notify=cat {gate}", "--notify-after", "1ms", program=("echo", "done"))
    full.terminate()
    assert waiting.stdout.read() == "done\n", "it is at its end although the notice is not"
    with open(gate, "w"):
        pass
    assert waiting.wait(60) == 0
