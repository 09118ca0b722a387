# SPDX-License-Identifier: Apache-2.0
"""The ways in which a program can cooperate, as docs/cooperative.md shows them; and grants."""
import os
import re
import signal
import socket
import subprocess
import sys

import pytest

from tests.e2e.test_cooperation import CONFIG, cooperation, lease_of, ledger_is_empty, reasons, until, used_on_card, why
from tests.support.parking import quick_checkpoints
from tests.support.sublet import BIN, BUILD, MIB, ROOT, wait_until
from tests.support.system import CAROL, DAVE, System

PAGE = (ROOT / "docs" / "cooperative.md").read_text()


@pytest.fixture
def daemon(start_daemon):
    daemon = start_daemon("1x1GiB", config=CONFIG)
    quick_checkpoints(daemon)
    return daemon


def example(language, number=0):
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.S)[number]


def run(daemon, *command, vram="256MiB", **env):
    path = f"{BUILD / 'lib'}:{daemon.env()['LD_LIBRARY_PATH']}"
    return daemon.spawn("sublet", "run", "--vram", vram, "--tag", "it", "--pausable", "cooperative", "--",
                        *command, env=daemon.env(LD_LIBRARY_PATH=path, **env))


def registered(daemon):
    def look():
        reply = daemon.get("/v1/leases/it")
        return reply.status == 200 and cooperation(daemon, "it")["registered"]
    return wait_until(look, "its program has said how it yields")


def there_and_back(daemon):
    done = daemon.cli("pause", "it")
    assert done.returncode == 0, (done.stderr, reasons(daemon))
    assert lease_of(daemon, "it")["pause"]["method"] == "cooperative"
    done = daemon.cli("resume", "it")
    assert done.returncode == 0, (done.stderr, reasons(daemon))
    ledger_is_empty(daemon)


# --- the library ---

def compile_example(tmp_path):
    source = tmp_path / "example.c"
    source.write_text(example("c").replace("/* one step of the work */", "usleep(1000);").replace(
        "#include <stdio.h>", "#include <stdio.h>\n#include <unistd.h>"))
    subprocess.run(["cc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", f"-I{ROOT / 'include'}", source, "-o",
                    tmp_path / "example", f"-L{BUILD / 'lib'}", "-lsublet"], check=True)
    return tmp_path / "example"


def test_the_example_in_c(daemon, tmp_path):
    program = run(daemon, compile_example(tmp_path), vram="600MiB")
    assert registered(daemon)["way"] == "poll"
    there_and_back(daemon)
    there_and_back(daemon)
    os.kill(lease_of(daemon, "it")["owner"]["pid"], signal.SIGKILL)
    assert "asked to yield within" in program.communicate(timeout=60)[1]


def test_the_header_is_plain_c_and_cplusplus(tmp_path):
    for compiler, standard, suffix in (("cc", "-std=c11", ".c"), ("c++", "-std=c++11", ".cpp")):
        source = tmp_path / f"header{suffix}"
        source.write_text("#include <sublet/sublet.h>\nint main(void) { struct sublet_callbacks c = "
                          "SUBLET_CALLBACKS_INIT; return sublet_register(&c) == SUBLET_USAGE ? 0 : 1; }\n")
        subprocess.run([compiler, standard, "-Wall", "-Wextra", "-Wpedantic", "-Werror", f"-I{ROOT / 'include'}",
                        source, "-o", tmp_path / "header", f"-L{BUILD / 'lib'}", "-lsublet"], check=True)
        subprocess.run([tmp_path / "header"], check=True, env=dict(os.environ, LD_LIBRARY_PATH=str(BUILD / "lib")))


def test_the_library_needs_nothing_but_libc():
    needed = subprocess.run(["readelf", "-d", BUILD / "lib" / "libsublet.so"], capture_output=True, text=True,
                            check=True).stdout
    names = re.findall(r"NEEDED.*\[(.*?)\]", needed)
    assert all(name.startswith(("libc.", "libpthread.", "ld-linux", "libasan", "libubsan", "libtsan"))
               for name in names), names
    exported = subprocess.run(["nm", "-D", "--defined-only", BUILD / "lib" / "libsublet.so"], capture_output=True,
                              text=True, check=True).stdout
    symbols = [line.split()[-1] for line in exported.splitlines()]
    assert symbols and all(name.startswith("sublet_") for name in symbols), symbols


@pytest.mark.parametrize("env, says", [({}, "SUBLET_LEASE is not set"),
                                       ({"SUBLET_LEASE": "lease-1", "SUBLET_HOST": "unix:///nonexistent"},
                                        "does not answer")])
def test_without_lease_or_daemon_the_program_runs_on(tmp_path, env, says):
    clean = {name: value for name, value in os.environ.items() if not name.startswith("SUBLET_")}
    program = subprocess.Popen([compile_example(tmp_path)], stderr=subprocess.PIPE, text=True,
                               env=dict(clean, LD_LIBRARY_PATH=str(BUILD / "lib"), **env))
    assert says in program.stderr.readline()
    assert program.poll() is None, "it runs on"
    program.kill()
    program.wait()
    program.stderr.close()


def test_the_example_in_python(daemon, tmp_path):
    script = tmp_path / "example.py"
    script.write_text(example("python", 0) + "\nimport signal\nwhile True:\n    signal.pause()\n")
    program = run(daemon, sys.executable, "-u", script, vram="600MiB")
    registered(daemon)
    there_and_back(daemon)
    assert program.stdout.readline() == "yields\n" and program.stdout.readline() == "resumed\n"


def test_two_processes_of_a_program_cannot_both_yield_for_it(daemon, tmp_path):
    script = tmp_path / "twice.py"
    script.write_text(example("python", 0).replace("512 << 20", "0").split("assert")[0] + """
import os, signal
first = lib.sublet_register(ctypes.byref(callbacks))
if os.fork() == 0:
    print("child", lib.sublet_register(ctypes.byref(callbacks)), flush=True)
    os._exit(0)
os.wait()
print("parent", first, flush=True)
while True:
    signal.pause()
""")
    program = run(daemon, sys.executable, "-u", script)
    assert program.stdout.readline() == "child 3\n", "refused: its parent yields for it"
    assert program.stdout.readline() == "parent 0\n"
    there_and_back(daemon)


# --- the webhook ---

def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def serve_hook(daemon, tmp_path, answers=None, **options):
    port = free_port()
    script = tmp_path / "hook.py"
    text = example("python", 1).replace("8080", str(port))
    if answers:
        text = text.replace('{"yield": "yielded", "resume": "resumed"}', repr(answers))
    script.write_text(text)
    return port, [sys.executable, "-u", script]


def listens(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_the_webhook_of_the_example(daemon, tmp_path):
    port, command = serve_hook(daemon, tmp_path)
    program = run(daemon, *command)
    wait_until(lambda: listens(port), "it listens")
    done = daemon.cli("cooperate", "it", "--webhook", f"http://127.0.0.1:{port}/sublet", "--residue", "64MiB")
    assert done.returncode == 0 and "the daemon calls" in done.stderr, done.stderr
    assert registered(daemon)["way"] == "webhook" and registered(daemon)["residue_bytes"] == 64 * MIB
    there_and_back(daemon)
    assert program.poll() is None


def test_a_holder_is_told_of_its_pause(daemon, tmp_path):
    port, command = serve_hook(daemon, tmp_path)
    daemon.spawn(*command)
    wait_until(lambda: listens(port), "it listens")
    holder = daemon.spawn("sublet", "hold", "--vram", "256MiB", "--tag", "it")
    wait_until(lambda: daemon.get("/v1/leases/it").status == 200, "it is asked for")
    id = until(daemon, "it", "active")["id"]
    assert daemon.cli("cooperate", "it", "--webhook", f"http://127.0.0.1:{port}/").returncode == 0
    there_and_back(daemon)
    # Refused until the memory that the program holds again has been measured.
    wait_until(lambda: daemon.cli("release", "it").returncode == 0, "it is given back")
    said = holder.communicate(timeout=60)[1]
    assert f"{id} is paused: requested by its owner; `sublet resume {id}`" in said and f"{id} runs again" in said, said


def test_a_webhook_that_refuses_is_left_alone(daemon, tmp_path):
    port, command = serve_hook(daemon, tmp_path, {"yield": "refused", "resume": "resumed"})
    run(daemon, *command)
    wait_until(lambda: listens(port), "it listens")
    assert daemon.cli("cooperate", "it", "--webhook", f"http://localhost:{port}/").returncode == 0
    assert daemon.cli("pause", "it").returncode == 1
    assert "refuses to yield" in why(daemon, "resuming") and lease_of(daemon, "it")["state"] == "active"
    ledger_is_empty(daemon)


def test_an_unreachable_webhook(daemon):
    run(daemon, "sleep", "600")
    until(daemon, "it", "active")
    assert daemon.cli("cooperate", "it", "--webhook", f"http://127.0.0.1:{free_port()}/").returncode == 0
    assert daemon.cli("pause", "it").returncode == 1
    assert "no process listens" in why(daemon, "resuming") and lease_of(daemon, "it")["state"] == "active"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a second user")
def test_a_webhook_of_another_user_is_not_called(daemon, tmp_path):
    port, command = serve_hook(daemon, tmp_path)
    daemon.spawn(sys.executable, "-c", "import http.server, json, os, socket\n"
                 "socket.getfqdn(\"127.0.0.1\"); os.setuid(65534)\n" + command[-1].read_text())
    wait_until(lambda: listens(port), "somebody else listens")
    daemon.spawn("sublet", "run", "--vram", "64MiB", "--tag", "it", "--pausable", "cooperative", "--", "sleep", "600")
    wait_until(lambda: daemon.get("/v1/leases/it").status == 200 and lease_of(daemon, "it")["owner"]["pid"], "it runs")
    assert daemon.cli("cooperate", "it", "--webhook", f"http://127.0.0.1:{port}/").returncode == 0
    assert daemon.cli("pause", "it").returncode == 1
    assert "uid 65534" in why(daemon, "resuming")


def test_answers_later(daemon, tmp_path):
    port, command = serve_hook(daemon, tmp_path)
    command[-1].write_text(command[-1].read_text().replace("send_response(200)", "send_response(202)"))
    run(daemon, *command)
    wait_until(lambda: listens(port), "it listens")
    assert daemon.cli("cooperate", "it", "--webhook", f"http://127.0.0.1:{port}/").returncode == 0
    for verb, order, answer in (("pause", "yield", "yielded"), ("resume", "resume", "resumed")):
        assert daemon.cli(verb, "it", "--no-wait").returncode == 0
        now = wait_until(lambda order=order: (lambda it: it if it["order"] == order else None)(
            cooperation(daemon, "it")), f"it is told: {order}")
        reply = daemon.api().post("/v1/leases/it/cooperate/answer", {"number": now["number"], "answer": answer})
        assert reply.status == 200 and reply["order"] == "none", reply
        until(daemon, "it", "paused" if verb == "pause" else "active")


# --- signals and a file ---

def test_the_script_of_the_example(daemon, tmp_path):
    server = tmp_path / "my-model-server"
    server.write_text("#!/bin/sh\nexec simgpu-load --alloc 64MiB --seconds 600\n")
    server.chmod(0o755)
    script = tmp_path / "serve.sh"
    script.write_text(example("bash"))
    program = run(daemon, "bash", script, PATH=f"{tmp_path}:{BIN}:{os.environ['PATH']}")
    how = registered(daemon)
    assert (how["way"], how["pause_signal"], how["resume_signal"]) == ("signal", "USR1", "USR2")
    wait_until(lambda: lease_of(daemon, "it")["used_bytes"] >= 64 * MIB, "its server has filled its memory")
    done = daemon.cli("pause", "it")
    assert done.returncode == 0, (done.stderr, reasons(daemon))
    assert used_on_card(daemon) == 0
    done = daemon.cli("resume", "it")
    assert done.returncode == 0, (done.stderr, reasons(daemon))
    wait_until(lambda: lease_of(daemon, "it")["used_bytes"] >= 64 * MIB, "its server is there again")
    assert program.poll() is None
    assert daemon.cli("stop", "it").returncode == 0


def test_no_other_user_can_stand_in_the_way_of_an_answer():
    system = System()
    try:
        system.start()
        answers = "".join(f"trap 'echo {word} > \"$answer\"' {name}; "
                          for word, name in (("yielded", "USR1"), ("resumed", "USR2")))
        script = f"umask 077; {answers} answer=$(sublet cooperate --signal --pid $$); while :; do sleep 0.1; done"
        system.run(CAROL, "it", "bash", "-c", script, more=("--pausable", "cooperative"))
        lease = system.until("it", "active")["id"]
        how = wait_until(lambda: system.get(f"/v1/leases/{lease}/cooperate")["registered"], "it has registered")
        file = how["answer_file"]
        assert file == f"/var/lib/sublet/exits/{CAROL}/{lease}-yield"
        for words in (("mkdir", file), ("ln", "-s", "/etc/passwd", file), ("touch", file),
                      ("ls", os.path.dirname(file)),
                      ("mkdir", "/var/lib/sublet/exits/lease-2-yield"), ("ls", "/var/lib/sublet/exits")):
            done = subprocess.run(system.inside(DAVE, *words), capture_output=True, text=True)
            assert "Permission denied" in done.stderr, (words, done)
        for verb, state in (("pause", "paused"), ("resume", "active")):
            system.cli(CAROL, verb, "it", check=0)
            system.until("it", state)
    finally:
        system.close()


def test_a_signal_that_would_end_it_is_not_sent(daemon):
    program = run(daemon, "sleep", "600")
    wait_until(lambda: daemon.get("/v1/leases/it").status == 200 and lease_of(daemon, "it")["owner"]["pid"], "it runs")
    pid = lease_of(daemon, "it")["owner"]["pid"]
    wait_until(lambda: b"sleep" in open(f"/proc/{pid}/cmdline", "rb").read(), "it is what it will be")
    assert daemon.cli("cooperate", "it", "--signal", "--pid", pid).returncode == 0
    assert daemon.cli("pause", "it").returncode == 1
    assert "no handler for the signal" in why(daemon, "resuming")
    assert program.poll() is None and lease_of(daemon, "it")["state"] == "active"


def test_wrong_usage_of_cooperate(daemon):
    assert daemon.cli("cooperate").returncode == 2
    assert daemon.cli("cooperate", "lease-1").returncode == 2
    assert daemon.cli("cooperate", "lease-1", "--signal", "--webhook", "http://127.0.0.1:1/").returncode == 2
    assert daemon.cli("pause").returncode == 2
    assert daemon.cli("pause", "lease-1", "--grants").returncode == 2
    assert daemon.cli("pause", "--revoke", "nobody").returncode == 4
    assert daemon.cli("pause", "--grant", "no/such/name").returncode == 2
    for flag in ("--grant", "--revoke"):
        nobody = daemon.cli("pause", flag, "")
        assert nobody.returncode == 2 and f"{flag}: " in nobody.stderr, nobody.stderr


# --- grants ---

def test_attached_programs_are_parked_only_with_a_grant(daemon):
    program = daemon.spawn("simgpu-load", "--alloc", "128MiB", "--seconds", "600", "--verify")
    wait_until(lambda: used_on_card(daemon) > 128 * MIB, "it has filled its memory")
    daemon.cli("hold", "--vram", "256MiB", "--tag", "it", "--name", "ollama", "--pid", program.pid, check=0)
    wait_until(lambda: lease_of(daemon, "it")["used_bytes"] > 128 * MIB, "it is booked")
    done = daemon.cli("pause", "it")
    assert done.returncode == 1 and "sublet pause --grant ollama" in done.stderr, done.stderr
    assert daemon.cli("pause", "--grant", "ollama").returncode == 0
    assert [row["consumer"] for row in daemon.get("/v1/consumers")["grants"]] == ["ollama"]
    daemon.restart()
    assert "ollama" in daemon.cli("pause", "--grants").stdout
    done = daemon.cli("pause", "it")
    assert done.returncode == 0, done.stderr
    assert used_on_card(daemon) < 64 * MIB
    assert daemon.cli("resume", "it").returncode == 0 and program.poll() is None
    assert daemon.cli("pause", "--revoke", "ollama").returncode == 0
    assert daemon.cli("pause", "it").returncode == 1
    assert daemon.get("/v1/consumers")["grants"] == []


def test_attached_programs_are_not_promised_a_stop(daemon):
    program = daemon.spawn("simgpu-load", "--alloc", "128MiB", "--seconds", "600", "--verify")
    wait_until(lambda: used_on_card(daemon) > 128 * MIB, "it has filled its memory")
    daemon.cli("hold", "--vram", "256MiB", "--tag", "it", "--name", "ollama", "--pid", program.pid, check=0)
    wait_until(lambda: lease_of(daemon, "it")["used_bytes"] > 128 * MIB, "it is booked")
    assert daemon.cli("pause", "--grant", "ollama").returncode == 0
    assert daemon.cli("pause", "it").returncode == 0
    done = daemon.cli("stop", "it")
    assert done.returncode == 0 and "SIGTERM" not in done.stderr, done.stderr
    assert "Sublet did not start" in done.stderr, done.stderr
    assert f"Sublet did not start its program (pid {program.pid}) and does not end it: `kill {program.pid}` does" \
        in done.stderr, done.stderr
    assert "the lease ends as soon as its program runs again" in str(daemon.get("/v1/leases/lease-1/why")["reasons"])
    assert program.poll() is None
