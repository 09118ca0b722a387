# SPDX-License-Identifier: Apache-2.0
"""The plugin for pytest, in a pytest of its own."""
import importlib.util
import subprocess
import sys

import pytest

import sublet
from tests.support.python_place import SOURCE
from tests.support.sublet import GIB, wait_until

TESTS = """
import os, pytest, sublet

@pytest.fixture
def early():
    return sublet.current()

@pytest.mark.sublet("2GiB", tier="batch", name="mine")
def test_marked(early, sublet_lease):
    assert sublet_lease.held and early is sublet_lease is sublet.current()
    document = sublet_lease.refresh()
    assert document["tier"] == "batch" and document["consumer"] == "mine" and document["vram_bytes"] == 2 << 30
    assert os.environ["SUBLET_LEASE"] == sublet_lease.id

@pytest.mark.sublet("1GiB")
class TestClass:
    def test_a_method(self):
        assert sublet.current().vram_bytes == 1 << 30

    @pytest.mark.sublet(vram="3GiB")
    def test_a_method_of_its_own_size(self):
        assert sublet.current().vram_bytes == 3 << 30

@pytest.mark.sublet("1GiB")
@pytest.mark.parametrize("number", range(4))
def test_parameters(number):
    assert sublet.current().held

def test_unmarked():
    assert sublet.current() is None
"""
ABSENT = """
import pytest
@pytest.mark.sublet("1GiB")
def test_it(sublet_lease):
    assert sublet_lease is None
def test_other():
    pass
"""


class Inner:
    """Runs pytest in a folder of its own."""

    def __init__(self, folder, place=None, **env):
        self.folder, self.place, self.more = folder, place, env

    def start(self, text, *arguments, ini=""):
        (self.folder / "test_inner.py").write_text(text)
        (self.folder / "pytest.ini").write_text(f"[pytest]\n{ini}\n")
        command = [sys.executable, "-m", "pytest", "-p", "sublet.pytest_plugin", "--strict-markers", "-rA", *arguments]
        return self.place.daemon.spawn(*command, cwd=self.folder, env=self.place.env(**self.more))

    def run(self, *arguments, **options):
        child = self.start(*arguments, **options)
        out, err = child.communicate(timeout=120)
        return child.returncode, out + err


@pytest.fixture
def inner(place, tmp_path):
    return Inner(tmp_path, place)


@pytest.fixture
def alone(place, tmp_path):
    """A pytest that finds no daemon."""
    return Inner(tmp_path, place, SUBLET_HOST=f"unix://{tmp_path}/none.sock")


def test_marked_tests_have_leases(inner, place):
    status, out = inner.run(TESTS)
    assert status == 0 and " 8 passed" in out, out
    assert place.leases() == []


@pytest.mark.skipif(importlib.util.find_spec("xdist") is None, reason="pytest-xdist is not installed")
def test_workers_wait_for_each_other(inner, place):
    """Each of three workers wants more than half of the card."""
    text = TESTS.replace('"1GiB"', '"3GiB"').replace("1 << 30", "3 << 30")
    status, out = inner.run(text, "-n", "3", "-p", "xdist")
    assert status == 0 and "8 passed" in out, out
    assert place.leases() == []


def test_a_test_waits_in_the_queue_and_says_so(inner, place):
    api = place.daemon.api()  # a lease of this process would be the test's own
    held = api.post("/v1/leases", {"vram_bytes": 3 << 30, "ttl_seconds": 600})["id"]
    child = inner.start('import pytest\n@pytest.mark.sublet("2GiB")\ndef test_it(): pass\n')
    wait_until(lambda: place.leases("queued"), "the test waits")
    api.post(f"/v1/leases/{held}/release", {})
    out, err = child.communicate(timeout=60)
    assert child.returncode == 0 and "test_inner.py::test_it: lease-2 waits: place 1" in out, out + err


def test_an_error_of_the_lease_is_an_error_of_the_test(inner):
    status, out = inner.run('import pytest\n@pytest.mark.sublet("9GiB")\ndef test_it(): pass\n')
    assert status == 1 and "TooLarge" in out and "1 error" in out
    status, out = inner.run("def test_it(sublet_lease): pass\n")
    assert status == 1 and "has no size for its lease" in out


def test_a_unittest_has_a_lease_too(inner):
    text = """
import pytest, sublet, unittest
@pytest.mark.sublet("1GiB")
class It(unittest.TestCase):
    def test_it(self):
        self.assertEqual(sublet.current().vram_bytes, 1 << 30)
"""
    status, out = inner.run(text)
    assert status == 0 and "1 passed" in out, out


@pytest.mark.parametrize("ini, status, part", [
    ("", 0, "1 passed, 1 skipped"), ("sublet_if_absent = skip", 0, "no lease: no daemon answers at unix:"),
    ("sublet_if_absent = fail", 1, "1 passed, 1 error"), ("sublet_if_absent = run", 0, "2 passed"),
    ("sublet_if_absent = frob", 4, "may be skip, fail or run")])
def test_the_ini_option_says_what_happens_without_a_daemon(alone, ini, status, part):
    got, out = alone.run(ABSENT, ini=ini)
    assert got == status and part in out, out


def test_the_lease_ends_with_a_killed_pytest(inner, place):
    child = inner.start('import pytest, signal\n@pytest.mark.sublet("2GiB")\ndef test_it(): signal.pause()\n')
    wait_until(lambda: place.leases("active"), "the test runs")
    assert place.leases()[0]["vram_bytes"] == 2 * GIB
    child.kill()
    wait_until(lambda: not place.leases(), "the lease has ended")


def test_pytest_finds_the_plugin_by_its_entry_point():
    text = (SOURCE.parent / "pyproject.toml").read_text()
    assert '[project.entry-points.pytest11]\nsublet = "sublet.pytest_plugin"' in text
    done = subprocess.run([sys.executable, "-c", "import sublet, sys; assert 'pytest' not in sys.modules"],
                          env={"PYTHONPATH": str(SOURCE)})
    assert done.returncode == 0, "the package itself does not need pytest"
