# SPDX-License-Identifier: Apache-2.0
"""`sublet session` as people type it: in a terminal, with their variables, and with the output of the program."""
import pytest

from tests.support.sessions import WORK, act, reaches, session, start_sessions
from tests.support.sublet import wait_until
from tests.support.terminal import Shell


@pytest.fixture
def daemon(start_daemon):
    return start_sessions(start_daemon)


def open_by_cli(daemon, *arguments, **env):
    """Returns the id of the session that the command line opened, and what it said."""
    done = daemon.cli("session", "open", "--vram", "256MiB", *arguments, check=0, **env)
    return done.stdout.split(":")[0], done.stderr


def test_a_shell_is_refused_without_a_terminal_and_has_one_with_pty(daemon):
    with Shell(daemon.env()) as shell:
        shell.type("sublet session open --vram 256MiB -- bash")
        shell.expect("bash reads commands from a terminal.*\n.*add --pty")
        shell.type("sublet session open --vram 256MiB --pty -- bash --norc --noprofile")
        shell.expect("session-1 is active")
        shell.type('echo "in-$SUBLET_SESSION"; test -t 0 && echo "has""-terminal"')
        shell.expect("in-session-1")
        shell.expect("has-terminal")
        now = session(daemon, "session-1")
        assert now["state"] == "active" and now["pid"], now
        shell.type("exit 7")
        wait_until(lambda: session(daemon, "session-1")["state"] == "closed", "it ends with the shell")
        shell.type('echo "status""-$?"')
        shell.expect("status-7")
    ended = session(daemon, "session-1")
    assert (ended["end_reason"], ended["exit_status"]) == ("exited", 7), ended


def test_the_caller_s_variables_reach_the_program_with_env_all(daemon):
    command = ["--", "sh", "-c", 'echo "venv $VIRTUAL_ENV $SUBLET_SESSION"; exec sleep 600']
    name, said = open_by_cli(daemon, *command, VIRTUAL_ENV="/venv")
    assert "does not get VIRTUAL_ENV" in said and "--env-all" in said
    logs = lambda of: daemon.cli("session", "logs", of, check=0).stdout  # noqa: E731
    wait_until(lambda: logs(name) == f"venv  {name}\n", "only a few variables")
    name, said = open_by_cli(daemon, "--env-all", *command, VIRTUAL_ENV="/venv")
    assert "does not get" not in said
    wait_until(lambda: logs(name) == f"venv /venv {name}\n", "all variables")


def test_a_stop_tells_that_the_checkpoint_command_runs_first(daemon):
    name, _ = open_by_cli(daemon, "--checkpoint-cmd", "echo saved", "--", "sleep", "600")
    lease = session(daemon, name)["lease"]
    wait_until(lambda: daemon.get(f"/v1/leases/{lease}")["owner"]["pid"], "its keeper has attached the program")
    done = daemon.cli("stop", lease, check=0)
    assert "the checkpoint command of the session runs first; then SIGTERM" in done.stderr, done.stderr
    assert "resumed" not in done.stderr


def test_the_log_is_followed_until_the_session_is_closed(daemon):
    name, _ = open_by_cli(daemon, "--", "sh", "-c", "echo one; exec sleep 600")
    follower = daemon.spawn("sublet", "session", "logs", "-f", name)
    assert follower.stdout.readline() == "one\n"
    act(daemon, name, "close", park=False)
    reaches(daemon, name, "closed")
    assert follower.wait(timeout=60) == 0
    assert daemon.cli("session", "logs", name, "-n", "0", check=0).stdout == ""
    assert daemon.cli("logs", name, check=None).stdout.startswith("one\n")


def test_a_session_without_a_program_has_no_log_and_names_the_next_step(daemon):
    name, said = open_by_cli(daemon, "--tag", "nb")
    assert "sublet attach nb --pid PID" in said
    refused = daemon.cli("session", "logs", name)
    assert refused.returncode == 4 and "has no program of its own" in refused.stderr


def test_its_lease_ends_with_the_word_of_the_session(daemon):
    name, _ = open_by_cli(daemon, "--ttl", "2s", "--pausable", "no", "--", *WORK)
    closed = reaches(daemon, name, "closed")
    lease = daemon.get(f"/v1/leases/{closed['lease']}")
    assert (closed["end_reason"], lease["end_reason"]) == ("expired", "expired"), (closed, lease.body)
    told = {row["name"]: row for row in daemon.get("/v1/report?by=session")["rows"]}
    assert told[name]["ended"] == {"expired": 1}


def test_a_wait_has_an_end_and_a_dry_run_opens_nothing(daemon):
    done = daemon.cli("session", "open", "--vram", "2GiB", check=0)
    holder = done.stdout.split(":")[0]
    assert daemon.cli("session", "open", "--vram", "1GiB", "--dry-run", check=0).stdout
    assert [one["id"] for one in daemon.get("/v1/sessions")["sessions"]] == [holder]
    late = daemon.cli("session", "open", "--vram", "3GiB", "--wait", "300ms", "--", "sleep", "600")
    assert late.returncode == 124 and "is closed" in late.stderr, late
    reaches(daemon, "session-2", "closed")


def test_a_session_is_found_by_its_tag(daemon):
    open_by_cli(daemon, "--tag", "nb")
    open_by_cli(daemon)
    assert "session-1 is active" in daemon.cli("session", "show", "nb", check=0).stdout
    rows = daemon.cli("session", "ls", "--no-header", "-o", "id,tag", check=0).stdout.split()
    assert rows == ["session-1", "nb", "session-2", "-"]
    said = daemon.cli("session", "touch", "nb", "session-2", check=0).stderr
    assert "session-1 is active" in said and "session-2 is active" in said
    daemon.cli("touch", "nb", "session-2", check=0)
    missing = daemon.cli("session", "close", "nb", "none", "session-2")
    assert missing.returncode == 4 and "no session with the id or tag 'none'" in missing.stderr
    assert [one["state"] for one in daemon.get("/v1/sessions?all=true")["sessions"]] == ["closed", "closed"]
    open_by_cli(daemon, "--tag", "nb")
    assert session(daemon, "nb")["id"] == "session-3", "an open one is preferred"
    daemon.cli("session", "close", "--all", check=0)
    assert daemon.get("/v1/sessions")["sessions"] == []


def test_variables_that_the_daemon_gives_are_not_missing(daemon):
    given = daemon.get("/v1/status")["program_env"]["LD_LIBRARY_PATH"]
    _, said = open_by_cli(daemon, "--", "sleep", "600", LD_LIBRARY_PATH=given)
    assert "does not get" not in said, said
    _, said = open_by_cli(daemon, "--", "sleep", "600", LD_LIBRARY_PATH="/opt/lib")
    assert "does not get LD_LIBRARY_PATH" in said
