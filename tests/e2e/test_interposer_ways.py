# SPDX-License-Identifier: Apache-2.0
"""Each way to start a program behind the interposer: the program has the limit of its lease."""
import subprocess

import pytest

from tests.support.interposer import LIBRARY
from tests.support.preload import preloaded
from tests.support.shims import Home, installation
from tests.support.sublet import MIB, wait_until
from tests.support.terminal import Shell

OPTIONS = preloaded(LIBRARY)["ASAN_OPTIONS"]  # programs with a sanitizer require it to be loaded first
LOAD = ["simgpu-load", "--alloc", "64MiB", "--seconds", "600"]
SHOW = ["sh", "-c", 'echo "$LD_PRELOAD $SUBLET_CREDIT"']


def shown(daemon, *before):
    return f"{':'.join([*before, str(LIBRARY)])} {daemon.dir}/credit.sock"


def limited(daemon, tag):
    """Waits until the program of the lease with this tag has the limit; returns the lease."""
    def found():
        leases = [lease for lease in daemon.leases() if lease["tag"] == tag]
        return leases and (leases[0]["interposer"] or {}).get("processes") == 1 and leases[0]
    lease = wait_until(found, f"the program of {tag} has its limit")
    assert lease["interposer"]["devices"][0]["limit_bytes"] == 256 * MIB
    return lease


def log_of(daemon, tag):
    return daemon.cli("logs", tag, check=0).stdout.splitlines()


def detach(daemon, tag, *words, **env):
    done = daemon.cli("run", "--detach", "--tag", tag, "--vram", "256MiB", *words, **env)
    assert done.returncode in (0, 1), done
    return done


def test_a_supervised_program_has_the_limit_at_each_start(daemon):
    detach(daemon, "serve", "--interposer", "--restart", "always", "--env", f"ASAN_OPTIONS={OPTIONS}", "--", *LOAD)
    first = limited(daemon, "serve")
    daemon.cli("restart", "serve", check=0)
    wait_until(lambda: limited(daemon, "serve")["id"] != first["id"], "it has started again")
    daemon.cli("update", "serve", "--priority", "3", check=0)
    assert daemon.get("/v1/programs/serve")["priority"] == 3
    daemon.restart()
    limited(daemon, "serve")


def test_the_libraries_of_a_supervised_program_come_first(daemon):
    detach(daemon, "show", "--interposer", "--env", "LD_PRELOAD=/nowhere.so", "--", *SHOW)
    wait_until(lambda: any(line.endswith(shown(daemon, "/nowhere.so")) for line in log_of(daemon, "show")), "it tells")
    detach(daemon, "bare", "--", *SHOW)
    wait_until(lambda: daemon.get("/v1/programs/bare")["state"] == "exited", "it has ended")
    assert not any(str(LIBRARY) in line for line in log_of(daemon, "bare"))


def test_the_program_of_a_session_has_the_limit(daemon):
    daemon.cli("session", "open", "--vram", "256MiB", "--tag", "work", "--interposer", "--env",
               f"ASAN_OPTIONS={OPTIONS}", "--", *LOAD, check=0)
    limited(daemon, "work")


def test_the_program_of_a_session_in_a_terminal_has_the_limit(daemon):
    with Shell(daemon.env()) as shell:
        shell.type("sublet session open --vram 256MiB --interposer --pty -- bash --norc --noprofile")
        shell.expect("session-1 is active")
        shell.type('echo "has-$LD_PRELOAD $SUBLET_CREDIT"')
        shell.expect(f"has-{shown(daemon)}")
        shell.type("exit")
        wait_until(lambda: daemon.get("/v1/sessions/session-1")["state"] == "closed", "it ends with the shell")


def test_a_session_without_a_program_gets_no_library(shared_daemon):
    refused = shared_daemon.cli("session", "open", "--vram", "256MiB", "--interposer")
    assert refused.returncode == 2 and "--interposer needs a program" in refused.stderr, refused
    assert "hint:" in refused.stderr


@pytest.fixture
def home(daemon, tmp_path):
    return Home(tmp_path, daemon)


def test_the_program_of_a_shim_has_the_limit(daemon, home):
    home.program("load", f"ASAN_OPTIONS={OPTIONS} exec {' '.join(LOAD)}")
    home.program("show", SHOW[-1])
    home.add("load", "--vram", "256MiB", "--interposer")
    home.add("show", "--vram", "256MiB", "--interposer")
    child = home.start("load")
    wait_until(lambda: [lease for lease in home.leases() if (lease["interposer"] or {}).get("processes") == 1],
               "the program has its limit")
    child.terminate()
    child.wait(60)
    assert home.call("show").stdout.strip() == shown(daemon)
    listed = home.cli("shim", "ls", "--json").stdout
    assert '"interposer":true' in listed


def test_a_shim_without_a_daemon_runs_its_program_without_the_library(tmp_path):
    home = Home(tmp_path)
    home.program("show", SHOW[-1])
    home.add("show", "--interposer")
    assert home.call("show").stdout.strip() == ""


def test_a_missing_library_is_told_before_anything_is_asked_for(shared_daemon, tmp_path):
    folder = installation(tmp_path, ("sublet",))
    for words in (("run", "--detach", "--tag", "none"), ("session", "open")):
        done = subprocess.run([folder / "sublet", *words, "--vram", "64MiB", "--interposer", "--", "true"],
                              env=shared_daemon.env(), capture_output=True, text=True)
        assert done.returncode != 0 and "the interposer is not installed" in done.stderr, done
    assert not [lease for lease in shared_daemon.leases() if lease["state"] != "ended"]
