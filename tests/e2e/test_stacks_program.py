# SPDX-License-Identifier: Apache-2.0
"""The program `sublet-stacks`: its options, its search for Compose, and its life as a service."""
import json
import os
import pathlib
import pwd
import signal
import socket
import subprocess
import tempfile

import pytest

from tests.support.fake_compose import FakeCompose
from tests.support.fake_engine import FakeEngine
from tests.support.stacks_worker import SOURCES, StacksWorker, environment_of
from tests.support.sublet import BIN


def test_the_compose_program_is_found_in_the_path(tmp_path):
    with FakeEngine(tmp_path) as engine:
        useless = tmp_path / "useless"
        useless.mkdir()
        (useless / "docker").write_text("#!/bin/sh\necho no such command >&2\nexit 1\n")
        (useless / "docker").chmod(0o755)
        compose = FakeCompose(tmp_path, "docker-compose", "1.29.2")
        with StacksWorker(tmp_path, engine.url, environment=environment_of(useless, compose.directory)) as worker:
            worker.engine(True, program="docker-compose 1.29.2")
        with StacksWorker(tmp_path, engine.url, environment={"PATH": str(useless)}) as worker:
            assert "docker is no Compose program: version: no such command" in worker.engine(True)["why"]


@pytest.fixture(name="service")
def service_fixture(tmp_path):
    """The worker as a service: the manager passes a listening socket as descriptor 3."""
    if os.geteuid() != 0:
        pytest.skip("needs root, as the owner of the Compose files")
    runtime = tmp_path / "runtime"
    runtime.mkdir(mode=0o700)
    with FakeEngine(tmp_path) as engine, socket.socket(socket.AF_UNIX) as listener, \
            tempfile.TemporaryDirectory(prefix="sublet-") as everybodys:
        path = pathlib.Path(everybodys) / "stacks.sock"
        listener.bind(str(path))
        path.chmod(0o666)
        path.parent.chmod(0o755)
        listener.listen()
        compose = FakeCompose(tmp_path)
        # The number of the descriptor and the pid are the service manager's part.
        script = 'exec 3<&"$0"; LISTEN_PID=$$ LISTEN_FDS=1 exec "$@"'
        process = subprocess.Popen(
            ["bash", "-c", script, str(listener.fileno()), BIN / "sublet-stacks", "listen", "--runtime", runtime,
             "--user", "daemon", "--engine", engine.url, "--compose", compose.program],
            pass_fds=[listener.fileno()], stderr=(tmp_path / "log").open("wb"))
        yield path
        process.terminate()
        assert process.wait(60) == -signal.SIGTERM


def connect(path):
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(60)
    connection.connect(str(path))
    return connection


def test_a_service_serves_one_daemon_after_the_other_and_refuses_other_users(service, tmp_path):
    stack = tmp_path / "stacks/one"
    stack.mkdir(parents=True)
    (stack / "compose.yml").write_text("services: {web: {image: busybox}}\n")
    request = json.dumps({"id": 1, "do": "describe", "with": {
        **SOURCES, "dir": str(stack.parent)}}).encode() + b"\n"
    for _ in range(2):
        with connect(service) as connection, connection.makefile() as lines:
            assert json.loads(lines.readline())["hello"] == 2
            connection.sendall(request)
            reply = next(message for message in map(json.loads, lines) if "id" in message)
            assert [(one["name"], "error" in one) for one in reply["stacks"]] == [("one", False)]
    code = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); print(s.recv(100))"
    for user, said in ((12345, "b''"), (pwd.getpwnam("daemon").pw_uid, "hello")):
        done = subprocess.run(["/usr/bin/python3", "-c", code, service], user=user, group=user, extra_groups=[],
                              capture_output=True, text=True, check=True)
        assert said in done.stdout
    assert "refused a connection of uid 12345" in (tmp_path / "log").read_text()


@pytest.mark.parametrize("words, said", [
    (["serve"], "serve needs --runtime"), (["serve", "--runtime", "/tmp"], "serve needs --fd"),
    (["serve", "--runtime", "tmp", "--fd", "3"], "absolute path"), (["bogus"], "unknown verb 'bogus'"),
    (["listen", "--runtime", "/tmp", "--fd", "3"], "--fd belongs to serve"), (["serve", "--fd"], "--fd needs a value"),
    (["listen", "--runtime", "/tmp", "more"], "unexpected 'more'")])
def test_wrong_arguments_are_refused(words, said):
    done = subprocess.run([BIN / "sublet-stacks", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and said in done.stderr


def test_the_directory_for_its_files_must_be_private(tmp_path):
    with FakeEngine(tmp_path) as engine:
        runtime = tmp_path / "open"
        runtime.mkdir()
        runtime.chmod(0o755)
        with pytest.raises((AssertionError, ConnectionResetError)):
            StacksWorker(tmp_path, engine.url, runtime=runtime)
