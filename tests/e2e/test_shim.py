# SPDX-License-Identifier: Apache-2.0
"""Shims as their callers see them: what stays unchanged, whose lease it is, and what happens without a daemon.

The real programs are shell scripts and tools of the system: a shim does not know what it runs.
"""
import os
import re
import signal
import subprocess
import sys

import pytest

from tests.support.keeping import daemon, full, read_until  # noqa: F401
from tests.support.shims import Home, installation
from tests.support.sublet import ROOT, wait_until
from tests.support.terminal import Shell

# Ends by an interrupt, and says when a shell has continued it.
JOB = """
import signal

signal.signal(signal.SIGINT, signal.SIG_DFL)
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCONT})
print("job-is-up", flush=True)
while signal.sigwait({signal.SIGCONT}):
    print("job-continued", flush=True)
"""
TOOL = 'echo "in: $(cat)"; for word; do echo "[$word]"; done; echo to-stderr >&2; exit ${STATUS:-0}'


@pytest.fixture
def home(shared_daemon, tmp_path):
    home = Home(tmp_path, shared_daemon)
    home.program("tool", TOOL)
    return home


@pytest.fixture
def own(daemon, tmp_path):
    """A home with a daemon of the test's own, which may be full or end."""
    home = Home(tmp_path, daemon)
    home.program("tool", TOOL)
    return home


@pytest.fixture
def alone(tmp_path):
    """A home without a daemon."""
    home = Home(tmp_path)
    home.program("tool", TOOL)
    return home


def reaches(home, consumer, state):
    return wait_until(lambda: [x for x in home.leases() if (x["consumer"], x["state"]) == (consumer, state)],
                      f"the lease of {consumer} is {state}")


# ------------------------------------------------------------------------------------------ what stays as it is

def test_arguments_streams_and_status_are_the_programs(home):
    home.add("tool")
    words = ["a b", "", "--json", "-h", "--", "*", "ü", "[1,2]"]
    done = home.call("tool", *words, input="text", check=7, env=home.env(STATUS="7"))
    assert done.stdout == "in: text\n" + "".join(f"[{word}]\n" for word in words)
    assert done.stderr == "to-stderr\n"


def test_each_call_has_a_lease_of_the_size_and_consumer(home):
    home.add("tool", "--vram", "96MiB", "--name", "speech")
    home.call("tool", input="", check=3, env=home.env(STATUS="3"))
    [lease] = home.leases()
    assert (lease["consumer"], lease["vram_bytes"]) == ("speech", 96 << 20)
    assert (lease["state"], lease["end_reason"], lease["exit_status"]) == ("ended", "released", 3)


@pytest.mark.parametrize("name", ["odd name", "", "-cat"])
def test_argv0_is_the_callers(home, name):
    home.add("show", "--real", "/bin/cat")
    done = subprocess.run([name, "/proc/self/cmdline"], executable=home.shims / "show", env=home.env(),
                          capture_output=True, timeout=60)
    assert done.stdout == name.encode() + b"\0/proc/self/cmdline\0", done.stderr


def test_a_shim_as_the_interpreter_of_a_script(home, tmp_path):
    home.add("shell", "--real", "/bin/sh")
    script = tmp_path / "script"
    script.write_text(f'#!{home.shims}/shell\necho "$1 $SUBLET_LEASE"\n')
    script.chmod(0o755)
    done = subprocess.run([script, "word"], env=home.env(), capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["word", home.leases()[0]["id"]], done.stderr


def test_the_caller_sees_the_signal_that_ended_the_program(home):
    home.program("tool", 'kill -$1 $$')
    home.add("tool")
    for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGINT, signal.SIGUSR1):
        home.call("tool", number.value, check=-number)


def test_signals_reach_the_program(home):
    home.program("tool", 'trap "echo caught; exit 9" TERM; echo up; while :; do read -r line; done')
    home.add("tool")
    tool = home.start("tool", stdin=subprocess.PIPE)
    read_until(tool.stdout, "up")
    tool.send_signal(signal.SIGTERM)
    tool.stdin.write("\n" * 3)  # the shell handles a signal between two commands
    tool.stdin.flush()
    assert read_until(tool.stdout, "caught")
    assert tool.wait(60) == 9


def test_a_signal_in_the_queue_ends_the_shim(own, full):
    own.add("tool", "--vram", "3GiB")
    tool = own.start("tool")
    reaches(own, "tool", "queued")
    tool.send_signal(signal.SIGTERM)
    tool.communicate(timeout=60)
    assert tool.returncode == -signal.SIGTERM


def test_the_terminal_is_the_programs(home, tmp_path):
    (tmp_path / "job.py").write_text(JOB)
    home.add("tty", "--real", "/usr/bin/tty")
    home.add("python3", "--real", sys.executable)
    with Shell(home.env()) as shell:
        shell.type("tty; stty size | cat")
        shell.expect(r"/dev/pts/\d+")
        shell.expect("40 200")
        shell.prompt()
        shell.type(f"python3 {tmp_path}/job.py")
        shell.expect("job-is-up")
        shell.key("z")
        shell.prompt()
        shell.type("fg")
        shell.expect("job-continued")
        shell.key("c")
        shell.prompt()
        assert shell.status() == 130


def test_a_shim_that_waits_says_so_on_stderr_only(own, full):
    own.add("tool", "--vram", "3GiB")
    tool = own.start("tool")
    assert "waits: place 1" in read_until(tool.stderr, "sublet: ")
    full.terminate()
    out, err = tool.communicate(timeout=60)
    assert (tool.returncode, out) == (0, "in: \n")
    assert err.endswith("to-stderr\n")


# ------------------------------------------------------------------------------------------ the real program

def test_nested_shims_share_the_lease(home):
    home.program("inner", 'echo "inner $SUBLET_LEASE"')
    home.program("outer", 'echo "outer $SUBLET_LEASE"; inner')
    home.add("inner", "--vram", "3GiB")
    home.add("outer", "--vram", "64MiB")
    done = home.call("outer")
    [lease] = home.leases()
    assert done.stdout == f"outer {lease['id']}\ninner {lease['id']}\n"
    assert done.stderr == ""


def test_a_shim_below_run_shares_the_lease(home):
    home.add("tool")
    done = home.cli("run", "-q", "--vram", "64MiB", "--", "tool", input="x")
    assert (done.stdout, len(home.leases())) == ("in: x\n", 1)


def test_a_copied_lease_variable_is_no_lease(own):
    own.add("tool")
    own.call("tool", input="", env=own.env(SUBLET_LEASE="lease-1"))
    assert [lease["consumer"] for lease in own.leases()] == ["tool"]


def test_a_lease_that_only_the_daemon_knows_is_shared(home, tmp_path):
    """The keeper belongs to another installation than the shim, as in a container or after an upgrade."""
    folder = installation(tmp_path / "other")
    home.cli("shim", "add", "tool", "--vram", "64MiB", env=home.env() | {"PATH": f"{folder}:{home.env()['PATH']}"})
    done = home.cli("run", "-q", "--vram", "64MiB", "--", "tool", input="x")
    assert (done.stdout, done.stderr, len(home.leases())) == ("in: x\n", "to-stderr\n", 1)


def test_a_shim_never_finds_itself(home, tmp_path):
    home.add("tool")
    (tmp_path / "link").symlink_to(home.shims)
    more = tmp_path / "more"
    more.mkdir()
    (more / "tool").symlink_to(home.shims / "tool")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/short").symlink_to(home.shims / "tool")
    path = f"{tmp_path}/link:{home.shims}/:{more}:{home.env()['PATH']}"
    assert home.call("tool", input="x", env=home.env(PATH=path)).stdout == "in: x\n"
    # Called by another name, it is still the shim of the name that it has.
    assert home.call("short", input="x", env=home.env(PATH=f"{tmp_path}/bin:{path}")).stdout == "in: x\n"
    assert len(home.leases()) == 2


def test_only_shims_in_path(home):
    home.add("tool")
    (home.real / "tool").unlink()
    done = home.call("tool", check=127)
    assert done.stdout == "" and "PATH has no program 'tool' besides its shim" in done.stderr
    assert home.leases() == []


def test_a_real_program_that_starts_its_shim_again_ends(home):
    home.program("tool", 'exec tool "$@"')
    home.add("tool")
    done = home.call("tool", check=126)
    assert "starts its own shim again and again" in done.stderr and "--real PATH" in done.stderr


@pytest.mark.parametrize("change, status, text", [
    ("missing", 127, "No such file"), ("plain", 126, "Permission denied"), ("shim", 126, "is a shim itself")])
def test_a_named_real_program_that_cannot_run(home, change, status, text):
    real = home.program("tool-4", TOOL)
    home.add("tool", "--real", real)
    real.unlink()
    if change == "plain":
        real.write_text("x")
    if change == "shim":
        real.symlink_to(home.shims / "tool")
    done = home.call("tool", check=status)
    assert text in done.stderr and str(real) in done.stderr and done.stdout == ""
    assert home.leases() == []


def test_a_real_program_without_its_interpreter(home):
    home.program("tool", TOOL).write_text("#!/no/such/interpreter\n")
    home.add("tool")
    done = home.call("tool", check=127)
    assert "'/no/such/interpreter'" in done.stderr and "sublet shim add tool --vram SIZE --real PATH" in done.stderr
    assert home.leases() == []


# ------------------------------------------------------------------------------------------ without a daemon

def test_without_a_daemon_the_program_runs_by_default(alone):
    alone.add("tool")
    done = alone.call("tool", "a", input="x", check=5, env=alone.env(STATUS="5"))
    assert done.stdout == "in: x\n[a]\n"
    first, second = done.stderr.splitlines()
    assert re.fullmatch("sublet: no daemon answers at unix://.*; tool runs without a lease", first)
    assert second == "to-stderr"


def test_a_dead_socket_is_no_daemon(own):
    own.add("tool")
    own.daemon.kill()
    done = own.call("tool", input="")
    assert "retrying for 3 s" in done.stderr and "tool runs without a lease" in done.stderr


def test_without_a_daemon_the_program_may_fail(alone):
    alone.add("tool", "--if-absent", "fail")
    done = alone.call("tool", input="", check=69)
    assert done.stdout == "" and "no daemon answers" in done.stderr


def test_without_a_daemon_the_program_may_wait(own):
    own.add("tool", "--if-absent", "wait")
    own.daemon.process.terminate()
    own.daemon.process.wait()
    tool = own.start("tool")
    read_until(tool.stderr, "tool waits for the daemon")
    own.daemon.start()
    out, _ = tool.communicate(timeout=60)
    assert (tool.returncode, out) == (0, "in: \n")
    assert [lease["consumer"] for lease in own.leases()] == ["tool"]


def test_inside_a_lease_no_daemon_is_needed(own):
    own.program("outer", 'echo up; read -r line; tool </dev/null')
    own.add("tool", "--if-absent", "fail")
    own.add("outer")
    outer = own.start("outer", stdin=subprocess.PIPE)
    read_until(outer.stdout, "up")
    own.daemon.kill()
    outer.stdin.write("go\n")
    outer.stdin.flush()
    assert read_until(outer.stdout, "in: ")
    own.daemon.start()
    outer.communicate(timeout=60)
    assert outer.returncode == 0


@pytest.mark.parametrize("policy", ["run", "wait", "fail"])
def test_a_refusal_is_not_an_absent_daemon(home, policy):
    absent = home.env(SUBLET_HOST="unix:///nowhere")  # the daemon would refuse the size already
    home.add("tool", "--vram", "64GiB", "--if-absent", policy, env=absent)
    done = home.call("tool", input="", check=None)
    assert done.returncode not in (0, 69) and done.stdout == "" and "64" in done.stderr


@pytest.mark.parametrize("policy, status", [("run", 0), ("fail", 69)])
def test_sublet_itself_is_gone(alone, tmp_path, policy, status):
    folder = installation(tmp_path / "other")
    env = alone.env() | {"PATH": f"{folder}:{alone.env()['PATH']}", "SUBLET_HOST": f"unix://{tmp_path}/some.sock"}
    alone.add("tool", "--if-absent", policy, env=env)
    (folder / "sublet").unlink()
    (tmp_path / "some.sock").touch()  # something is there, so that the shim asks sublet
    done = alone.call("tool", input="", check=status, env=env)
    assert f"cannot start {folder}/sublet" in done.stderr


# ------------------------------------------------------------------------------------------ damaged settings

@pytest.mark.parametrize("text, word", [
    ("", "'vram' is missing"), ("vram = 64MiB\n", "'name' is missing"), ("vram = much\nname = x\n", "line 1"),
    ("vram = 64MiB\nname = x\nreal = bin/x\n", "no absolute path"), ("\0\1\2", "line 1"),
    ("vram = 64MiB\nvram = 64MiB\nname = x\n", "twice"),
    ("vram = 64MiB\nname = x\nif_absent = no\n", "run, wait, fail"),
    (None, "is missing")])
def test_damaged_settings_are_refused(alone, text, word):
    alone.add("tool")
    file = alone.shims / ".tool.shim"
    file.unlink()
    if text is not None:
        file.write_text(text)
    done = alone.call("tool", check=78)
    assert word in done.stderr and "sublet shim add tool" in done.stderr and done.stdout == ""


@pytest.mark.parametrize("place, mode", [(".tool.shim", 0o666), (".tool.shim", 0o664), (".", 0o777), (".", 0o775)])
def test_settings_that_others_may_write_are_refused(alone, place, mode):
    alone.add("tool")
    (alone.shims / place).chmod(mode)
    done = alone.call("tool", check=78)
    assert "other users may write" in done.stderr and "chmod go-w" in done.stderr


@pytest.mark.parametrize("place", [".tool.shim", "."])
@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
def test_settings_of_another_user_are_refused(alone, place):
    alone.add("tool")
    os.chown(alone.shims / place, 65534, 65534)
    assert "belongs to the user 65534" in alone.call("tool", check=78).stderr


# ------------------------------------------------------------------------------------------ the documents

def snippets():
    text = (ROOT / "docs/shims.md").read_text()
    kinds = re.findall(r"(?m)^```(.*)$", text)
    assert set(kinds) == {"sh", ""} and kinds.count("sh") == kinds.count("")  # a test runs every snippet
    return re.findall(r"(?ms)^```sh\n(.*?)^```$", text)


def test_the_snippets_of_the_document(start_daemon, tmp_path):
    home = Home(tmp_path, start_daemon("1x24GiB"))
    folder = installation(tmp_path / "usr")
    for name in ("ffmpeg", "whisper", "blender"):
        home.program(name, 'echo "$0 has ${SUBLET_LEASE:-no lease}"')
    text = "".join(snippets()).replace("/opt/blender/", f"{home.real}/")  # the only place outside the test's folder
    home.program("sudo", 'exec "$@"' if os.getuid() == 0 else 'exec unshare -r "$@"')
    done = subprocess.run(["bash", "-eux"], input=text, cwd=tmp_path, text=True, capture_output=True,
                          timeout=120, env=home.env(shims=False, PATH=f"{folder}:{home.env(shims=False)['PATH']}"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(f"{home.real}/ffmpeg has lease-") == 3
    assert "all is well" in done.stdout
    assert {path.name for path in home.shims.iterdir()} == {"ffmpeg", ".ffmpeg.shim", "whisper", ".whisper.shim"}
    assert list((tmp_path / "usr/lib/sublet/shims").iterdir()) == []
    assert not (tmp_path / "waits.log").exists()  # nothing waited for a minute


def test_the_document_names_every_finding():
    named = re.findall(r"(?m)^\| `(\w+)` \| [A-Z]", (ROOT / "docs/shims.md").read_text())
    found = re.findall(r'\{"(\w+)",\s*Level::fail', (ROOT / "src/cli/shims.cpp").read_text())
    assert set(named) == set(found)


def test_a_program_that_restarts_itself_for_a_long_time_is_no_loop(alone):
    alone.program("tool", "echo ran")
    alone.add("tool")
    assert alone.call("tool", env=alone.env(SUBLET_SHIM_DEPTH="50:0")).stdout == "ran\n", "those were long ago"


def test_a_script_without_an_interpreter_line_runs_without_a_daemon(alone):
    alone.program("tool", "").write_text("echo plain $1\n")
    alone.add("tool")
    assert alone.call("tool", "words").stdout == "plain words\n"
