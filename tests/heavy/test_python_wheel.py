# SPDX-License-Identifier: Apache-2.0
"""The wheel and the source archive: the same bytes from the same commit, and an installation without network."""
import importlib.util
import os
import pathlib
import subprocess
import sys
import tarfile

import pytest

from tests.support.python_place import SOURCE
from tests.support.sublet import ROOT

FIVE_LINES = """
import sublet
with sublet.lease("1GiB") as lease:
    print(sublet.__version__, sublet.__file__)
    print(lease.id, lease.devices)
    print(lease.refresh()["state"])
"""


def build(out, version):
    done = subprocess.run([sys.executable, ROOT / "tools/python_package.py", out, "--version", version],
                          capture_output=True, text=True, env={**os.environ, "SOURCE_DATE_EPOCH": "1790000000"})
    assert done.returncode == 0, done.stdout + done.stderr
    return sorted(out.iterdir())


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    for module in ("setuptools", "wheel"):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed: apt-get install python3-{module}")
    return build(tmp_path_factory.mktemp("packages"), "0.1.0~dev7")


@pytest.fixture(scope="module")
def python(made, tmp_path_factory):
    """The Python of a fresh environment with the wheel."""
    folder = tmp_path_factory.mktemp("venv")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    subprocess.run([folder / "bin/pip", "install", "-q", "--no-index", "--disable-pip-version-check", made[0]],
                   check=True)
    return folder / "bin/python"


def test_the_names_have_the_version_of_the_debian_packages(made):
    assert [path.name for path in made] == ["sublet-0.1.0.dev7-py3-none-any.whl", "sublet-0.1.0.dev7.tar.gz"]


def test_the_same_commit_makes_the_same_bytes(made, tmp_path):
    again = build(tmp_path / "again", "0.1.0~dev7")
    assert [path.read_bytes() for path in made] == [path.read_bytes() for path in again]


def test_the_source_archive_has_all_modules_and_no_trace_of_the_builder(made):
    with tarfile.open(made[1]) as archive:
        members = archive.getmembers()
    assert {(member.uid, member.gid, member.uname) for member in members} == {(0, 0, "")}
    names = {member.name.partition("/src/sublet/")[2] for member in members}
    assert {path.name for path in pathlib.Path(SOURCE / "sublet").glob("*.py")} | {"py.typed"} <= names


def test_the_five_lines_run_from_the_wheel(python, place):
    child = place.daemon.spawn(python, "-I", "-c", FIVE_LINES, env=place.daemon.env(), cwd="/")
    out, err = child.communicate(timeout=60)
    assert child.returncode == 0, err
    first, second, state = out.splitlines()
    assert first.startswith("0.1.0.dev7 ") and "site-packages" in first
    assert second.startswith("lease-1 ('GPU-") and state == "active"
    assert place.leases() == []


def test_the_wheel_has_the_types_and_the_plugin_of_pytest(python):
    text = ("import importlib.metadata as m, pathlib, sublet, sublet.torch, sublet.jupyter; "
            "assert (pathlib.Path(sublet.__file__).parent / 'py.typed').exists(); "
            "print([e.value for e in m.distribution('sublet').entry_points if e.group == 'pytest11'])")
    done = subprocess.run([python, "-I", "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout == "['sublet.pytest_plugin']\n"


@pytest.mark.parametrize("version", ["1.2-3", "1.2~rc", "x"])
def test_a_version_without_a_form_for_python_is_refused(tmp_path, version):
    done = subprocess.run([sys.executable, ROOT / "tools/python_package.py", tmp_path, "--version", version],
                          capture_output=True, text=True)
    assert done.returncode == 1 and "has no form for Python" in done.stderr
