# SPDX-License-Identifier: Apache-2.0
"""The reading verbs, the configuration, and wrong input: `sublet` with a real daemon, and without one."""
import json
import os
import pathlib
import shutil
import signal
import subprocess

import pytest

from tests.support.sublet import BIN, GIB, MIB, ROOT, Daemon, lent, unified_mounts, wait_until

SUBLET = BIN / "sublet"
LOOKING = ("ps", "status", "queue", "gpus", "proclist")


def alone(*arguments, cwd=None, **env):
    """Runs `sublet` without a reachable daemon."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("SUBLET_", "XDG_"))}
    clean["SUBLET_HOST"] = "unix:///nonexistent/sublet.sock"
    clean.update(env)
    return subprocess.run([SUBLET, *map(str, arguments)], env=clean, capture_output=True, text=True, timeout=60,
                          cwd=cwd, stdin=subprocess.DEVNULL)


def ask(daemon, name, vram, **more):
    """Takes a lease by the API. The returned connection keeps it alive."""
    api = daemon.api()
    body = {"vram_bytes": vram, "consumer": name, "owner": {"connection": True}, **more}
    return api, api.post("/v1/leases", body)


@pytest.fixture(scope="module")
def busy_daemon():
    """A daemon with a granted lease, and one that waits for it. Tests look at them and change nothing."""
    daemon = Daemon("1x4GiB")
    try:
        daemon.start()
        holder, first = ask(daemon, "first", 3 * GIB, wait_seconds=60)
        waiter, second = ask(daemon, "second", 2 * GIB, tag="mine")
        assert first.status == 201 and second.status == 202
        yield daemon, first.body, second.body
    finally:
        daemon.close()


@pytest.fixture
def busy(busy_daemon):
    with lent(busy_daemon[0]):
        yield busy_daemon


# ---------------------------------------------------------------------------------------------- with a daemon

def test_a_stopped_program_is_called_stopped(daemon):
    daemon.spawn("sublet", "run", "--vram", "1GiB", "--tag", "it", "--", "sleep", "600")
    wait_until(lambda: daemon.get("/v1/leases/it").status == 200, "it is asked for")
    wait_until(lambda: daemon.get("/v1/leases/it")["owner"]["pid"], "it runs")
    lease = daemon.get("/v1/leases/it")
    assert lease["stopped_since"] is None and lease["stopped_by"] is None
    os.kill(lease["owner"]["pid"], signal.SIGSTOP)
    wait_until(lambda: daemon.get("/v1/leases/it")["stopped_since"], "the daemon sees it")
    assert daemon.get("/v1/leases/it")["stopped_by"] == "signal"
    assert " by a signal" in daemon.cli("ps", "-o", "reason", check=0).stdout
    assert "Its program is stopped for " in daemon.cli("why", "it", check=0).stdout
    os.kill(lease["owner"]["pid"], signal.SIGCONT)
    wait_until(lambda: daemon.get("/v1/leases/it")["stopped_since"] is None, "it runs again")


def test_json_is_the_reply_unchanged(busy):
    daemon, first, second = busy
    api = daemon.api()
    assert daemon.json("ps").keys() == {"leases", "next"}
    assert [lease["id"] for lease in daemon.json("ps")["leases"]] == [first["id"], second["id"]]
    assert [lease["id"] for lease in daemon.json("queue")["queue"]] == [second["id"]]
    assert daemon.json("gpus").keys() == api.get("/v1/devices").body.keys()
    assert daemon.json("proclist") == api.get("/v1/processes").body
    assert daemon.json("status")["daemon"] == api.get("/v1/status")["daemon"]
    assert daemon.json("why", "mine").keys() == api.get("/v1/leases/mine/why").body.keys()


def test_ps_and_queue_tell_waiters_and_obstacles(busy):
    daemon, first, second = busy
    rows = {line.split()[0]: line for line in daemon.cli("ps", check=0).stdout.splitlines()}
    assert list(rows) == ["ID", first["id"], second["id"]]
    assert "active" in rows[first["id"]] and "3.0 GiB" in rows[first["id"]] and "gpu0" in rows[first["id"]]
    assert "queued" in rows[second["id"]] and "place 1, " in rows[second["id"]]
    line, = daemon.cli("queue", "--no-header", check=0).stdout.splitlines()
    assert line.split()[:3] == ["1", second["id"], "second"] and first["id"] in line


def test_each_lease_is_told_as_one_sentence(busy):
    daemon, first, second = busy
    holds = daemon.get(f"/v1/leases/{first['id']}")["summary"]
    assert holds == f"{first['id']} holds 3.0 GiB on gpu0, and uses 0 B"
    waits = daemon.get(f"/v1/leases/{second['id']}")["summary"]
    assert waits.startswith(f"{second['id']} waits at place 1: ") and "short on gpu0" in waits, waits
    shown = daemon.cli("ps", "-o", "id,summary").stdout
    assert holds in shown and f"{second['id']} waits at place 1" in shown, shown


def test_columns_are_chosen_and_wrong_ones_refused(busy):
    daemon, first, second = busy
    done = daemon.cli("ps", "--no-header", "-o", "tag,id", check=0)
    assert [line.split() for line in done.stdout.splitlines()] == [["-", first["id"]], ["mine", second["id"]]]
    done = daemon.cli("ps", "-o", "id,sate", check=2)
    assert "'sate'" in done.stderr and "did you mean 'state'" in done.stderr and "columns: id,name" in done.stderr
    assert not done.stdout


@pytest.mark.parametrize("verb", ["why", "stop", "events", "resize"])
def test_an_empty_lease_is_a_usage_error(shared_daemon, verb):
    done = shared_daemon.cli(verb, "", *(["1GiB"] if verb == "resize" else []), check=2)
    assert "LEASE: the value is empty" in done.stderr and not done.stdout


def test_why_is_a_paragraph_with_numbers_and_help(busy):
    daemon, first, second = busy
    text = daemon.cli("why", "mine", check=0).stdout
    assert f"{second['id']} (second," in text and "is queued" in text
    assert "2.0 GiB" in text and "gpu0" in text and first["id"] in text
    assert "What happened, oldest first:" in text
    text = daemon.cli("why", first["id"], check=0).stdout
    assert "is active. It has held 3.0 GiB on gpu0 for " in text
    assert daemon.cli("why", "lease-999").returncode == 4
    assert "lease-999" in daemon.cli("why", "lease-999").stderr


def test_status_shows_the_whole(busy):
    daemon, first, second = busy
    text = daemon.cli("status", check=0).stdout
    assert f"in {daemon.dir}" in text and "gpu0" in text and "4.0 GiB" in text and "simulated" in text
    assert "leases: 1 active, 1 queued, 2.0 GiB requested" in text
    assert first["id"] in text and second["id"] in text


def test_proclist_names_the_unleased_process(daemon):
    daemon.spawn(BIN / "simgpu-load", "--alloc", "256MiB", "--seconds", "600")
    wait_until(lambda: daemon.json("proclist")["processes"], "the program is seen")
    line, = daemon.cli("proclist", "--no-header", "-o", "pid,lease,used", check=0).stdout.splitlines()
    assert line.split()[1] == "none"
    wait_until(lambda: "unleased processes" in daemon.cli("status", check=0).stdout, "status subtracts it")


def test_gpu_problems_are_loud(daemon):
    daemon.ctl("fault", "nvml-error")
    text = wait_until(lambda: "! " in (out := daemon.cli("status", check=0).stdout) and out, "a warning")
    assert "no lease is granted" in text or "is not leased" in text
    done = daemon.cli("doctor", check=1)
    assert "fail  " in done.stdout
    daemon.ctl("clear")


def test_doctor_finds_a_healthy_daemon_healthy(shared_daemon):
    report = json.loads(shared_daemon.cli("doctor", "--json", check=0).stdout)
    assert report["failures"] == 0
    found = {check["name"]: check for check in report["checks"]}
    assert {"daemon", "version", "store", "device", "nvml", "config", "identity", "cgroups", "user"} <= found.keys()
    assert "SIMULATED" in found["nvml"]["text"] and found["nvml"]["level"] == "note"
    assert str(shared_daemon.dir / "sublet.toml") in found["config"]["text"]


def test_others_data_cannot_steer_the_terminal(shared_daemon):
    holder, lease = ask(shared_daemon, "a\x1b[2Jb", MIB)
    if lease.status == 400:  # refused early: nothing to show
        return
    for verb in ("ps", "status"):
        assert "\x1b" not in shared_daemon.cli(verb, check=0).stdout


def test_colours_only_where_they_are_wanted(busy):
    daemon, *_ = busy
    assert "\x1b" not in daemon.cli("ps", check=0).stdout
    assert "\x1b[32mactive\x1b[0m" in daemon.cli("ps", "--color", "always", check=0).stdout


def test_completion_knows_the_leases(busy):
    daemon, first, second = busy
    lines = daemon.cli("__complete", "--", "why", "", check=0).stdout.splitlines()
    assert [line.split("\t")[0] for line in lines] == [first["id"], second["id"], "mine"]
    script = daemon.cli("completion", "bash", check=0).stdout
    typed = f'{script}\nCOMP_WORDS=(sublet why m) COMP_CWORD=2; _sublet; printf "%s\\n" "${{COMPREPLY[@]}}"'
    done = subprocess.run(["bash", "-c", typed], env=daemon.env(), capture_output=True, text=True, timeout=60)
    assert done.stdout == "mine\n", done.stderr


def test_config_of_the_daemon_that_the_environment_names(start_daemon):
    daemon = start_daemon("1x4GiB", config='[queue]\nclaim_window = "7s"\n[gpu]\ninterval_idle = "1s"\n')
    lines = daemon.cli("config", "show", "--origin", check=0).stdout.splitlines()
    line = next(line for line in lines if line.startswith("claim_window"))  # of [queue]
    assert '"7s"' in line and line.endswith(f"{daemon.dir / 'sublet.toml'}:2")
    assert [line for line in lines if line.startswith("headroom")][0].endswith("# default")
    shown = json.loads(daemon.cli("config", "show", "--json", check=0).stdout)
    assert shown["values"]["queue.claim_window"]["value"] == "7s"


def test_a_daemon_says_which_file_it_reads(daemon, tmp_path):
    assert daemon.get("/v1/status")["daemon"]["config"] == str(daemon.dir / "sublet.toml")
    file = tmp_path / "other.toml"
    file.write_text('[queue]\nclaim_window = "9s"\n')
    daemon.kill()
    daemon.start(extra=["--config", os.path.relpath(file)])
    assert daemon.get("/v1/status")["daemon"]["config"] == str(file)
    assert daemon.cli("config", "check", check=0).stdout.startswith(f"{file}: ok, 1 of")
    assert json.loads(daemon.cli("config", "show", "--json", check=0).stdout)["file"] == str(file)
    checks = json.loads(daemon.cli("doctor", "--json").stdout)["checks"]
    assert [check["text"] for check in checks if check["name"] == "config"] == [f"{file} is correct and sets 1 keys"]


# ---------------------------------------------------------------------------------------------- without one

@pytest.mark.parametrize("verb", [*LOOKING, "why"])
def test_no_daemon_is_69_and_says_what_to_do(verb):
    done = alone(verb, *(["lease-1"] if verb == "why" else []))
    assert done.returncode == 69 and not done.stdout
    assert "/nonexistent/sublet.sock" in done.stderr and "hint:" in done.stderr


def test_doctor_helps_without_a_daemon():
    done = alone("doctor")
    assert done.returncode == 1
    assert "fail  no daemon answers at unix:///nonexistent/sublet.sock" in done.stdout
    assert "subletd --dir DIR --sim" in done.stdout
    report = json.loads(alone("doctor", "--json").stdout)
    assert {"daemon", "nvml", "config", "identity", "cgroups"} <= {check["name"] for check in report["checks"]}


def test_doctor_helps_an_account_without_rights(start_daemon):
    if os.geteuid() != 0:
        pytest.skip("only root can become somebody else")
    daemon = start_daemon("1x4GiB")
    daemon.dir.chmod(0o755)
    # Other users must be able to run it, wherever the checkout is.
    program = daemon.dir / "sublet"
    shutil.copy(SUBLET, program)
    home = daemon.dir / "home"
    home.mkdir(mode=0o700)
    env = dict(os.environ, SUBLET_HOST=f"unix://{daemon.socket}", HOME=str(home))
    env.pop("XDG_CONFIG_HOME", None)
    done = subprocess.run([program, "doctor"], env=env, user=65534, group=65534, extra_groups=[], capture_output=True,
                          text=True, timeout=60)
    assert done.returncode == 1 and not done.stderr, done.stderr
    assert "/healthz" in done.stdout and "usermod -aG sublet" in done.stdout
    done = subprocess.run([program, "ps"], env=env, user=65534, group=65534, extra_groups=[], capture_output=True,
                          text=True, timeout=60)
    assert done.returncode == 77


@pytest.mark.parametrize("size, why", [("-1", "is negative"), ("0", "is zero bytes"), ("8Q", "unknown unit 'Q'"),
                                       (str(2 ** 64), "more than 2^62"), ("much", "not a number")])
def test_sizes_that_are_none(size, why):
    done = alone("run", f"--vram={size}", "--", "true")
    assert done.returncode == 2 and "--vram" in done.stderr and f"'{size}'" in done.stderr and why in done.stderr
    assert "8GiB" in done.stderr  # the replacement to write


@pytest.mark.parametrize("arguments, says", [
    (["quueue"], "did you mean 'queue'"),
    (["adapter", "lease-1"], "'adapter' is not in this version"),
    (["ps", "--jsn"], "did you mean '--json'"),
    (["why"], "LEASE"),
    (["hold", "--ttl", "0"], "less than a second"),
    (["renew", "lease-1", "--ttl", "999ms"], "less than a second"),
    ([], "sublet --help"),
])
def test_wrong_words(arguments, says):
    done = alone(*arguments)
    assert done.returncode == 2 and says in done.stderr and not done.stdout


def test_help_shows_only_what_there_is():
    text = alone("--help").stdout
    for verb in (*LOOKING, "why", "doctor", "config", "completion", "run", "hold", "session"):
        assert f"\n  {verb} " in text
    for verb in ("adapter",):
        assert f"\n  {verb} " not in text


def test_a_wrong_configuration_names_line_and_key(tmp_path):
    file = tmp_path / "sublet.toml"
    file.write_text('[queue]\nclaim_windo = "10s"\n[fairshare]\nwindow = "1d"\n[device]\nheadroom = "8Q"\n')
    done = alone("config", "check", "--file", file)
    assert done.returncode == 78
    lines = done.stderr.splitlines()
    assert lines[0].startswith(f"{file}:2:1: queue.claim_windo: unknown key – did you mean 'queue.claim_window'?")
    assert lines[2].startswith(f"{file}:4:1: fairshare.window: not supported by this version")
    assert lines[4].startswith(f"{file}:6:12: device.headroom: size '8Q' has the unknown unit 'Q'")
    assert [line[:8] for line in lines[1:6:2]] == ["  hint: "] * 3
    assert alone("config", "show", "--file", file).returncode == 78
    found = json.loads(alone("config", "check", "--json", "--file", file).stdout)
    assert [problem["line"] for problem in found["problems"]] == [2, 4, 6]


def test_a_daemon_refuses_a_wrong_configuration(tmp_path):
    (tmp_path / "sublet.toml").write_text("[queue]\nclaim_windo = 1\n")
    done = subprocess.run([BIN / "subletd", "--dir", tmp_path], capture_output=True, text=True, timeout=60)
    assert done.returncode == 78 and f"{tmp_path}/sublet.toml:2:1" in done.stderr and "claim_window" in done.stderr


def test_a_missing_configuration_is_all_defaults(tmp_path):
    done = alone("config", "check", "--dir", tmp_path)
    assert done.returncode == 0 and "default" in done.stdout
    # a file that the command line names
    assert alone("config", "check", "--file", tmp_path / "no.toml").returncode == 78
    done = alone("config", "check", "--dir", tmp_path, "--file", "x")
    assert done.returncode == 2


def test_config_show_prints_a_valid_configuration(tmp_path):
    file = tmp_path / "sublet.toml"
    nasty = r"/a\"b\\c\td\u202ee # 'f"
    file.write_text(f'[store]\npath = "{nasty}"\n')
    values = json.loads(alone("config", "show", "--json", "--file", file).stdout)["values"]
    assert values["store.path"]["value"] == json.loads(f'"{nasty}"')
    shown = alone("config", "show", "--origin", "--file", file).stdout
    assert shown.replace("\n", "").isprintable()
    file.write_text(shown)
    again = json.loads(alone("config", "show", "--json", "--file", file).stdout)["values"]
    assert {key: entry["value"] for key, entry in again.items()} == {
        key: entry["value"] for key, entry in values.items()}


def test_closed_descriptors_get_no_foreign_output(shared_daemon, tmp_path):
    def shell(line):
        return subprocess.run(["sh", "-c", line], env=shared_daemon.env(), stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60)

    lost = shell("exec sublet ps --json >&-")
    assert lost.returncode == 1 and "standard output" in lost.stderr
    assert shell("exec sublet ps --json >&- 2>&-").returncode == 1
    ran = shell(f"exec sublet run --vram 1GiB -- touch {tmp_path}/ran 0<&- 1>&- 2>&-")
    assert ran.returncode == 0 and (tmp_path / "ran").exists()


def test_a_daemon_whose_descriptors_were_closed_opens_nothing_in_their_place(tmp_path):
    ready, theirs = os.pipe()
    script = f"exec {BIN}/subletd --dir {tmp_path} --sim 1x1GiB --ready-fd {theirs} <&- >&- 2>&-"
    process = subprocess.Popen(["sh", "-c", script], pass_fds=[theirs])
    try:
        os.close(theirs)
        with os.fdopen(ready) as stream:
            assert stream.readline() == "ready\n"
        assert {os.readlink(f"/proc/{process.pid}/fd/{fd}") for fd in (0, 1, 2)} == {"/dev/null"}
    finally:
        process.terminate()
        process.wait()


def test_a_directory_without_a_name_is_not_the_systems():
    done = subprocess.run([BIN / "subletd", "--dir", ""], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "--dir" in done.stderr


@pytest.mark.parametrize("tag", ["--help", "-q", ".", ".."])
def test_a_tag_that_reads_like_something_else_is_refused(shared_daemon, tag):
    refused = shared_daemon.cli("run", "--vram", "1GiB", f"--tag={tag}", "--", "true", check=2)
    assert f'tag is "{tag}"' in refused.stderr and "like a flag, a path or" in refused.stderr


def test_hold_without_a_size_tells_its_size(daemon):
    asked = daemon.cli("hold", "--ttl", "1h", "--token-file", daemon.dir / "token", check=0)
    assert "the whole of gpu0" in asked.stderr


def test_a_full_disk_under_stdout_is_an_error():
    if not pathlib.Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    with open("/dev/full", "w") as full:
        done = subprocess.run([SUBLET, "config", "show", "--file", ROOT / "packaging/sublet.toml"], stdout=full,
                              stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 1 and "standard output" in done.stderr


@pytest.fixture
def container():
    """Makes a control group as Docker names it, and returns it with the name that is shown."""
    made = None
    try:
        made = unified_mounts()[0] / f"docker-{'0123456789abcdef' * 4}.scope"
        made.mkdir()
    except (IndexError, OSError) as failure:
        pytest.skip(f"no control group can be made: {failure}")
    yield made, "0123456789ab"
    wait_until(lambda: not (made / "cgroup.procs").read_text().strip(), "its program has ended")
    made.rmdir()


def test_proclist_names_the_container(daemon, container):
    group, name = container
    program = daemon.spawn(BIN / "simgpu-load", "--alloc", "256MiB", "--seconds", "600",
                           preexec_fn=lambda: (group / "cgroup.procs").write_text("0"))
    row, = wait_until(lambda: daemon.json("proclist")["processes"], "the program is seen")
    assert (row["pid"], row["container"]) == (program.pid, name)
    assert "CONTAINER" in daemon.cli("proclist", check=0).stdout
    program.kill()
    program.wait()
