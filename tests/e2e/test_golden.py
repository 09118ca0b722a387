# SPDX-License-Identifier: Apache-2.0
"""The most common situations, as a person sees them: tests/e2e/golden/NAME.txt holds every word.

After an intended change: SUBLET_GOLDEN=write ./dev test tests/e2e/test_golden.py, and read the difference.
"""
import os
import pathlib
import signal
import subprocess

import pytest

from tests.e2e.test_reconcile import FailingStore
from tests.support.sublet import BIN, MIB, wait_until
from tests.support.tcp import start_with_tcp
from tests.support.transcript import GOLDEN, Transcript

QUICK = '[gpu]\ninterval_idle = "300ms"\ninterval_busy = "200ms"\nmax_age = "1s"\ntimeout = "1s"\n'


@pytest.fixture
def scene(daemon):
    return Transcript(daemon)


def alone(transcript, *arguments, program="sublet"):
    """Runs without a reachable daemon."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("SUBLET_", "XDG_"))}
    clean["SUBLET_HOST"] = "unix:///nonexistent/sublet.sock"
    done = subprocess.run([BIN / program, *map(str, arguments)], env=clean, capture_output=True, text=True, timeout=60,
                          stdin=subprocess.DEVNULL)
    transcript.add(" ".join([program, *map(str, arguments)]), done.returncode, done.stdout, done.stderr)


def hold(scene, vram, *arguments):
    """Takes a lease in another user's role, for the test."""
    child = scene.daemon.spawn("sublet", "hold", "--vram", vram, *arguments)
    scene.hide_pid(child.pid)
    assert child.stdout.readline().startswith("lease-")
    return child


def program(scene, vram, alloc, *arguments):
    """Runs a program that holds bytes under a lease."""
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
    for words in ([], ["staus"], ["frobnicate"], ["ps", "--al"], ["ps", "--frobnicate"], ["adapter", "lease-1"],
                  ["why"], ["run"], ["run", "true"], ["run", "--vram", "8", "GiB", "--", "true"], ["free", "2", "GiB"],
                  ["run", "--", "no-such-program"], ["run", "--share", "50", "--", "true"],
                  ["ps", "more"]):
        alone(scene, *words)
    scene.check("wrong-words")


def test_wrong_sizes():
    scene = Transcript()
    for size in ("8Q", "-1", "0", "4", "1,5GiB", "much", "", "18446744073709551616"):
        alone(scene, "run", f"--vram={size}", "--", "true")
    alone(scene, "run", "--ttl", "soon", "--vram", "1G", "--", "true")
    scene.check("wrong-sizes")


def test_wrong_configuration(tmp_path):
    scene = Transcript()
    scene.hide(tmp_path, "DIR")
    file = tmp_path / "sublet.toml"
    file.write_text('[queue]\nclaim_windo = "10s"\n[fairshare]\nwindow = "1d"\n[device]\nheadroom = "8Q"\n')
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


def test_interrupted_while_it_waits(scene):
    hold(scene, "3GiB", "--name", "blocker")
    waiter = scene.daemon.spawn("sublet", "run", "--vram", "2GiB", "--", "echo", "my turn")
    queued(scene)
    waiter.send_signal(signal.SIGINT)
    out, err = waiter.communicate(timeout=60)
    scene.add("sublet run --vram 2GiB -- echo 'my turn'    # Ctrl-C", waiter.returncode, out, err)
    waiter = scene.daemon.spawn("sublet", "run", "--vram", "2GiB", "--tag", "later", "--", "true")
    queued(scene)
    scene.run("release", "later")
    out, err = waiter.communicate(timeout=60)
    scene.add("sublet run --vram 2GiB --tag later -- true    # released by somebody", waiter.returncode, out, err)
    scene.run("ps", "--all")
    scene.check("run-interrupted")


def test_the_daemon_is_restarted_while_one_waits_and_one_runs(start_daemon):
    scene = Transcript(start_daemon("1x4GiB", config=QUICK))
    holder = scene.daemon.spawn("sublet", "run", "--vram", "3GiB", "--name", "train", "--", "cat",
                                stdin=subprocess.PIPE)
    wait_until(lambda: any(x["state"] == "active" and x["owner"]["pid"] for x in scene.daemon.leases()), "it runs")
    waiter = scene.daemon.spawn("sublet", "run", "--vram", "2GiB", "--name", "next", "--", "echo", "my turn")
    queued(scene)
    scene.daemon.restart()
    scene.hide_pid(scene.daemon.process.pid)
    queued(scene)
    scene.run("ps")
    holder.stdin.close()
    holder.stdin = None
    out, err = holder.communicate(timeout=60)
    scene.add("sublet run --vram 3GiB --name train -- cat", holder.returncode, out, err)
    out, err = waiter.communicate(timeout=60)
    scene.add("sublet run --vram 2GiB --name next -- echo 'my turn'", waiter.returncode, out, err)
    scene.check("restart")


def test_how_programs_end(scene):
    scene.run("run", "--vram", "1GiB", "--", "sh", "-c", "kill -9 $$")
    scene.run("run", "--vram", "1GiB", "--ttl", "1s", "--", "sleep", "600")
    scene.run("run", "--vram", "1GiB", "--", "/dev/null")
    scene.run("ps", "--all")
    scene.run("why", "lease-1")
    scene.run("why", "lease-2")
    scene.check("ends")


def test_several_cards(start_daemon):
    scene = Transcript(start_daemon("2x4GiB"))
    scene.run("run", "--vram", "3GiB", "--gpus", "2", "--", "true")
    scene.run("run", "--vram", "3GiB", "--gpus", "3", "--", "true")
    hold(scene, "2GiB", "--gpu", "gpu1")
    scene.run("gpus")
    scene.run("run", "--vram", "3GiB", "--gpus", "2", "--no-wait", "--", "true")
    scene.run("run", "--vram", "3GiB", "--gpus", "2", "--min-vram", "1GiB", "--", "true")
    scene.run("run", "--vram", "3GiB", "--gpu", "gpu1", "--no-wait", "--", "true")
    scene.run("run", "--vram", "3GiB", "--gpu", "gpu1", "--gpus", "2", "--", "true")
    scene.check("several-cards")


def test_why_on_several_cards(start_daemon):
    scene = Transcript(start_daemon("2x4GiB"))
    hold(scene, "1GiB", "--gpu", "gpu1", "--name", "blocker")
    hold(scene, "2GiB", "--gpus", "2", "--tag", "pair")
    waiter = scene.daemon.spawn("sublet", "run", "--vram", "3GiB", "--gpus", "2", "--tag", "later", "--", "true")
    scene.hide_pid(waiter.pid)
    queued(scene)
    for words in (["why", "pair"], ["why", "later"], ["resize", "pair", "3GiB"], ["why", "pair"]):
        scene.run(*words)
    scene.check("why-several-cards")


def test_another_size(scene):
    hold(scene, "1GiB", "--tag", "mine")
    hold(scene, "2GiB", "--name", "blocker")
    scene.run("resize", "mine", "512MiB")
    scene.run("resize", "mine", "1GiB")
    scene.run("resize", "mine", "3GiB", "--no-wait")
    scene.run("resize", "mine", "8GiB")
    scene.run("resize", "mine", "3GiB")
    scene.run("ps")
    scene.run("why", "mine")
    scene.run("resize", "mine", "1GiB")
    scene.run("resize", "lease-99", "1GiB")
    scene.check("resize")


def test_without_a_size(scene):
    scene.run("run", "--name", "new", "--", "sh", "-c", "echo $SUBLET_LEASE_BYTES")
    scene.run("run", "--vram", "2GiB", "--", "sh", "-c",
              "sublet run --vram 1GiB -- true; sublet run --vram 3GiB --no-wait -- true")
    scene.check("no-size")


def test_a_lease_for_a_script(scene):
    token = scene.daemon.dir / "token"
    scene.run("hold", "--vram", "1GiB", "--tag", "script", "--token-file", token)
    scene.run("hold", "--vram", "1GiB", "--tag", "script", "--token-file", token, "--ttl", "1h")
    scene.run("hold", "--vram", "1GiB", "--tag", "other", "--token-file", token, "--ttl", "1h")
    scene.run("hold", "--vram", "1GiB", "--tag", "other", "--token-file", token / "none", "--ttl", "1h")
    scene.run("renew", "script", "--token-file", token)
    scene.run("release", "script", "--token-file", token)
    scene.run("renew", "script", "--token-file", token)
    scene.run("renew", "script", "--token-file", scene.daemon.dir / "none")
    scene.run("renew", "script", "--token-file", scene.daemon.dir)
    scene.run("renew", "script", "--token-file", "/dev/null")
    scene.run("wait", "script")
    scene.check("script")


def test_rights_of_users(start_daemon):
    scene = Transcript(start_with_tcp(start_daemon))
    daemon = scene.daemon
    scene.hide(daemon.port, "PORT")
    daemon.cli("hold", "--vram", "1GiB", "--tag", "hers", "--token-file", daemon.dir / "lease", "--ttl", "1h", check=0)
    files = {scope: daemon.dir / scope for scope in ("read", "submit")}
    for scope, file in files.items():
        scene.run("token", "create", "--scope", scope, "--file", file)
    scene.run("token", "create", "--scope", "write")
    daemon.kill()
    with daemon.store() as store:  # another user's, as the daemon of a machine has them
        store.execute("UPDATE leases SET uid = 4711, document = json_set(document, '$.uid', 4711, '$.user', 'ana')")
    daemon.start()
    scene.hide_pid(daemon.process.pid)

    def over_tcp(file, *words):
        scene.parts.append(f"# with {file.name if file else 'no'} token\n")
        scene.run(*words, SUBLET_HOST=f"http://127.0.0.1:{daemon.port}",
                  **({"SUBLET_TOKEN_FILE": str(file)} if file else {}))

    over_tcp(None, "ps")
    over_tcp(files["read"], "ps")
    over_tcp(files["read"], "run", "--vram", "1GiB", "--", "true")
    over_tcp(files["submit"], "release", "lease-1")
    over_tcp(files["submit"], "stop", "lease-1")
    over_tcp(files["submit"], "token", "ls")
    over_tcp(files["submit"], "hold", "--vram", "1GiB", "--tier", "critical", "--token-file", daemon.dir / "new",
             "--ttl", "1h")
    scene.run("token", "revoke", "token-2")
    over_tcp(files["submit"], "ps")
    over_tcp(daemon.dir / "none", "ps")
    scene.check("denied")


def test_refusals_of_the_daemon(scene):
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


def test_waiting_leases_and_holders(scene):
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


def test_an_unleased_process(scene):
    unleased = scene.daemon.spawn("simgpu-load", "--alloc", "2GiB", "--seconds", "600")
    scene.hide_pid(unleased.pid)
    wait_until(lambda: scene.daemon.get("/v1/devices")["devices"][0]["other_bytes"] > 2048 * MIB, "it is seen")
    scene.run("status")
    scene.run("proclist")
    scene.run("run", "--vram", "3GiB", "--no-wait", "--", "true")
    scene.check("unleased")


def test_the_gpu_cannot_be_read(start_daemon):
    scene = Transcript(start_daemon("1x4GiB", config=QUICK))
    scene.daemon.ctl("fault", "nvml-error")
    wait_until(lambda: scene.daemon.get("/v1/status")["warnings"], "a warning")
    wait_until(lambda: scene.daemon.get("/v1/devices")["devices"][0]["state"] != "ok", "it is unknown")
    scene.run("status")
    scene.run("run", "--vram", "1GiB", "--no-wait", "--", "true")
    scene.check("gpu-unreadable")


def test_a_card_that_is_lost(start_daemon):
    scene = Transcript(start_daemon("1x2GiB+1x4GiB", config=QUICK + "cordon_on = []\n"))
    hold(scene, "3GiB", "--name", "blocker")
    scene.daemon.spawn("sublet", "run", "--vram", "3GiB", "--name", "next", "--", "true")
    queued(scene)
    scene.daemon.ctl("fault", "device-lost", "--device", 1)
    wait_until(lambda: [x["state"] for x in scene.daemon.leases()] == ["queued"], "what was on it has failed")
    for words in (["status"], ["queue"], ["why", "lease-2"], ["ps", "--all"]):
        scene.run(*words)
    scene.run("run", "--vram", "3GiB", "--no-wait", "--", "true")
    scene.check("lost-card")


def test_a_daemon_without_a_gpu(start_daemon):
    scene = Transcript(start_daemon(sim=None, config='[gpu]\nnvml = "/nowhere/libnvidia-ml.so.1"\n',
                                    wait_for_cards=False))
    wait_until(lambda: scene.daemon.get("/v1/status")["warnings"], "a warning")
    done = scene.daemon.cli("doctor")
    # The other lines of doctor depend on this machine.
    lines = done.stdout.splitlines()
    told = [line + "\n" + lines[i + 1] for i, line in enumerate(lines) if line.startswith("fail")]
    scene.add("sublet doctor", done.returncode, "\n".join([*told, lines[-1].split(",")[0]]) + "\n", done.stderr)
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
    text = "".join(path.read_text() for path in pathlib.Path(__file__).parent.glob("test_golden*.py"))
    assert not [path.name for path in GOLDEN.iterdir() if f'check("{path.stem}")' not in text]
