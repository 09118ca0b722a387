# SPDX-License-Identifier: Apache-2.0
"""`sublet run -- docker run …` with a real Docker Engine: the lease follows the container."""
import os
import signal
import subprocess

import pytest

from tests.e2e.conftest import start_daemon  # noqa: F401 (a fixture)
from tests.support.real_engine import IMAGE
from tests.support.sublet import BIN, GIB, living, wait_until

CONFIG = '[lease]\ngrace = "2s"\n[gpu]\ninterval_idle = "500ms"\ninterval_busy = "200ms"\n'


@pytest.fixture(name="daemon")
def daemon_fixture(start_daemon, engine):  # noqa: F811
    yield start_daemon("2x4GiB", config=CONFIG)
    engine.clear()


def lease_of(daemon, tag="job"):
    return next((lease for lease in daemon.leases(all=True) if lease["tag"] == tag), None)


def program_env(daemon):
    env = daemon.env()
    return {**{name: env.get(name, "") for name in ("LD_LIBRARY_PATH", "SIMGPU_DIR")},
            **daemon.api().get("/v1/status")["program_env"]}


def container(daemon, *flags):
    """The words that run a program of this machine, in the machine's own files, in a container."""
    inside = [flag for name, value in program_env(daemon).items() for flag in ("-e", f"{name}={value}")]
    return ["docker", "run", "--rm", "--network", "none", "--pid", "host", "--ipc", "host", "-v", "/:/host", *inside,
            *flags, IMAGE, "/bin/busybox", "chroot", "/host", BIN / "simgpu-load", "--alloc", "1GiB", "--seconds",
            "600"]


def docker_run(daemon, engine, *flags, tag="job", vram="2GiB"):
    return daemon.spawn("sublet", "run", "--vram", vram, "--tag", tag, "--gpu", "gpu1", "--",
                        *container(daemon, *flags), env=daemon.env(DOCKER_HOST=engine.url))


def test_the_lease_follows_its_container(daemon, engine):
    keeper = docker_run(daemon, engine)
    lease = wait_until(lambda: (now := lease_of(daemon)) and now["used_bytes"] > GIB and now, "it is booked",
                       timeout=120)
    assert not lease["stray"] and daemon.get("/v1/status")["unleased_processes"] == []
    process = next(row for row in daemon.json("proclist")["processes"] if row["lease"] == lease["id"])
    assert process["link"] == "cgroup" and process["container"], process
    container = engine.inspect(engine.containers()[0]["Id"])
    assert f"CUDA_VISIBLE_DEVICES={lease['devices'][0]}" in container["Config"]["Env"]
    assert container["HostConfig"]["CgroupParent"].startswith("sublet_")
    daemon.cli("stop", "job", check=0)
    keeper.wait(60)
    wait_until(lambda: lease_of(daemon)["state"] == "ended" and not lease_of(daemon)["settling"], "all is given back")
    wait_until(lambda: not engine.containers(), "the container is gone")


@pytest.mark.parametrize("killed", ["the wrapper", "the client"])
def test_a_container_does_not_outlive_its_client(daemon, engine, killed):
    keeper = docker_run(daemon, engine)
    lease = wait_until(lambda: (now := lease_of(daemon)) and now["used_bytes"] > GIB and now, "it runs", timeout=120)
    if killed == "the wrapper":
        keeper.kill()
    else:
        os.kill(lease["owner"]["pid"], signal.SIGKILL)
        assert keeper.wait(60) == 128 + signal.SIGKILL
        assert "lives on after its client" in keeper.stderr.read()
    wait_until(lambda: not engine.containers(), "the container is ended", timeout=60)
    wait_until(lambda: lease_of(daemon)["state"] == "ended", "so is the lease")
    assert not living(lease["owner"]["pid"])


def test_a_container_that_its_client_left_gets_its_grace(daemon, engine, tmp_path):
    saves = "trap 'echo saved > /out/work; exit 0' TERM; echo begun > /out/work; while :; do sleep 0.1; done"
    keeper = daemon.spawn("sublet", "run", "--vram", "64MiB", "--tag", "job", "--", "docker", "run", "--rm",
                          "--network", "none", "-v", f"{tmp_path}:/out", IMAGE, "/bin/sh", "-c", saves,
                          env=daemon.env(DOCKER_HOST=engine.url))
    wait_until(lambda: (tmp_path / "work").exists(), "it runs", timeout=120)
    os.kill(lease_of(daemon)["owner"]["pid"], signal.SIGKILL)
    assert keeper.wait(60) == 128 + signal.SIGKILL
    assert (tmp_path / "work").read_text() == "saved\n"
    wait_until(lambda: not engine.containers(), "the container is removed")


def test_a_supervised_container_is_followed(daemon, engine):
    inside = [flag for name, value in {**program_env(daemon), "DOCKER_HOST": engine.url}.items()
              for flag in ("--env", f"{name}={value}")]
    daemon.cli("run", "--detach", "--tag", "job", "--vram", "2GiB", "--gpu", "gpu1", *inside, "--",
               *container(daemon), check=0)
    lease = wait_until(lambda: (now := lease_of(daemon)) and now["used_bytes"] > GIB and now, "it is booked",
                       timeout=120)
    assert not lease["stray"] and daemon.get("/v1/status")["unleased_processes"] == []
    os.kill(lease["owner"]["pid"], signal.SIGKILL)
    wait_until(lambda: not engine.containers(), "the container is ended", timeout=60)
    wait_until(lambda: "lives on after its client" in daemon.cli("logs", "job", check=0).stdout, "its log tells that")


def test_a_container_in_a_group_of_its_own_choice_is_told(daemon, engine):
    done = subprocess.run(["sublet", "run", "--vram", "64MiB", "--", "docker", "run", "--rm", "--network", "none",
                           "--cgroup-parent", "/mine", IMAGE, "/bin/true"], env=daemon.env(DOCKER_HOST=engine.url),
                          capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "the lease does not follow it" in done.stderr, done.stderr
