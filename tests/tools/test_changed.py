# SPDX-License-Identifier: Apache-2.0
"""The choice of ./dev test changed: the table knows each folder and names tests that exist, and a change is seen."""
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import changed  # noqa: E402
import check_tree  # noqa: E402

TABLE = changed.parse((ROOT / changed.TABLE).read_text())


@pytest.fixture(scope="module")
def files():
    return check_tree.list_files(ROOT)


def unit_programs():
    found = {"sim"}
    for recipe in [*ROOT.glob("*/*/CMakeLists.txt"), *ROOT.glob("*/CMakeLists.txt")]:
        text = recipe.read_text()
        found |= {f"fuzz_{name}" for name in re.findall(r"sublet_fuzz\((\w+)", text)}
        found |= set(re.findall(r"add_executable\((\w+_test)\b", text))
        if list(recipe.parent.glob("*_test.cpp")):
            found |= {f"{name}_test" for name in re.findall(r"sublet_library\((\w+)", text)}
    return found


# ------------------------------------------------------------------------------------------------ the table

def test_each_folder_is_in_the_table(files):
    for folder in ("src", "tests"):
        for path in (ROOT / folder).iterdir():
            # Helpers of tests choose the tests that use them.
            if path.is_dir() and any(file.startswith(f"{folder}/{path.name}/") for file in files) \
                    and path != ROOT / "tests/support":
                assert f"{folder}/{path.name}" in TABLE, f"{path} has no row in {changed.TABLE}"
    assert [file for file in files if not changed.is_test(file) and not changed.place_of(TABLE, file)] == []


def test_each_place_and_each_test_of_the_table_exists(files):
    units = unit_programs()
    for place, words in TABLE.items():
        assert (ROOT / place).exists(), place
        for word in words:
            assert word == "all" or word in units or changed.matching(files, word), f"{place}: {word}"


@pytest.mark.parametrize("text", ["a: x\na: y\n", "a\n"])
def test_a_wrong_table_is_refused(text):
    with pytest.raises(ValueError, match="'a' has two rows, or no colon"):
        changed.parse(text)


# ----------------------------------------------------------------------------------------------- the choice

TREE = {
    "tests/e2e/test_a.py": "from tests.support.one import x\nPAGE = ROOT / \"docs/b.md\"\n",
    "tests/e2e/test_b.py": "from tests.support import (other,\n  two)\n",
    "tests/e2e/test_c.py": "import json\n",
    "tests/heavy/test_d.py": "program('tests/support/run.py')\n",
    "tests/python/conftest.py": "from tests.support.three import y\n",
    "tests/support/two.py": "from .one import x\n",
    changed.ALWAYS: "",
}
SMALL = changed.parse("""
@more: tests/e2e/test_c.py   # used below
src: all
src/a: a_test @more
  tests/e2e/test_b*.py
docs: nothing
""")


@pytest.mark.parametrize("path, expected", [
    ("src/a/x/y.cpp", {"a_test", "tests/e2e/test_b.py", "tests/e2e/test_c.py"}),
    ("src/b.cpp", None), ("web/a.js", None),
    ("docs/a.md", set()), ("docs/b.md", {"tests/e2e/test_a.py"}),
    ("tests/e2e/test_a.py", {"tests/e2e/test_a.py"}), ("tests/e2e/test_gone.py", set()),
    ("tests/support/one.py", {"tests/e2e/test_a.py", "tests/e2e/test_b.py"}),
    ("tests/support/two.py", {"tests/e2e/test_b.py"}), ("tests/support/run.py", {"tests/heavy/test_d.py"}),
])
def test_a_changed_file_chooses_its_tests(path, expected):
    found, reasons = changed.choose(SMALL, [path], list(TREE), TREE.get)
    assert found == (None if expected is None else expected | {changed.ALWAYS})
    assert len(reasons) == 1 and "(1 changed)" in reasons[0]


def test_a_changed_helper_of_a_conftest_chooses_its_folder():
    tree = {**TREE, "tests/python/test_e.py": ""}
    found, _ = changed.choose(SMALL, ["tests/support/three.py"], list(tree), tree.get)
    assert found == {"tests/python/test_e.py", changed.ALWAYS}


def test_one_file_without_a_row_means_everything():
    assert changed.choose(SMALL, ["docs/a.md", "web/a.js", "src/a/b.h"], list(TREE), TREE.get)[0] is None


# ---------------------------------------------------------------------------------------------- what changed

@pytest.fixture
def git(tmp_path):
    def run(*words):
        return subprocess.run(["git", "-c", "user.name=x", "-c", "user.email=x@localhost", "-C", tmp_path, *words],
                              check=True, capture_output=True, text=True,
                              env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}).stdout
    run("init", "-q", "-b", "main")
    for name in ("a", "b", "moved", "same"):
        (tmp_path / name).write_text(name)
    run("add", ".")
    run("commit", "-qm", "one")
    return run


def test_commits_changes_and_new_files_differ_from_main(git, tmp_path):
    assert changed.changed_files(tmp_path) == []
    git("checkout", "-qb", "side")
    (tmp_path / "a").write_text("committed")
    git("commit", "-qam", "two")
    git("checkout", "-q", "main")
    (tmp_path / "same").write_text("on main only")
    git("commit", "-qam", "three")
    git("checkout", "-q", "side")
    (tmp_path / "b").write_text("not committed")
    git("mv", "moved", "new place")
    (tmp_path / "untracked").write_text("")
    assert changed.changed_files(tmp_path) == ["a", "b", "moved", "new place", "untracked"]
    git("branch", "-m", "main", "trunk")
    assert changed.changed_files(tmp_path) is None, "nobody can tell"


# ------------------------------------------------------------------------------------------------------- dev

PYTHON = """#!/bin/bash
case "$*" in
  *--matrices) exit {matrices} ;;
  *changed.py) echo '{chosen}' ;;
  *) echo "$*" | sed 's/.*--left-out//' ;;
esac
"""


@pytest.fixture
def dev(tmp_path):
    """./dev with programs of the test instead of the builder, the tests, and tools/*.py."""
    def run(*words, matrices=0, chosen="everything", **environment):
        functions = (ROOT / "dev").read_text().removesuffix('main "$@"\n')
        (tmp_path / "python").write_text(PYTHON.format(matrices=matrices, chosen=chosen))
        (tmp_path / "python").chmod(0o755)
        (tmp_path / "dev").write_text(f"""{functions}
python={tmp_path}/python
verb_setup() {{ :; }}
ctest() {{ :; }}
verb_build() {{ echo "build $*"; }}
unit_tests() {{ echo "unit $*"; }}
python_tests() {{ echo "pytest ${{usual:-}}: $*"; }}
workers=6
verb_test {' '.join(words)}
""")
        done = subprocess.run(["bash", tmp_path / "dev"], capture_output=True, text=True, timeout=60,
                              env={"PATH": "/usr/bin:/bin", **environment})
        return done.returncode, done.stdout.splitlines()

    return run


LEFT_OUT = " kill matrices left out: src/core, src/engine and src/store are as on main"


def test_kill_matrices_run_if_a_change_concerns_them(dev):
    status, lines = dev(matrices=0)
    assert status == 0 and lines[-1] == " "
    assert lines[2].startswith("pytest not heavy and not nightly and not cluster: ")
    status, lines = dev(matrices=3)
    assert status == 0 and lines[2].startswith("pytest not heavy and not nightly and not cluster and not matrix: ")
    assert lines[-1] == LEFT_OUT
    assert dev(matrices=3, SUBLET_MATRICES="1") == dev(matrices=0)
    assert dev(matrices=1)[0] == 1, "a choice that crashed leaves nothing out"


def test_only_chosen_tests_are_built_and_run(dev):
    status, lines = dev("changed", matrices=3, chosen="pytest tests/a.py\nunit core_test\nunit sim")
    assert status == 0 and lines == [
        "build programs core_test sim", "unit -R ^(core|sim)$",
        "pytest not heavy and not nightly and not cluster and not matrix: -- -m not heavy and not nightly and not "
        "cluster and not matrix -n 6 --dist loadgroup tests/a.py", LEFT_OUT]
    _, lines = dev("changed", chosen="pytest tests/a.py")
    assert lines[0] == "build programs" and lines[1].startswith("pytest ")
    assert dev("changed", chosen="everything") == dev()
    assert dev("changed", "core") == (2, [])


@pytest.mark.parametrize("path, concerned", [
    ("src/core/a.h", True), ("src/store/a.sql", True), ("tests/support/stack_scenarios.py", True),
    ("tests/e2e/test_retries.py", True), ("src/coreutils.h", False), ("src/http/a.h", False), (None, True),
])
def test_the_places_that_concern_kill_matrices(monkeypatch, path, concerned):
    monkeypatch.setattr(changed, "changed_files", lambda root: None if path is None else ["README.md", path])
    monkeypatch.setattr(sys, "argv", ["changed.py", "--matrices"])
    assert changed.main() == (0 if concerned else changed.NOT_CONCERNED)
