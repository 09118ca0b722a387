# SPDX-License-Identifier: Apache-2.0
"""The unit, its user and the example of a configuration, as far as they can be judged uninstalled."""
import json
import os
import pathlib
import re
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("SUBLET_BUILD", ROOT / "build"))
UNIT = ROOT / "packaging/subletd.service"
EXAMPLE = ROOT / "packaging/sublet.toml"


def systemd_analyze(*arguments):
    if not shutil.which("systemd-analyze"):
        pytest.skip("no systemd-analyze here")
    return subprocess.run(["systemd-analyze", *arguments], capture_output=True, text=True)


def test_systemd_understands_the_unit(tmp_path):
    # verify asks for the program and the document, which are not installed: put others there.
    unit = tmp_path / "subletd.service"
    text = re.sub(r"(?m)^ExecStart=\S+", "ExecStart=/bin/true", UNIT.read_text())
    unit.write_text(text.replace("/usr/share/doc/sublet/README.md", str(ROOT / "LICENSE")))
    done = systemd_analyze("verify", "--recursive-errors=no", str(unit))
    assert done.returncode == 0 and not done.stderr.strip(), done.stderr


def test_the_unit_is_confined():
    done = systemd_analyze("security", "--offline=true", "--threshold=25", "--no-pager", str(UNIT))
    if "unrecognized option" in done.stderr:
        pytest.skip("this systemd-analyze cannot judge a unit offline")
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_unit_leaves_the_abstract_socket_and_the_processes_visible():
    keys = dict(line.split("=", 1) for line in UNIT.read_text().splitlines() if re.match(r"^\w+=", line))
    assert not {"PrivateNetwork", "PrivateDevices", "PrivateUsers", "ProtectProc", "ProcSubset"} & keys.keys()


def without_comment_marks(text):
    """The example with its defaults switched on: what a user gets who removes the marks."""
    return re.sub(r"(?m)^#(?=\w+ = )", "", text)


def test_the_example_says_nothing_until_edited_and_is_right_when_it_is(tmp_path):
    tomllib = pytest.importorskip("tomllib", reason="needs Python 3.11's tomllib")
    assert all(not table for table in tomllib.loads(EXAMPLE.read_text()).values())
    edited = tomllib.loads(without_comment_marks(EXAMPLE.read_text()))
    assert edited["device"]["headroom"] == "256MiB" and edited["queue"]["aging_per_minute"] == 1


def show(file):
    """What our own command makes of a configuration file."""
    program = BUILD / "bin/sublet"
    if not program.exists():
        pytest.skip(f"no {program}: build it first")
    done = subprocess.run([str(program), "config", "show", "--json", "--file", str(file)], capture_output=True,
                          text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)["values"]


def test_the_example_names_every_key_with_its_default(tmp_path):
    file = tmp_path / "sublet.toml"
    file.write_text(without_comment_marks(EXAMPLE.read_text()))
    shown, defaults = show(file), show(EXAMPLE)
    assert {key: entry["value"] for key, entry in shown.items()} == {
        key: entry["value"] for key, entry in defaults.items()}
    assert not [key for key, entry in shown.items() if entry["origin"] == "default"]
    assert all(entry["origin"] == "default" for entry in defaults.values())
