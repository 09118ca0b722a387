# SPDX-License-Identifier: Apache-2.0
"""tools/package.py on a small tree: Debian's places, and the same bytes from the same commit.

./dev test-package installs, upgrades and removes the packages."""
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import archive  # noqa: E402


def stage(folder):
    """A tree like the one that cmake --install makes, around a program of this system."""
    for package, name in (("sublet", "sublet"), ("sublet-simgpu", "simgpu-ctl")):
        for path in ("usr/bin", f"usr/share/doc/{package}", "usr/share/man/man1"):
            (folder / package / path).mkdir(parents=True)
        shutil.copy("/bin/true", folder / package / "usr/bin" / name)
        (folder / package / "usr/share/man/man1" / f"{name}.1").write_text(".TH X 1\n")
    closed = shutil.copy("/bin/true", folder / "sublet/usr/bin/sublet-gpu")
    closed.chmod(0o711)
    tree = folder / "sublet/usr/share"
    shutil.copy(ROOT / "packaging/sublet.toml", tree / "doc/sublet/sublet.toml")
    (tree / "zsh/site-functions").mkdir(parents=True)
    (tree / "zsh/site-functions/_sublet").write_text("#compdef sublet\n")
    plugin = tree / "sublet/kubernetes/kubectl-sublet"
    plugin.parent.mkdir(parents=True)
    plugin.write_text("#!/bin/sh\n")
    plugin.chmod(0o755)
    return folder


def build(folder, version, umask=0o022, changed=None):
    """`changed`: when the files were changed, in seconds; None: now."""
    tree = stage(folder / "stage")
    for path in tree.rglob("*"):
        path.chmod(path.stat().st_mode & ~umask)
        if changed is not None:
            os.utime(path, (changed, changed))
    done = subprocess.run([sys.executable, ROOT / "tools/package.py", tree, folder / "out",
                           "--version", version], capture_output=True, text=True, umask=umask,
                          env={**os.environ, "SOURCE_DATE_EPOCH": "1790000000"})
    assert done.returncode == 0, done.stderr
    return {path.name.split("_")[0]: path for path in (folder / "out").iterdir()}


@pytest.fixture
def made(tmp_path):
    for tool in ("dpkg-deb", "readelf", "md5sum"):
        if not shutil.which(tool):
            pytest.skip(f"no {tool} here")
    return build(tmp_path / "first", "1.2~dev3")


def field(package, name):
    return subprocess.run(["dpkg-deb", "-f", package, name], check=True, capture_output=True, text=True).stdout.strip()


def test_the_package_metadata(made):
    assert field(made["sublet"], "Version") == "1.2~dev3"
    assert field(made["sublet"], "Depends").startswith("libc6 (>= 2.")
    assert field(made["sublet-simgpu"], "Depends").startswith("sublet (= 1.2~dev3), libc6 (>= ")
    assert "@" not in field(made["sublet"], "Description") + field(made["sublet"], "Installed-Size")


def test_files_lie_where_debian_wants_them(made):
    listed = subprocess.run(["dpkg-deb", "-c", made["sublet"]], check=True, capture_output=True, text=True).stdout
    for path in ("./etc/sublet/sublet.toml", "./usr/share/zsh/vendor-completions/_sublet",
                 "./usr/share/man/man1/sublet.1.gz", "./usr/share/doc/sublet/changelog.gz",
                 "./usr/share/doc/sublet/copyright"):
        assert f" {path}\n" in listed
    assert "site-functions" not in listed and " root/root " in listed
    conffiles = subprocess.run(["dpkg-deb", "-I", made["sublet"], "conffiles"], check=True, capture_output=True,
                               text=True).stdout
    assert conffiles == "/etc/sublet/sublet.toml\n"


def test_unreadable_files_stay_unreadable(made):
    listed = subprocess.run(["dpkg-deb", "-c", made["sublet"]], check=True, capture_output=True, text=True).stdout
    modes = {line.split()[-1]: line.split()[0] for line in listed.splitlines()}
    assert modes["./usr/bin/sublet-gpu"] == "-rwx--x--x" and modes["./usr/bin/sublet"] == "-rwxr-xr-x"


def test_a_script_outside_of_the_programs_can_be_run(made):
    listed = subprocess.run(["dpkg-deb", "-c", made["sublet"]], check=True, capture_output=True, text=True).stdout
    modes = {line.split()[-1]: line.split()[0] for line in listed.splitlines()}
    assert modes["./usr/share/sublet/kubernetes/kubectl-sublet"] == "-rwxr-xr-x"
    assert modes["./usr/share/zsh/vendor-completions/_sublet"] == "-rw-r--r--"


def test_the_same_commit_makes_the_same_bytes(made, tmp_path):
    again = build(tmp_path / "second", "1.2~dev3")
    assert {name: path.read_bytes() for name, path in made.items()} == {
        name: path.read_bytes() for name, path in again.items()}


@pytest.mark.parametrize("changed", [1_600_000_000, 2_000_000_000])
def test_the_times_of_the_files_change_no_byte(made, tmp_path, changed):
    again = build(tmp_path / "second", "1.2~dev3", changed=changed)
    assert {name: path.read_bytes() for name, path in made.items()} == {
        name: path.read_bytes() for name, path in again.items()}


def test_the_umask_changes_no_byte(made, tmp_path):
    again = build(tmp_path / "second", "1.2~dev3", 0o027)
    assert {name: path.read_bytes() for name, path in made.items()} == {
        name: path.read_bytes() for name, path in again.items()}
    closed = tmp_path / "closed"
    for mode, packed in ((0o750, 0o755), (0o711, 0o711), (0o600, 0o644)):
        closed.touch()
        closed.chmod(mode)
        assert archive.member(closed, "x", 0).mode == packed


def preinst(made, tmp_path, *arguments, **environment):
    script = subprocess.run(["dpkg-deb", "-I", made["sublet"], "preinst"], check=True, capture_output=True,
                            text=True).stdout
    return subprocess.run(["sh", "-c", script, "preinst", *arguments], capture_output=True, text=True,
                          env={"PATH": "/usr/bin:/bin", **environment})


@pytest.mark.parametrize("installed, status", [
    ("1.3", 1), ("1.2", 1), ("1.2~dev3", 0), ("1.2~dev2", 0), ("1.1", 0), ("1:0.9", 1), ("", 0),
])
def test_a_newer_package_is_not_replaced_by_an_older_one(made, tmp_path, installed, status):
    done = preinst(made, tmp_path, "upgrade", installed)
    assert done.returncode == status
    assert not status or f"version {installed} by the older version 1.2~dev3" in done.stderr
    assert preinst(made, tmp_path, "upgrade", installed, SUBLET_ALLOW_DOWNGRADE="1").returncode == 0
    assert preinst(made, tmp_path, "install", installed).returncode == 0, "after a removal the store may stay"


@pytest.mark.parametrize("script", ["preinst", "postinst", "prerm", "postrm"])
def test_the_scripts_run_in_dash(script):
    done = subprocess.run(["sh", "-n", ROOT / f"packaging/debian/sublet.{script}"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
