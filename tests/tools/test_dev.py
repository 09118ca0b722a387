# SPDX-License-Identifier: Apache-2.0
"""./dev itself: its verbs, its refusals, and what `setup` asks of apt (a stand-in that notes what it is told)."""
import json
import pathlib
import re
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def dev(*arguments, **environment):
    return subprocess.run([str(ROOT / "dev"), *arguments], capture_output=True, text=True, stdin=subprocess.DEVNULL,
                          env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", **environment}, timeout=60)


def test_help_names_exactly_the_verbs_that_are_there():
    text = (ROOT / "dev").read_text()
    verbs = {name.replace("_", "-") for name in re.findall(r"^verb_(\w+)\(\)", text, re.M)} - {"help"}
    done = dev("help")
    assert done.returncode == 0
    assert set(re.findall(r"^  ([a-z-]+)", done.stdout, re.M)) == verbs
    assert dev().stdout == done.stdout == dev("--help").stdout


@pytest.mark.parametrize("verb", ["frob", "verb_build", "--frob"])
def test_a_verb_that_is_not_there_is_refused(verb):
    done = dev(verb)
    assert done.returncode == 2 and verb in done.stderr and not done.stdout


@pytest.fixture
def machine(tmp_path):
    """A PATH with our own apt-get, dpkg-query, id and sudo."""
    class Machine:
        bin = tmp_path / "bin"
        log = tmp_path / "log"

        def program(self, name, text):
            path = self.bin / name
            path.write_text(f"#!/bin/bash\n{text}\n")
            path.chmod(0o755)

        def setup(self):
            done = dev("setup", PATH=f"{self.bin}:{tmp_path}/tools")
            return done, self.log.read_text().splitlines() if self.log.exists() else []

    made = Machine()
    made.bin.mkdir()
    # The plain tools of the real system that the script itself calls.
    (tmp_path / "tools").mkdir()
    for name in ("bash", "env", "readlink", "dirname", "nproc", "sort", "sed", "comm", "cat", "xargs", "echo"):
        (tmp_path / "tools" / name).symlink_to(f"/usr/bin/{name}")
    made.program("id", "echo ${FAKE_UID:-0}")
    made.program("apt-get", f'echo "apt-get $*" >>{made.log}')
    made.program("dpkg-query", "exit 1")
    return made


def test_setup_installs_what_is_missing_without_recommends_and_without_removals(machine):
    done, log = machine.setup()
    assert done.returncode == 0, done.stderr
    assert len(log) == 2 and log[0].endswith(" update")
    assert "--no-install-recommends" in log[1] and "--no-remove" in log[1]
    for package in ("g++", "cmake", "ninja-build", "ccache", "python3-pytest", "libgtest-dev"):
        assert f" {package}" in log[1]


def test_setup_asks_only_for_what_is_missing(machine):
    machine.program("dpkg-query", 'for p; do [[ $p == -* || $p == cmake ]] || echo "installed $p"; done; exit 1')
    done, log = machine.setup()
    assert done.returncode == 0
    assert log[1].endswith(" --no-remove cmake")


def test_setup_with_everything_there_calls_apt_not_at_all(machine):
    machine.program("dpkg-query", 'for p in "$@"; do echo "installed $p"; done')
    done, log = machine.setup()
    assert (done.returncode, log, done.stderr) == (0, [], "")


def test_a_package_that_was_removed_but_left_its_settings_is_missing(machine):
    machine.program("dpkg-query", 'for p in "$@"; do echo "config-files $p"; done')
    assert len(machine.setup()[1]) == 2


def test_setup_without_root_and_without_sudo_says_what_root_must_do(machine):
    machine.program("id", "echo 1000")
    done, log = machine.setup()
    assert done.returncode == 1 and not log
    assert "As root: apt-get install --no-install-recommends binutils" in done.stderr


def test_setup_with_sudo_never_waits_for_a_password_without_a_terminal(machine):
    machine.program("id", "echo 1000")
    machine.program("sudo", f'echo "sudo $*" >>{machine.log}; exec "${{@:2}}"')
    done, log = machine.setup()
    assert done.returncode == 0, done.stderr
    assert log[0].startswith("sudo -n env DEBIAN_FRONTEND=noninteractive apt-get")


def test_setup_without_network_uses_the_lists_that_are_there(machine):
    machine.program("apt-get", f'echo "apt-get $*" >>{machine.log}; [[ "$*" != *" update" ]]')
    done, log = machine.setup()
    assert done.returncode == 0 and "update failed" in done.stderr and len(log) == 2


def test_setup_says_which_packages_apt_could_not_install(machine):
    machine.program("apt-get", '[[ "$*" == *" update" ]]')
    done, _ = machine.setup()
    assert done.returncode == 1 and "could not install" in done.stderr


def test_setup_without_apt_names_the_tool_that_is_missing(machine):
    (machine.bin / "apt-get").unlink()
    done, _ = machine.setup()
    assert done.returncode == 1 and "no apt here, and no g++" in done.stderr


@pytest.mark.parametrize("first, second, status, closing", [
    ({"passed": 3, "skipped": 1}, {}, 0, "3 passed, 0 failed, 1 skipped"),
    ({"passed": 3}, {"passed": 2, "failed": 1}, 1, "5 passed, 1 failed, 0 skipped"),
    ({"passed": 3, "failed": 1}, {"passed": 2}, 1, "5 passed, 1 failed, 0 skipped"),
    (None, {"passed": 2}, 1, "2 passed, 1 failed, 0 skipped"),
])
def test_ci_runs_both_groups_and_sums_them(tmp_path, first, second, status, closing):
    for name in (".ci/run", "tools/count_tests.py"):
        (tmp_path / name).parent.mkdir()
        shutil.copy(ROOT / name, tmp_path / name)
    fake = ["#!/bin/bash", 'echo "dev $*"']
    for folder, words, total in (("report", "test", first), ("report-heavy", "test heavy", second)):
        (tmp_path / "build" / folder).mkdir(parents=True)
        (tmp_path / "build" / folder / "total.json").write_text('{"passed": 77}')  # of an earlier run
        if total is not None:
            fake.append(f"[[ $* != '{words}' ]] || echo '{json.dumps(total)}' >build/{folder}/total.json")
    (tmp_path / "dev").write_text("\n".join([*fake, "exit 1", ""]))
    (tmp_path / "dev").chmod(0o755)
    done = subprocess.run([tmp_path / ".ci/run"], capture_output=True, text=True, timeout=60,
                          env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)})
    lines = done.stdout.splitlines()
    assert lines[:2] == ["dev test", "dev test heavy"] and lines[2].startswith("the slowest of ")
    assert lines[-1] == closing and done.returncode == status


@pytest.mark.parametrize("built", [True, False])
def test_ci_tests_a_cluster_where_somebody_has_built_its_programs(tmp_path, built):
    for name in (".ci/run", "tools/count_tests.py"):
        (tmp_path / name).parent.mkdir()
        shutil.copy(ROOT / name, tmp_path / name)
    script = ["#!/bin/bash", 'echo "dev $*"', "folder=build/report${2:+-$2}; mkdir -p $folder",
              """echo '{"passed": 1}' >$folder/total.json""", ""]
    (tmp_path / "dev").write_text("\n".join(script))
    (tmp_path / "dev").chmod(0o755)
    (tmp_path / "cache/1.36.3").mkdir(parents=True)
    if built:
        (tmp_path / "cache/1.36.3/complete").touch()
    done = subprocess.run([tmp_path / ".ci/run"], capture_output=True, text=True, timeout=60,
                          env={"PATH": "/usr/bin:/bin", "SUBLET_CLUSTER_CACHE": str(tmp_path / "cache")})
    assert ("dev test cluster" in done.stdout) == built
    assert done.stdout.splitlines()[-1] == f"{3 if built else 2} passed, 0 failed, 0 skipped"


@pytest.mark.parametrize("touched, last, mutants", [
    ("src/lease/lease.h", "README.md", "all"), ("tests/sim/main.cpp", "tests/sim/main.cpp", "all"),
    ("src/cli/run.cpp", "README.md", "few"),
])
def test_ci_searches_for_all_mutants_after_changes_that_concern_them(tmp_path, touched, last, mutants):
    def git(*arguments, date):
        subprocess.run(["git", "-c", "user.name=x", "-c", "user.email=x@localhost", "-C", tmp_path, *arguments],
                       check=True, capture_output=True, env={"PATH": "/usr/bin:/bin", "GIT_COMMITTER_DATE": date})

    def commit(file, date):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(date)
        git("add", file, date=date)
        git("commit", "-m", file, date=date)
    git("init", date="")
    commit("src/engine/engine.h", "2026-01-01T12:00:00Z")  # more than a day before the newest commit
    commit(touched, "2026-03-01T12:00:00Z")
    commit(last, "2026-03-01T18:00:00Z")
    for name in (".ci/run", "tools/count_tests.py"):
        (tmp_path / name).parent.mkdir()
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "dev").write_text('#!/bin/sh\necho "$* ${SUBLET_MUTANTS:-few} $SUBLET_MATRICES"\n')
    (tmp_path / "dev").chmod(0o755)
    done = subprocess.run([tmp_path / ".ci/run"], capture_output=True, text=True, timeout=60,
                          env={"PATH": "/usr/bin:/bin"})
    assert done.stdout.splitlines()[0] == f"test {mutants} 1", "and always the kill matrices"


@pytest.mark.parametrize("arguments", [("coverage", "--frob"), ("coverage", "--e2e", "x"), ("release", "--frob"),
                                       ("test-package", "debian11"), ("test-boot", "--made", "--frob")])
def test_arguments_that_are_not_there_are_refused(arguments):
    done = dev(*arguments)
    assert done.returncode == 2 and arguments[-1] in done.stderr


@pytest.mark.parametrize("group", ["nightly_tests", "heavy_tests", "cluster_tests"])
def test_a_group_of_tests_keeps_the_report_of_its_caller(tmp_path, group):
    functions = (ROOT / "dev").read_text().removesuffix('main "$@"\n')
    (tmp_path / "dev").write_text(f"""{functions}
python_tests() {{ touch "$report/of_the_group"; }}
foreign_programs() {{ :; }}
python=true
report=mine
{group}
echo "$report"
""")
    done = subprocess.run(["bash", tmp_path / "dev"], capture_output=True, text=True, timeout=60)
    assert done.stdout == "mine\n" and list(tmp_path.glob("build/*/of_the_group")), done.stderr
