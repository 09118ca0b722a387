# SPDX-License-Identifier: Apache-2.0
"""The place of a user's own daemon, and how the command line finds it even with an almost empty environment."""
import os
import pathlib
import shutil
import subprocess
import tempfile

import pytest

from tests.support.sublet import BIN

UID = 54321  # an id without an account; 65534 would be taken for an id that the kernel cannot map
SOMEBODY = {"user": UID, "group": UID, "extra_groups": []}


@pytest.fixture
def user():
    """An ordinary user's home, and the programs where that user can run them."""
    if os.geteuid() != 0:
        pytest.skip("only root can become somebody else")
    home = pathlib.Path(tempfile.mkdtemp(prefix="sublet-", dir=os.environ.get("SUBLET_TEST_TMP")))
    for program in ("subletd", "sublet-gpu", "sublet-actor", "sublet"):
        shutil.copy(BIN / program, home / program)
    (home / "run").mkdir()
    for path in (home, home / "run"):
        os.chown(path, UID, UID)
    yield home
    shutil.rmtree(home)


def environment(home, **more):
    return {"HOME": str(home), "PATH": "/usr/bin:/bin", **more}


def own_daemon(home, env):
    """Starts a daemon of that user; returns when it serves."""
    ready, theirs = os.pipe()
    daemon = subprocess.Popen([home / "subletd", "--ready-fd", str(theirs)], env=env, pass_fds=[theirs],
                              stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, **SOMEBODY)
    os.close(theirs)
    with os.fdopen(ready) as stream:
        assert stream.readline() == "ready\n", daemon.communicate()[1]
    return daemon


def start_fails(home, *arguments):
    """Starts a daemon that refuses; returns its message and the files that are there afterwards."""
    before = sorted(home.rglob("*"))
    done = subprocess.run([BIN / "subletd", *map(str, arguments)], capture_output=True, text=True, timeout=60,
                          stdin=subprocess.DEVNULL)
    assert done.returncode != 0
    assert sorted(home.rglob("*")) == before, done.stderr
    return done.stderr


def test_a_failed_start_leaves_nothing(tmp_path):
    assert "a Unix socket allows" in start_fails(tmp_path, "--dir", tmp_path / ("x" * 100) / "below")
    assert "a Unix socket allows" in start_fails(tmp_path, "--dir", tmp_path / ("x" * 100), "--sim", "1x1GiB")
    assert "could not create the cards" in start_fails(tmp_path, "--dir", tmp_path / "d", "--sim", "1xnothing")
    there = tmp_path / "there"
    there.mkdir()
    (there / "sublet.toml").write_text("[store]\npath = 7\n")
    start_fails(tmp_path, "--dir", there)


def test_a_second_daemon_leaves_the_first_ones_files(start_daemon):
    first = start_daemon("1x1GiB")
    files = {path for path in first.dir.rglob("*") if path.name != "log"}
    done = subprocess.run([BIN / "subletd", "--dir", first.dir], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "another daemon" in done.stderr
    assert files <= set(first.dir.rglob("*"))
    assert first.cli("status").returncode == 0


@pytest.mark.parametrize("of_daemon, of_client, socket", [
    ({}, {}, ".local/state/sublet/sublet.sock"),
    ({"XDG_RUNTIME_DIR": "run"}, {"XDG_RUNTIME_DIR": "run"}, "run/sublet/sublet.sock"),
    # The daemon is started by cron, the command line by a login.
    ({}, {"XDG_RUNTIME_DIR": "run"}, ".local/state/sublet/sublet.sock"),
    ({"XDG_STATE_HOME": "state"}, {"XDG_STATE_HOME": "state"}, "state/sublet/sublet.sock"),
    # Relative directories are ignored.
    ({"XDG_RUNTIME_DIR": "./run"}, {"XDG_RUNTIME_DIR": "./run"}, ".local/state/sublet/sublet.sock"),
])
def test_daemon_and_command_line_meet(user, of_daemon, of_client, socket):
    def absolute(variables):
        return {name: value if value[0] == "." else str(user / value) for name, value in variables.items()}

    daemon = own_daemon(user, environment(user, **absolute(of_daemon)))
    try:
        assert (user / socket).is_socket()
        done = subprocess.run([user / "sublet", "status"], env=environment(user, **absolute(of_client)),
                              capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL, **SOMEBODY)
        assert done.returncode == 0 and "of this user" in done.stdout, done.stderr
    finally:
        daemon.terminate()
        daemon.communicate(timeout=60)


def test_the_configuration_of_a_users_own_daemon_is_found(user):
    env = environment(user, XDG_RUNTIME_DIR=str(user / "run"))
    file = user / ".config/sublet/sublet.toml"

    def checked(*words, **more):
        return subprocess.run([user / "sublet", "config", "check", *words], env=dict(env, **more), capture_output=True,
                              text=True, timeout=60, stdin=subprocess.DEVNULL, **SOMEBODY).stdout

    socket = f"unix://{user}/run/sublet/sublet.sock"
    daemon = own_daemon(user, env)
    try:
        for there in (checked(), checked("-H", socket), checked(SUBLET_HOST=socket)):
            assert there == f"{file}: no such file, every key has its default\n"
    finally:
        daemon.terminate()
        daemon.communicate(timeout=60)
    for gone in (checked("-H", socket), checked(SUBLET_HOST=socket)):
        assert gone == f"{file}: no such file, every key has its default\n"


def test_a_configuration_that_is_named_must_be_there(tmp_path):
    done = subprocess.run([BIN / "subletd", "--dir", tmp_path / "own", "--config", tmp_path / "none.toml"],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 78 and "none.toml: no such file" in done.stderr, done
