# SPDX-License-Identifier: Apache-2.0
"""Supervised programs by the command line: run --detach, programs, status, logs, update, restart, stop, remove."""
import json
import os
import pathlib
import signal

import pytest

from tests.support.keeping import daemon  # noqa: F401 (a fixture)
from tests.support.sublet import GIB, MIB, living, wait_until

LOAD = ("simgpu-load", "--alloc", "256MiB", "--seconds", "600")


def program(daemon, tag):
    return daemon.get(f"/v1/programs/{tag}").body


def reaches(daemon, tag, state):
    return wait_until(lambda: (now := program(daemon, tag))["state"] == state and now, f"{tag} is {state}")


def detach(daemon, tag, *words, vram="1GiB", **env):
    done = daemon.cli("run", "--detach", "--tag", tag, "--vram", vram, *words, check=0, **env)
    assert done.stdout in [f"{tag}: {state}\n" for state in ("running", "queued", "exited", "backoff")], done


def test_a_program_is_handed_over_with_its_surroundings(daemon, tmp_path):
    file = tmp_path / "vars"
    file.write_text("# a comment\nFROM_FILE=1\nBOTH=file\n")
    detach(daemon, "serve", "--memory", "2GiB", "--soft", "1536MiB", "--env", "BOTH=flag", "--env", "GIVEN",
           "--env-file", file, "--restart", "on-failure", "--tier", "batch", "--", "sleep", "600", GIVEN="x=y",
           HIDDEN="1")
    now = program(daemon, "serve")
    assert (now["memory_bytes"], now["soft_bytes"], now["vram_bytes"]) == (2 * GIB, 1536 * MIB, GIB)
    assert (now["restart"], now["tier"], now["command"], now["directory"]) == ("on-failure", "batch", "sleep 600",
                                                                              os.getcwd())
    variables = dict(entry.split("=", 1) for entry in now["environment"])
    assert (variables["FROM_FILE"], variables["BOTH"], variables["GIVEN"]) == ("1", "flag", "x=y")
    assert variables["PATH"] == daemon.env()["PATH"] and "HIDDEN" not in variables
    refused = daemon.cli("run", "--detach", "--tag", "serve", "--vram", "1GiB", "--", "true")
    assert refused.returncode == 125 and "serve" in refused.stderr and "hint:" in refused.stderr


def test_a_command_line_has_its_ceiling_as_its_size(daemon):
    done = daemon.cli("run", "--command", "sleep 600", "--memory", "536870912", "--json", check=0)
    made = json.loads(done.stdout)
    assert (made["tag"], made["command"]) == ("sleep", "sleep 600")
    assert (made["vram_bytes"], made["memory_bytes"]) == (512 * MIB, 512 * MIB)


def test_an_update_shows_what_holds_now(daemon):
    detach(daemon, "serve", "--", "sleep", "600")
    done = daemon.cli("update", "serve", "--memory", "3GiB", "--soft", "2GiB", "--restart", "always", check=0)
    assert done.stderr == "serve: ceiling 3.0 GiB, soft limit 2.0 GiB, restart always\n"
    done = daemon.cli("update", "serve", "--memory", "none", "--soft", "none", check=0)
    assert done.stderr == "serve: ceiling none, soft limit none\n"
    assert program(daemon, "serve")["memory_bytes"] is None
    assert daemon.cli("update", "serve").returncode == 2
    done = daemon.cli("update", "serv", "--memory", "1GiB")
    assert done.returncode == 4 and "did you mean 'serve'" in done.stderr


@pytest.mark.parametrize("words, code, says, hint", [
    (("--memory", "1.5", "--", "true"), 2, "--memory: size '1.5' has no unit", "add a unit: 1.5GiB or 1.5MiB"),
    (("--vram", "0.5", "--", "true"), 2, "--vram: size '0.5' has no unit", "add a unit: 0.5GiB or 0.5MiB"),
    (("--vram", "1GiB", "--soft", "8", "--", "true"), 2, "--soft: size '8' has no unit", "add a unit: 8GiB or 8MiB"),
    (("--vram", "1GiB", "--env-file", "/nosuch", "--", "true"), 125,
     "--env-file: cannot read the file '/nosuch': No such file or directory", "NAME=VALUE on each line"),
    (("--vram", "1GiB", "--env-file", "/", "--", "true"), 125,
     "--env-file: cannot read the file '/': Is a directory", "NAME=VALUE on each line"),
    (("--vram", "1GiB", "--", "no-such-program"), 127, "'no-such-program' was not found in PATH", ""),
    (("--vram", "1GiB", "--", "/etc/passwd"), 126, "'/etc/passwd' cannot be executed: Permission denied", ""),
])
def test_a_refused_start_names_its_remedy(shared_daemon, words, code, says, hint):
    done = shared_daemon.cli("run", "--detach", "--json", *words)
    assert done.returncode == code and f"sublet: {says}\n" in done.stderr and hint in done.stderr, done
    if code != 2:  # found before the request, as if the daemon had refused it
        refused = json.loads(done.stdout)
        assert refused["detail"] == says and hint in refused["hint"] and refused["hint"]
        assert refused["code"] == {125: "Unavailable", 126: "BadRequest", 127: "NotFound"}[code]
    assert shared_daemon.get("/v1/programs")["programs"] == []


def test_unknown_names_are_told_of(daemon):
    for words in (("status", "none"), ("stop", "none")):
        done = daemon.cli(*words)
        assert done.returncode == 4 and "there is no program and no lease 'none'" in done.stderr
    for words in (("logs", "none"), ("restart", "none"), ("remove", "none")):
        done = daemon.cli(*words)
        assert done.returncode == 4 and "there is no program 'none'" in done.stderr
    assert daemon.cli("programs").stderr == "no supervised program: sublet run --detach starts one\n"
    detach(daemon, "serve", "--", "sleep", "600")
    for verb in ("why", "status", "stop", "logs", "wait"):
        done = daemon.cli(verb, "serv")
        assert done.returncode == (125 if verb == "wait" else 4) and "did you mean 'serve'?" in done.stderr, done


def test_a_removal_ends_when_the_program_is_replaced_meanwhile(daemon):
    stubborn = "trap 'until test -e go; do sleep 0.1; done; exit 0' TERM; echo ready; while :; do sleep 0.1; done"
    detach(daemon, "serve", "--", "sh", "-c", f"cd {daemon.dir}; {stubborn}")
    wait_until(lambda: "ready" in daemon.cli("logs", "serve").stdout, "it runs")
    removal = daemon.spawn("sublet", "remove", "serve")
    wait_until(lambda: program(daemon, "serve")["stopping"], "it is being removed")
    replaced = daemon.api().post("/v1/programs/serve/restart", {})
    (daemon.dir / "go").touch()
    code, said = removal.wait(timeout=60), removal.stderr.read()
    if replaced.status == 409:  # a program that is being removed does not start again
        assert (code, said) == (0, "serve is removed\n")
    else:
        assert code == 1 and "serve is not removed: it was started again meanwhile" in said and "hint:" in said
        daemon.cli("remove", "serve", check=0)


def test_a_removed_program_is_forgotten(daemon):
    detach(daemon, "serve", "--", "sleep", "600")
    assert "serve" in daemon.cli("programs", check=0).stdout
    assert daemon.cli("remove", "serve", check=0).stderr == "serve is removed\n"
    assert daemon.get("/v1/programs")["programs"] == []


def test_the_status_of_a_lease_is_one_screen(daemon):
    child = daemon.spawn("sublet", "run", "--vram", "1GiB", "--tag", "mine", "--", "sh", "-c", "simgpu-load --alloc "
                         "256MiB --seconds 600; true")
    wait_until(lambda: any(row["lease"] for row in daemon.get("/v1/processes")["processes"]), "it is measured")
    lease, = daemon.leases()
    for name in ("mine", lease["id"]):
        text = daemon.cli("status", name, check=0).stdout
        assert text.startswith(f"{lease['id']} (mine, ") and ": active for " in text
        assert "gpu0  [#" in text and f"main pid  {lease['owner']['pid']}" in text
        assert "└ " in text and "simgpu-load --alloc 256MiB" in text
    assert daemon.json("status", "mine")["id"] == lease["id"]
    daemon.cli("stop", "mine", check=0)
    child.wait(timeout=60)
    assert ": ended for " in daemon.cli("status", lease["id"], check=3).stdout


def test_a_program_runs_and_its_output_is_kept(daemon):
    detach(daemon, "serve", "--", "sh", "-c", "echo one; echo two >&2; exec " + " ".join(LOAD))
    running = wait_until(lambda: (now := program(daemon, "serve"))["pid"] and now, "it runs")
    wait_until(lambda: daemon.cli("logs", "--no-marks", "serve", check=0).stdout.startswith("one\ntwo\n"),
               "its output is kept")
    assert daemon.cli("logs", "serve", "-n", "1", "--timestamps", check=0).stdout.split(" ", 1)[0].endswith("Z")
    wait_until(lambda: program(daemon, "serve")["used_bytes"] > 0, "it is measured")
    text = daemon.cli("status", "serve", check=0).stdout
    assert text.startswith("serve (") and f"main pid  {running['pid']}" in text and " two\n" in text, text
    row, = daemon.cli("programs", "--no-header", "-o", "tag,state,lease", check=0).stdout.splitlines()
    assert row.split() == ["serve", "running", running["lease"]]
    done = daemon.cli("stop", "serve", check=0)
    assert done.stderr == "serve is stopped\n" and not living(running["pid"])
    assert program(daemon, "serve")["state"] == "stopped"
    daemon.cli("restart", "serve", check=0)
    again = wait_until(lambda: (now := program(daemon, "serve"))["pid"] and now, "it runs again")
    assert again["pid"] != running["pid"]
    daemon.cli("remove", "serve", check=0)
    assert not living(again["pid"])
    detach(daemon, "serve", "--", "sleep", "600")  # the tag is free


def test_a_restart_returns_once_the_new_start_runs(daemon):
    detach(daemon, "serve", "--", "sh", "-c", "trap 'sleep 0.5; exit 0' TERM; echo up; while :; do sleep 0.1; done")
    wait_until(lambda: "up" in daemon.cli("logs", "serve", check=0).stdout, "it heeds SIGTERM")
    before = program(daemon, "serve")["pid"]
    assert daemon.cli("restart", "serve", check=0).stderr == "serve: running\n"
    now = program(daemon, "serve")
    assert (now["starts"], now["stopping"]) == (2, False) and not living(before)


def test_a_restart_and_a_removal_wait_for_a_paused_program(daemon):
    detach(daemon, "serve", "--", *LOAD)
    before = wait_until(lambda: (now := program(daemon, "serve"))["used_bytes"] > 200 * MIB and now, "it has memory")
    daemon.cli("pause", "serve", check=0)
    done = daemon.cli("restart", "serve", check=0)
    assert "it is resumed first" in done.stderr and "serve: running\n" in done.stderr, done
    now = program(daemon, "serve")
    assert (now["starts"], now["stopping"]) == (2, False) and not living(before["pid"])
    wait_until(lambda: program(daemon, "serve")["used_bytes"] > 200 * MIB, "it has memory again")
    daemon.cli("pause", "serve", check=0)
    held = daemon.spawn("sublet", "hold", "--vram", "3700MiB", "--pausable", "no")
    wait_until(lambda: [row for row in daemon.leases() if row["state"] == "active"], "others have its memory")
    remover = daemon.spawn("sublet", "remove", "serve")
    wait_until(lambda: program(daemon, "serve")["stopping"], "its end is under way")
    assert "running (paused, stopping)" in daemon.cli("programs", check=0).stdout
    refused = daemon.cli("restart", "serve")
    assert refused.returncode != 0 and "'serve' is being removed" in refused.stderr, refused
    daemon.cli("stop", "--no-wait", "serve", check=0)
    assert remover.poll() is None, "it waits"
    held.terminate()
    assert remover.wait(timeout=60) == 0
    assert daemon.get("/v1/programs")["programs"] == [], "a stop does not keep it"


def test_a_new_size_holds_for_later_starts(daemon):
    detach(daemon, "serve", "--", "sleep", "600")
    done = daemon.cli("resize", "serve", "2GiB", check=0)
    assert "sublet update serve --vram 2GiB" in done.stderr, done
    daemon.cli("restart", "serve", check=0)
    assert program(daemon, "serve")["vram_bytes"] == GIB, "a resize is for one start"
    assert daemon.cli("update", "serve", "--vram", "2GiB", check=0).stderr == "serve: VRAM 2.0 GiB\n"
    assert program(daemon, "serve")["vram_bytes"] == 2 * GIB
    daemon.cli("restart", "serve", check=0)
    assert program(daemon, "serve")["vram_bytes"] == 2 * GIB


def test_a_new_version_replaces_a_program(daemon):
    detach(daemon, "serve", "--replace", "--restart", "always", "--", "sh", "-c", "echo old; exec sleep 600")
    old = wait_until(lambda: (now := program(daemon, "serve"))["pid"] and now, "it runs")
    refused = daemon.cli("run", "--detach", "--replace", "--tag", "serve", "--vram", "999GiB", "--", "true")
    assert refused.returncode == 125 and living(old["pid"]), "the old one runs on"
    detach(daemon, "serve", "--replace", "--memory", "2GiB", "--", "sh", "-c", "echo new; exec sleep 600")
    now = wait_until(lambda: (now := program(daemon, "serve"))["pid"] and now, "the new one runs")
    assert not living(old["pid"]) and (now["starts"], now["restart"], now["memory_bytes"]) == (2, "never", 2 * GIB)
    wait_until(lambda: daemon.cli("logs", "--no-marks", "serve", check=0).stdout == "old\nnew\n", "the log stays")


def test_several_programs_are_ended_and_started_together(daemon):
    for tag in ("a", "b"):
        detach(daemon, tag, "--", "sleep", "600")
    assert daemon.cli("stop", "a", "b", check=0).stderr == "a is stopped\nb is stopped\n"
    done = daemon.cli("start", "a", "missing")
    assert done.returncode == 4 and "a: running\n" in done.stderr and "no program 'missing'" in done.stderr
    pid = program(daemon, "a")["pid"]
    daemon.cli("start", "--all", check=0)
    assert program(daemon, "a")["pid"] == pid and program(daemon, "b")["state"] == "running"
    daemon.cli("remove", "--all", check=0)
    assert daemon.get("/v1/programs")["programs"] == []


def test_the_exit_status_of_status_tells_the_state(daemon):
    detach(daemon, "serve", "--", "sleep", "600")
    wait_until(lambda: program(daemon, "serve")["state"] == "running", "it runs")
    daemon.cli("status", "serve", check=0)
    daemon.cli("run", "--detach", "--tag", "waits", "--vram", "3500MiB", "--", "sleep", "600", check=0)
    daemon.cli("status", "waits", check=6)
    daemon.cli("status", program(daemon, "waits")["lease"], check=6)
    daemon.cli("stop", "serve", "waits", check=0)
    daemon.cli("status", "serve", check=3)
    daemon.cli("run", "--detach", "--tag", "bad", "--vram", "1GiB", "--", "sh", "-c", "exit 1")
    reaches(daemon, "bad", "failed")
    daemon.cli("status", "bad", check=5)
    daemon.cli("status", "none", check=4)


def test_the_log_tells_starts_and_ends(daemon, tmp_path):
    imitation = "== sublet 2026-11-28T10:00:00.000Z: start 9: pid 1 under lease-1 =="
    detach(daemon, "job", "--restart", "on-failure", "--", "sh", "-c",
           f"echo '{imitation}'; [ -e {tmp_path}/again ] && exit 0; touch {tmp_path}/again; exit 3")
    assert reaches(daemon, "job", "exited")["starts"] == 2
    log = wait_until(lambda: (text := daemon.cli("logs", "job", check=0).stdout).count("ended") == 2 and text,
                     "its end")
    shown = [line.split(": ", 1)[1] if line.startswith("== sublet ") else line for line in log.splitlines()]
    leases = [text.split("under ", 1)[1].split(" ", 1)[0] for text in shown if "pid" in text and text[0] != " "]
    assert shown[1] == shown[4] == " " + imitation
    assert shown[0].startswith("start 1: pid ") and shown[2] == "start 1 has ended: exit status 3 =="
    assert shown[3].startswith("start 2: pid ") and shown[5] == "start 2 has ended: exit status 0 =="
    assert len(set(leases)) == 2
    assert daemon.cli("logs", "--no-marks", "-n", "1", "job", check=0).stdout == imitation + "\n"
    detach(daemon, "stubborn", "--", "sh", "-c", "trap '' TERM; echo up; while :; do sleep 0.1; done", vram="64MiB")
    wait_until(lambda: "up" in daemon.cli("logs", "stubborn", check=0).stdout, "it does not heed SIGTERM")
    daemon.cli("stop", "stubborn", check=0)
    text = daemon.cli("logs", "stubborn", check=0).stdout
    assert "start 1 is being ended (stopped): SIGTERM, after " in text and "has ended: signal 9 (Killed)" in text


def test_a_stop_under_way_is_shown(start_daemon):
    daemon = start_daemon("1x4GiB", config='[lease]\ngrace = "60s"\n')
    detach(daemon, "serve", "--", "sh", "-c", "trap '' TERM; echo up; while :; do sleep 0.1; done")
    wait_until(lambda: daemon.cli("logs", "--no-marks", "serve", check=0).stdout == "up\n", "it does not heed SIGTERM")
    daemon.cli("stop", "--no-wait", "serve", check=0)
    assert program(daemon, "serve")["stopping"]
    assert daemon.cli("programs", "--no-header", "-o", "state", check=0).stdout == "running (stopping)\n"
    assert "): running (stopping) for" in daemon.cli("status", "serve", check=0).stdout
    os.kill(program(daemon, "serve")["pid"], signal.SIGKILL)
    reaches(daemon, "serve", "stopped")


def has_socket(pid):
    links = pathlib.Path(f"/proc/{pid}/fd").iterdir()
    return any(os.readlink(link).startswith("socket:") for link in links if link.is_symlink())


def test_a_wait_is_for_one_start(daemon, tmp_path):
    end = tmp_path / "end"
    os.mkfifo(end)
    detach(daemon, "serve", "--restart", "always", "--", "sh", "-c", f"read code <{end}; exit $code")
    wait_until(lambda: program(daemon, "serve")["pid"], "it runs")
    wait = daemon.spawn("sublet", "wait", "serve")
    wait_until(lambda: has_socket(wait.pid), "it calls the daemon")
    end.write_text("3\n")
    assert wait.wait(timeout=60) == 3
    wait_until(lambda: (now := program(daemon, "serve"))["starts"] == 2 and now["pid"], "it runs again")
    end.write_text("5\n")
    wait_until(lambda: program(daemon, "serve")["exit_status"] == 5, "it has ended again")
    daemon.cli("stop", "serve", check=0)
    assert daemon.cli("wait", "serve").returncode == 5
    daemon.cli("run", "--detach", "--tag", "never", "--vram", "1GiB", "--", "/etc/passwd")
    done = daemon.cli("wait", "never")
    assert done.returncode == 125, done


def test_an_incomplete_line_is_shown(daemon, tmp_path):
    go_on = tmp_path / "go-on"
    os.mkfifo(go_on)
    detach(daemon, "ask", "--", "sh", "-c", f"echo one; printf 'two: '; read x <{go_on}; echo $x; printf three")
    wait_until(lambda: daemon.cli("logs", "--no-marks", "ask", check=0).stdout == "one\ntwo: \n",
               "its question is shown")
    follow = daemon.spawn("sublet", "logs", "-f", "--no-marks", "ask")
    assert follow.stdout.read(9) == "one\ntwo: "
    go_on.write_text("yes\n")
    assert follow.stdout.read() == "yes\nthree\n"
    assert follow.wait(timeout=60) == 0


def test_followed_output_ends_with_the_program(daemon):
    detach(daemon, "count", "--", "sh", "-c", "for i in 1 2 3; do echo $i; sleep 0.3; done")
    done = daemon.cli("logs", "-f", "--no-marks", "count", check=0)
    assert done.stdout == "1\n2\n3\n"
    assert reaches(daemon, "count", "exited")["exit_status"] == 0


def test_a_program_above_its_ceiling_is_ended(daemon):
    done = daemon.cli("run", "--memory", "512MiB", "--", "simgpu-load", "--alloc", "1GiB", "--seconds", "600")
    assert "a program that uses more than 512 MiB is ended" in done.stderr and done.returncode != 0
