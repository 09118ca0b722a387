# SPDX-License-Identifier: Apache-2.0
"""The commonest situations, as a person sees them: tests/e2e/golden/NAME.txt holds every word.

After a change that was meant: SUBLET_GOLDEN=write ./dev test tests/e2e/test_golden.py, and read the difference.
"""
import os
import subprocess

import pytest

from tests.e2e.test_reconcile import FailingStore
from tests.support.sublet import BIN, MIB, wait_until
from tests.support.transcript import GOLDEN, Transcript

QUICK = '[gpu]\ninterval_idle = "300ms"\ninterval_busy = "200ms"\nmax_age = "1s"\ntimeout = "1s"\n'


@pytest.fixture
def scene(daemon):
    return Transcript(daemon)


def alone(transcript, *arguments, program="sublet"):
    """With no daemon anywhere near."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("SUBLET_", "XDG_"))}
    clean["SUBLET_HOST"] = "unix:///nonexistent/sublet.sock"
    done = subprocess.run([BIN / program, *map(str, arguments)], env=clean, capture_output=True, text=True, timeout=60,
                          stdin=subprocess.DEVNULL)
    transcript.add(" ".join([program, *map(str, arguments)]), done.returncode, done.stdout, done.stderr)


def hold(scene, vram, *arguments):
    """Somebody who holds a lease, for the test."""
    child = scene.daemon.spawn("sublet", "hold", "--vram", vram, *arguments)
    scene.hide_pid(child.pid)
    assert child.stdout.readline().startswith("lease-")
    return child


def program(scene, vram, alloc, *arguments):
    """Somebody's program that holds bytes under a lease."""
    child = scene.daemon.spawn("sublet", "run", "--vram", vram, *arguments, "--", "simgpu-load", "--alloc", alloc,
                               "--seconds", "600")
    lease = wait_until(lambda: next((lease for lease in scene.daemon.leases()
                                     if lease["used_bytes"] >= 100 * MIB), None), "it holds its bytes")
    scene.hide_pid(child.pid)
    scene.hide_pid(lease["owner"]["pid"])
    return child, lease


def queued(scene, count=1):
    return wait_until(lambda: len(found := [x for x in scene.daemon.leases() if x["state"] == "queued"]) == count
                      and found, "they wait")


# ---------------------------------------------------------------------------------------------- alone

def test_no_daemon():
    scene = Transcript()
    alone(scene, "status")
    alone(scene, "run", "--vram", "1GiB", "--", "true")
    scene.check("no-daemon")


def test_wrong_words():
    scene = Transcript()
    for words in ([], ["staus"], ["frobnicate"], ["ps", "--al"], ["ps", "--frobnicate"], ["pause", "lease-1"], ["why"],
                  ["run"], ["run", "--", "no-such-program"], ["run", "--share", "50", "--", "true"], ["ps", "more"]):
        alone(scene, *words)
    scene.check("wrong-words")


def test_wrong_sizes():
    scene = Transcript()
    for size in ("8Q", "-1", "0", "much", "", "18446744073709551616"):
        alone(scene, "run", f"--vram={size}", "--", "true")
    alone(scene, "run", "--ttl", "soon", "--vram", "1G", "--", "true")
    scene.check("wrong-sizes")


def test_wrong_configuration(tmp_path):
    scene = Transcript()
    scene.hide(tmp_path, "DIR")
    file = tmp_path / "sublet.toml"
    file.write_text('[queue]\nclaim_windo = "10s"\n[enforcer]\npolicy = "observe"\n[device]\nheadroom = "8Q"\n')
    alone(scene, "config", "check", "--file", file)
    alone(scene, "--dir", tmp_path, program="subletd")
    file.write_text("[queue\n")
    alone(scene, "config", "check", "--file", file)
    alone(scene, "config", "check", "--file", tmp_path / "none.toml")
    scene.check("wrong-configuration")


# ---------------------------------------------------------------------------------------------- with a daemon

def test_first_look(scene):
    for verb in ("status", "ps", "queue", "gpus", "proclist"):
        scene.run(verb)
    scene.check("first-look")


def test_a_run_that_fits(scene):
    scene.run("run", "--vram", "1GiB", "--", "echo", "hello")
    scene.run("run", "--vram", "1GiB", "--", "sh", "-c", "exit 3")
    scene.run("ps")
    scene.check("run-fits")


def test_a_run_that_waits(scene):
    holder = hold(scene, "3GiB", "--name", "blocker")
    waiter = scene.daemon.spawn("sublet", "run", "--vram", "2GiB", "--", "echo", "my turn")
    queued(scene)
    holder.terminate()
    out, err = waiter.communicate(timeout=60)
    scene.add("sublet run --vram 2GiB -- echo 'my turn'", waiter.returncode, out, err)
    out, err = holder.communicate(timeout=60)
    scene.add("sublet hold --vram 3GiB", holder.returncode, out, err)
    scene.check("run-waits")


def test_what_is_refused(scene):
    hold(scene, "3GiB", "--name", "blocker", "--tag", "mine")
    scene.run("run", "--vram", "64GiB", "--", "true")
    scene.run("run", "--vram", "2GiB", "--no-wait", "--", "true")
    scene.run("run", "--vram", "2GiB", "--wait", "100ms", "--", "true")
    scene.run("run", "--vram", "1MiB", "--gpu", "gpu7", "--", "true")
    scene.run("run", "--vram", "1MiB", "--tier", "fast", "--", "true")
    scene.run("run", "--vram", "1MiB", "--tag", "mine", "--", "true")
    scene.run("why", "lease-99")
    scene.run("claim", "mine")
    scene.check("refused")


def test_who_waits_for_whom(scene):
    hold(scene, "3GiB", "--name", "blocker")
    for name in ("second", "third"):
        child = scene.daemon.spawn("sublet", "run", "--vram", "2GiB", "--name", name, "--", "true")
        scene.hide_pid(child.pid)
        queued(scene, 1 if name == "second" else 2)
    scene.run("status")
    scene.run("ps")
    scene.run("queue")
    scene.run("why", "lease-3")
    scene.run("why", "lease-1")
    scene.check("waiting")


def test_a_program_at_work(scene):
    child, lease = program(scene, "1GiB", "512MiB", "--name", "train", "--tag", "night")
    wait_until(lambda: scene.daemon.json("ps")["leases"][0]["used_bytes"] > 512 * MIB, "all is seen")
    for verb in ("status", "ps", "gpus", "proclist"):
        scene.run(verb)
    scene.run("release", "night")
    scene.run("stop", "night")
    child.wait(timeout=60)
    scene.run("wait", "night")
    scene.run("stop", "night")
    scene.run("ps", "--all")
    scene.check("program")


def test_somebody_under_no_lease(scene):
    outsider = scene.daemon.spawn("simgpu-load", "--alloc", "2GiB", "--seconds", "600")
    scene.hide_pid(outsider.pid)
    wait_until(lambda: scene.daemon.get("/v1/devices")["devices"][0]["other_bytes"] > 2048 * MIB, "it is seen")
    scene.run("status")
    scene.run("proclist")
    scene.run("run", "--vram", "3GiB", "--no-wait", "--", "true")
    scene.check("outsider")


def test_the_gpu_cannot_be_read(start_daemon):
    scene = Transcript(start_daemon("1x4GiB", config=QUICK))
    scene.daemon.ctl("fault", "nvml-error")
    wait_until(lambda: scene.daemon.get("/v1/status")["warnings"], "a warning")
    wait_until(lambda: scene.daemon.get("/v1/devices")["devices"][0]["state"] != "ok", "it is unknown")
    scene.run("status")
    scene.run("run", "--vram", "1GiB", "--no-wait", "--", "true")
    scene.check("gpu-unreadable")


def test_a_daemon_without_a_gpu(start_daemon):
    scene = Transcript(start_daemon(sim=None, config='[gpu]\nnvml = "/nowhere/libnvidia-ml.so.1"\n',
                                    wait_for_cards=False))
    wait_until(lambda: scene.daemon.get("/v1/status")["warnings"], "a warning")
    done = scene.daemon.cli("doctor")
    # What else doctor says is about this machine.
    lines = done.stdout.splitlines()
    told = [line + "\n" + lines[i + 1] for i, line in enumerate(lines) if line.startswith("fail")]
    scene.add("sublet doctor", done.returncode, "\n".join([*told, lines[-1]]) + "\n", done.stderr)
    scene.run("gpus")
    scene.run("run", "--vram", "1GiB", "--no-wait", "--", "true")
    scene.check("no-gpu")


def test_the_store_cannot_be_written(scene):
    api = scene.daemon.api()
    with FailingStore(scene.daemon, api):
        scene.run("status")
        scene.run("run", "--vram", "1GiB", "--no-wait", "--", "true")
    scene.check("store-fails")


def test_a_second_daemon(scene):
    alone(scene, "--dir", scene.daemon.dir, program="subletd")
    scene.check("second-daemon")


def test_completion(scene):
    hold(scene, "1GiB", "--tag", "mine")
    for words in (["st"], ["why", ""], ["release", "m"], ["run", "--ti"], ["run", "--tier", ""], ["ps", "-o", "id,na"]):
        scene.run("__complete", "--", *words)
    scene.check("completion")


def test_every_transcript_has_its_test():
    text = open(__file__).read()
    assert not [path.name for path in GOLDEN.iterdir() if f'check("{path.stem}")' not in text]
