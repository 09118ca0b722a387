# SPDX-License-Identifier: Apache-2.0
"""`sublet shim add|ls|rm|doctor`. None of them needs a daemon; one that answers knows the largest size."""
import contextlib
import json
import os
import shutil
import subprocess
import tempfile

import pytest

from tests.support.shims import Home, installation
from tests.support.sublet import BIN, Daemon

NOBODY = 65534


@pytest.fixture
def home(tmp_path):
    home = Home(tmp_path)
    home.program("tool", "echo real")
    return home


def findings(home, env=None, check=0):
    done = home.cli("shim", "doctor", "--json", env=env, check=check)
    return {(found["name"], found["level"]): found for found in json.loads(done.stdout)["checks"]}


# ------------------------------------------------------------------------------------------ add

def test_add_makes_a_link_and_its_settings(home):
    done = home.add("tool", "--vram", "2GiB", "--name", "speech", "--if-absent", "wait")
    assert done.stdout == "" and done.stderr == f"{home.shims}/tool takes 2.0 GiB for {home.real}/tool\n"
    assert os.readlink(home.shims / "tool") == str(BIN / "sublet-shim")
    assert (home.shims / ".tool.shim").read_text() == (
        "# Made by: sublet shim add tool\nvram = 2GiB\nname = speech\nif_absent = wait\n")


def test_files_of_a_shim_can_be_read_by_all_whatever_the_umask(home):
    home.add("tool", env=home.env(), preexec_fn=lambda: os.umask(0o077))
    assert [path.stat().st_mode & 0o777 for path in (home.shims, home.shims / ".tool.shim")] == [0o755, 0o644]


def test_add_replaces_the_settings(home):
    home.add("tool", "--name", "first", "--if-absent", "fail")
    home.add("tool", "--real", "real/tool", cwd=home.path)  # becomes an absolute path
    [shim] = json.loads(home.cli("shim", "ls", "--json").stdout)["shims"]
    assert (shim["consumer"], shim["if_absent"], shim["real"]) == ("tool", "run", str(home.real / "tool"))
    assert f"real = {home.real}/tool\n" in (home.shims / ".tool.shim").read_text()


def test_the_data_directory_of_the_user_counts(home):
    home.add("tool", env=home.env(XDG_DATA_HOME=str(home.path / "data")))
    assert (home.path / "data/sublet/shims/tool").is_symlink() and not home.shims.exists()


@pytest.mark.parametrize("words, status, text", [
    (["bin/tool"], 2, "is a path"), (["sublet"], 2, "program of Sublet"), (["subletd"], 2, "program of Sublet"),
    ([".tool"], 2, "cannot name a shim"), ([""], 2, "cannot name a shim"), (["a\nb"], 2, "cannot name a shim"),
    (["tool", "--vram", "much"], 2, "--vram"), (["tool", "--vram", "2"], 2, "add a unit"),
    (["tool", "--vram", "0"], 2, "--vram"), (["tool", "--name", "a/b"], 2, "cannot name a consumer"),
    (["tool", "--if-absent", "perhaps"], 2, "run, wait, fail"), (["no-such-tool"], 4, "PATH has no program"),
    (["tool", "--real", "/no/such/tool"], 4, "cannot be executed"),
    (["tool", "--real", "/etc/passwd"], 77, "Permission"),
    (["tool", "--real", "/usr/bin/"], 77, "is the directory /usr/bin\n"),
    (["tool", "--real", str(BIN / "sublet-shim")], 77, "is a shim itself")])
def test_add_refuses(home, words, status, text):
    done = home.add(*words, check=status)
    assert text in done.stderr and done.stdout == ""
    assert not home.shims.exists()


def test_add_needs_a_size(home):
    assert "needs --vram" in home.cli("shim", "add", "tool", check=2).stderr
    assert "shim needs a verb" in home.cli("shim", check=2).stderr


def test_add_overwrites_no_other_file(home):
    home.shims.mkdir(parents=True)
    home.program("tool", "echo mine", folder=home.shims)
    assert "is a file, and no shim" in home.add("tool", check=2).stderr
    assert "is a file, and no shim" in home.cli("shim", "rm", "tool", check=2).stderr
    assert "echo mine" in (home.shims / "tool").read_text()


def as_somebody(home):
    """The options of a subprocess that may not write into directories of root."""
    return {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.getuid() == 0 else {}


@pytest.fixture
def open_home():
    """A home below a directory that every user may enter."""
    with tempfile.TemporaryDirectory(prefix="sublet-") as folder:
        os.chmod(folder, 0o755)
        (home := Home(type(BIN)(folder))).program("tool", "echo real")
        yield home


def test_add_in_a_directory_that_is_not_writable(open_home):
    if subprocess.run([BIN / "sublet", "--version"], capture_output=True, **as_somebody(open_home)).returncode != 0:
        pytest.skip("another user cannot start the programs here")
    open_home.shims.mkdir(parents=True)
    open_home.shims.chmod(0o555)
    done = open_home.add("tool", check=77, **as_somebody(open_home))
    assert f"cannot write {open_home.shims}/.tool.shim: Permission denied" in done.stderr
    open_home.shims.chmod(0o755)
    assert list(open_home.shims.iterdir()) == []
    shutil.rmtree(open_home.path / ".local")
    open_home.path.chmod(0o555)
    assert "cannot create the directory" in open_home.add("tool", check=77, **as_somebody(open_home)).stderr
    open_home.path.chmod(0o755)


def test_a_directory_of_shims_that_is_a_file(home):
    home.shims.parent.mkdir(parents=True)
    home.shims.write_text("")
    assert "cannot create the directory" in home.add("tool", check=1).stderr


def test_add_in_a_directory_that_others_may_write(home):
    home.shims.mkdir(parents=True)
    home.shims.chmod(0o777)
    assert "other users may write" in home.add("tool", check=77).stderr
    assert not (home.shims / "tool").exists()


# ------------------------------------------------------------------------------------------ PATH

def test_add_warns_of_a_path_without_the_shims(home):
    done = home.add("tool", env=home.env(shims=False))
    assert f"{home.shims} is not in PATH" in done.stderr
    assert f'add this line to ~/.profile: export PATH="{home.shims}:$PATH"' in done.stderr
    found = findings(home, env=home.env(shims=False), check=1)["path", "fail"]
    assert f'export PATH="{home.shims}:$PATH"' in found["hint"]


def test_add_warns_of_a_shim_behind_its_program(home):
    env = home.env(PATH=f"{home.real}:{home.shims}:{BIN}:/usr/bin:/bin")
    done = home.add("tool", env=env)
    assert f"the real program {home.real}/tool stands before the shim" in done.stderr
    assert f'export PATH="{home.shims}:$PATH"' in done.stderr
    found = findings(home, env=env, check=1)
    assert f"{home.real}/tool stands before the shim" in found["shadowed", "fail"]["text"]


# ------------------------------------------------------------------------------------------ ls, rm

def test_ls_shows_the_shims(home):
    assert "there are no shims" in home.cli("shim", "ls").stderr
    home.program("other", "echo other")
    home.add("tool", "--vram", "2GiB")
    home.add("other", "--if-absent", "fail")
    heading, other, tool = home.cli("shim", "ls").stdout.splitlines()
    assert heading.split() == "NAME VRAM CONSUMER IF ABSENT STATE PROGRAM DIRECTORY".split()
    assert other.split() == ["other", "64.0", "MiB", "other", "fail", "ok", f"{home.real}/other", str(home.shims)]
    assert tool.split()[:6] == ["tool", "2.0", "GiB", "tool", "run", "ok"]
    (home.real / "other").unlink()
    shims = json.loads(home.cli("shim", "ls", "--json").stdout)["shims"]
    assert [(shim["name"], shim["real"]) for shim in shims] == [("other", None), ("tool", str(home.real / "tool"))]
    assert [problem["name"] for problem in shims[0]["problems"]] == ["real"]


def test_rm_removes_the_shim_and_its_settings(home):
    home.add("tool")
    assert home.call("tool").stdout == "real\n"
    done = home.cli("shim", "rm", "tool")
    assert done.stdout == "" and "is removed" in done.stderr
    assert list(home.shims.iterdir()) == []
    assert home.call("tool").stdout == "real\n"
    assert "there is no shim 'tool'" in home.cli("shim", "rm", "tool", check=4).stderr


def test_completion_offers_the_shims(home):
    home.add("tool")
    done = home.cli("__complete", "--", "shim", "rm", "t")
    assert done.stdout.split("\t")[0] == "tool"


# ------------------------------------------------------------------------------------------ doctor

def test_doctor_finds_nothing_wrong(home):
    assert ("shim", "note") in findings(home)
    home.add("tool")
    assert set(findings(home)) == {("path", "ok"), ("shim", "ok")}
    assert "all is well" in home.cli("shim", "doctor").stdout


def spoil_settings(home):
    (home.shims / ".tool.shim").write_text("vram\n")


def spoil_mode(home):
    (home.shims / ".tool.shim").chmod(0o666)


def spoil_real(home):
    (home.real / "tool").unlink()


def spoil_program(home):
    (home.shims / "tool").unlink()
    (home.shims / "tool").symlink_to(home.path / "gone/sublet-shim")


def spoil_real_by_a_shim(home):
    text = (home.shims / ".tool.shim").read_text()
    (home.shims / ".tool.shim").write_text(f"{text}real = {home.shims}/tool\n")


@pytest.mark.parametrize("spoil, name, text", [
    (spoil_settings, "settings", "line 1: it has no '='"), (spoil_mode, "settings", "other users may write"),
    (spoil_real, "real", "PATH has no program 'tool'"), (spoil_program, "program", "no program that can be executed"),
    (spoil_real_by_a_shim, "real", "is a shim itself")])
def test_doctor_finds(home, spoil, name, text):
    home.add("tool")
    spoil(home)
    found = findings(home, check=1)[name, "fail"]
    assert text in found["text"] and found["hint"]
    [shim] = json.loads(home.cli("shim", "ls", "--json").stdout)["shims"]
    assert name in [problem["name"] for problem in shim["problems"]]
    assert f" {name}" in home.cli("shim", "ls").stdout


# ------------------------------------------------------------------------------------------ sizes

def test_a_size_that_no_device_has_is_refused_at_once(home):
    home.add("tool", "--vram", "1TiB")
    with contextlib.closing(Daemon("1x4GiB").start()) as daemon:
        env = home.env(SUBLET_HOST=daemon.env()["SUBLET_HOST"])
        found = findings(home, env=env, check=1)["size", "fail"]
        assert "the shim 'tool' is too large" in found["text"] and "1.0 TiB" in found["text"]
        assert "--vram SIZE" in found["hint"] and ("shim", "ok") not in findings(home, env=env, check=1)
        before = (home.shims / ".tool.shim").read_text()
        assert "1.0 TiB" in home.add("tool", "--vram", "1TiB", env=env, check=None).stderr
        home.add("other", "--vram", "5GiB", "--real", home.real / "tool", env=env, check=None)
        assert (home.shims / ".tool.shim").read_text() == before and not (home.shims / "other").exists()
        home.add("tool", "--vram", "2GiB", env=env)
        assert set(findings(home, env=env)) == {("path", "ok"), ("shim", "ok")}
        assert daemon.leases(all=True) == []
    assert set(findings(home, env=env)) == {("path", "ok"), ("shim", "ok")}, "a daemon that is gone tells no size"


# ------------------------------------------------------------------------------------------ the system's shims

def test_only_root_changes_the_shims_of_the_system(open_home):
    for verb in (["add", "tool", "--vram", "1GiB"], ["rm", "tool"]):
        words = [BIN / "sublet", "shim", *verb, "--system"]
        done = subprocess.run(words, env=open_home.env(), capture_output=True, text=True, **as_somebody(open_home))
        if "only root" not in done.stderr and os.getuid() == 0 and done.returncode in (126, 127):
            pytest.skip("another user cannot start the programs here")
        assert done.returncode == 77 and "only root may change the shims of the system" in done.stderr


@pytest.mark.skipif(os.getuid() != 0, reason="only root changes the shims of the system")
def test_shims_of_the_system(home, tmp_path):
    folder = installation(tmp_path / "usr")
    system = tmp_path / "usr/lib/sublet/shims"
    env = home.env(PATH=f"{home.shims}:{system}:{folder}:{home.env(shims=False)['PATH']}")
    assert "to /etc/profile.d/sublet.sh: export PATH=" in home.add(
        "tool", "--system", env=env | {"PATH": f"{folder}:{home.env(shims=False)['PATH']}"}).stderr
    assert home.add("tool", "--system", env=env).stderr.count("\n") == 1  # now it is in PATH
    assert os.readlink(system / "tool") == str(folder / "sublet-shim")
    assert home.call("tool", env=env).stdout == "real\n"
    home.add("tool", env=env)  # the user's own shim stands before it, and takes neither for the real program
    assert home.call("tool", env=env).stdout == "real\n"
    assert "is a shim too" in findings(home, env=env)["shadowed", "note"]["text"]
    home.cli("shim", "rm", "tool", "--system", env=env)
    assert list(system.iterdir()) == [] and (home.shims / "tool").is_symlink()
