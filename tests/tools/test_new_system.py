# SPDX-License-Identifier: Apache-2.0
"""tools/new_system.sh and the scripts that test in new systems: wrong names, skipped systems, kept systems."""
import pathlib
import subprocess

import pytest

TOOLS = pathlib.Path(__file__).resolve().parents[2] / "tools"
BEGIN = """set -euo pipefail
say() { echo "$*"; }
die() { echo "$1"; exit "${2:-1}"; }
unable() { die "skipped: $1" 77; }
source "$0"
"""


def bash(text, **environment):
    return subprocess.run(["bash", "-c", BEGIN + text, TOOLS / "new_system.sh"], capture_output=True, text=True,
                          timeout=60, stdin=subprocess.DEVNULL,
                          env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", **environment})


@pytest.mark.parametrize("script, folders", [("test_package.sh", ["old", "new"]), ("test_boot.sh", ["old", "new"])])
def test_a_system_that_there_is_not_is_no_skip(script, folders):
    done = subprocess.run(["bash", TOOLS / script, *folders, "debian12", "debian99"], capture_output=True, text=True,
                          timeout=60, stdin=subprocess.DEVNULL)
    assert done.returncode == 2 and "there is no system 'debian99'; there are: debian12" in done.stderr


@pytest.mark.parametrize("statuses, status, last", [
    ("0 0", 0, "debian13: passed"), ("77 0", 77, "skipped: these systems: debian12"), ("77 1", 1, "debian13: failed"),
])
def test_skipped_systems_are_named(statuses, status, last):
    first, second = statuses.split()
    done = bash(f"try() {{ if [[ $1 == debian12 ]]; then exit {first}; else exit {second}; fi; }}\n"
                "in_each_system try -- debian12 debian13")
    assert done.returncode == status and done.stdout.splitlines()[-1] == last
    assert ("debian12: skipped" in done.stdout) == (first == "77")


def test_an_interrupted_copy_is_not_taken_for_a_system(tmp_path):
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "debootstrap").write_text(
        '#!/bin/sh\nfor word; do case $word in */root*) mkdir -p "$word/etc/apt" ;; esac; done\n')
    (programs / "debootstrap").chmod(0o755)
    environment = {"FRESH_CACHE": str(tmp_path / "cache"), "PATH": f"{programs}:/usr/sbin:/usr/bin:/sbin:/bin"}
    stops = f"cp() {{ command cp \"$@\"; [[ $* != *{tmp_path}/cache* ]] || kill -KILL $$; }}\n"
    bash(f"{stops}make_system {tmp_path}/root1", **environment)
    assert (tmp_path / "cache").is_dir() and not (tmp_path / "cache/bookworm").exists()
    done = bash(f"make_system {tmp_path}/root2", **environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["bookworm"]
    assert "as it was made before" in bash(f"make_system {tmp_path}/root3", **environment).stdout
