# SPDX-License-Identifier: Apache-2.0
"""Completion in the shells: verbs, flags, and the ids and tags that only the daemon knows."""
import os
import pty
import re
import select
import shutil
import subprocess
import time

import pytest

from tests.support.sublet import Daemon, lent


@pytest.fixture(scope="module")
def tagged_daemon():
    """A daemon with two leases with tags."""
    daemon = Daemon("1x4GiB")
    try:
        daemon.start()
        for tag in ("mine", "other"):
            child = daemon.spawn("sublet", "hold", "--vram", "64MiB", "--tag", tag)
            assert child.stdout.readline().startswith("lease-")
        yield daemon
    finally:
        daemon.close()


@pytest.fixture
def tagged(tagged_daemon):
    with lent(tagged_daemon):
        yield tagged_daemon


def shell(name):
    if not shutil.which(name):
        pytest.skip(f"no {name} here")
    return shutil.which(name)


# ---------------------------------------------------------------------------------------------- fish

def fish(daemon, line, tmp_path):
    home = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path)}
    done = subprocess.run([shell("fish"), "--no-config", "-c",
                           f"sublet completion fish | source; complete -C '{line}'"], env=daemon.env(**home),
                          capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
    assert done.returncode == 0 and not done.stderr, done.stderr
    return [word.split("\t")[0] for word in done.stdout.splitlines()]


@pytest.mark.parametrize("line, found", [
    ("sublet sta", ["status"]),
    ("sublet why m", ["mine"]),
    ("sublet release lease-", ["lease-1", "lease-2"]),
    ("sublet run --tie", ["--tier"]),
    ("sublet run --tier s", ["spot", "standard"]),
])
def test_fish(tagged, tmp_path, line, found):
    assert sorted(fish(tagged, line, tmp_path)) == found


def test_fish_completes_the_program_behind_the_marks(tagged, tmp_path):
    assert "true" in fish(tagged, "sublet run --vram 1GiB -- tru", tmp_path)


def test_fish_completes_files(tagged, tmp_path):
    (tmp_path / "settings.toml").touch()
    assert f"{tmp_path}/settings.toml" in fish(tagged, f"sublet config check --file {tmp_path}/sett", tmp_path)


# ---------------------------------------------------------------------------------------------- bash and zsh: Tab

class Line:
    """An interactive shell on a pseudo-terminal, after its own start-up and our script."""

    def __init__(self, arguments, env, setup):
        self.seen = ""
        self.pid, self.master = pty.fork()
        if self.pid == 0:
            os.execvpe(arguments[0], arguments, env)
        self.type(setup + "; echo rea''dy\n")
        self.expect("ready\r?\n[^>]*> ")  # the prompt: before that, the shell does not read keys

    def type(self, text):
        os.write(self.master, text.encode())

    def expect(self, pattern, timeout=60):
        end = time.monotonic() + timeout
        while not (found := re.search(pattern, self.seen)):
            left = end - time.monotonic()
            assert left > 0 and select.select([self.master], [], [], left)[0], f"no {pattern!r} in:\n{self.seen}"
            self.seen += os.read(self.master, 65536).decode(errors="replace")
        self.seen = self.seen[found.end():]
        return found

    def close(self):
        os.close(self.master)
        os.waitpid(self.pid, 0)


@pytest.fixture(params=["bash", "zsh"])
def line(request, tagged, tmp_path):
    program = shell(request.param)
    env = tagged.env(TERM="dumb", HOME=str(tmp_path), PS1="> ", PROMPT="> ")
    arguments, setup = {
        "bash": ([program, "--norc", "--noprofile", "-i"], 'eval "$(sublet completion bash)"'),
        "zsh": ([program, "-f", "-i"], "autoload -U compinit; compinit -u -D; source <(sublet completion zsh)"),
    }[request.param]
    running = Line(arguments, env, setup)
    yield running
    running.close()


@pytest.mark.parametrize("typed, becomes", [
    ("echo sublet; sublet why m", "mine"),
    ("sublet stat", "status"),
    ("sublet release lease-1 --for", "--force"),
    ("sublet run --tier st", "standard"),
])
def test_tab(line, typed, becomes):
    rest = becomes[len(typed.split()[-1]):]
    line.type(typed + "\t")
    line.expect(re.escape(rest))


def test_tab_tab_lists_all_candidates(line):
    line.type("sublet why \t\t")
    line.expect("lease-1")
    line.expect("mine")


# ---------------------------------------------------------------------------------------------- names from the daemon

def test_completion_of_names_from_the_daemon(daemon):
    api = daemon.api()
    ended = api.post("/v1/leases", {"vram_bytes": 1 << 20, "ttl_seconds": 600, "tag": "over"})
    api.post(f"/v1/leases/{ended['id']}/release", {})
    live = api.post("/v1/leases", {"vram_bytes": 1 << 20, "ttl_seconds": 600, "consumer": "train"})["id"]
    token = api.post("/v1/tokens", {"scope": "read", "name": "ci"})["id"]
    uuid = api.get("/v1/devices")["devices"][0]["uuid"]
    done = daemon.spawn("sublet", "run", "--vram", "64MiB", "--name", "etl", "--", "simgpu-load", "--alloc", "1MiB",
                        "--seconds", "1")
    assert done.wait(60) == 0

    def offered(*words):
        lines = daemon.cli("__complete", "--", *words, check=0).stdout.splitlines()
        return [line.split("\t")[0] for line in lines]

    for verb in ("why", "wait", "events"):
        assert {live, ended["id"], "over"} <= set(offered(verb, "")), verb
    for verb in ("release", "pause", "resize"):
        assert live in offered(verb, "") and ended["id"] not in offered(verb, ""), verb
    assert offered("token", "revoke", "") == [token]
    assert offered("run", "--gpu", "") == ["any", "gpu0", uuid]
    assert "etl" in offered("pause", "--grant", "") and "etl" in offered("run", "--name", "e")
    assert offered("events", "--type", "lease,w") == ["lease,warning"]
    assert offered("help", "pro") == ["programs", "proclist"]
    daemon.kill()
    assert offered("why", "") == []  # and no shell waits for the daemon
