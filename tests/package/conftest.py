# SPDX-License-Identifier: Apache-2.0
"""The release that all tests of this folder share. They take minutes, and need root."""
import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def call(*command):
    """Returns the lines that a command says. It skips the test with 77, and fails the test with another status."""
    done = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)
    said = done.stdout.splitlines()
    if done.returncode == 77:
        pytest.skip(next((line for line in reversed(said) if "skipped" in line), "\n".join(said[-3:])))
    assert done.returncode == 0, "\n".join(said[-80:])
    return said


@pytest.fixture(scope="session")
def release():
    """Makes the release once. SUBLET_RELEASE_MADE=1: packages/ has it."""
    if os.geteuid() != 0:
        pytest.skip("only root can make a new system")
    if os.environ.get("SUBLET_RELEASE_MADE") != "1":
        call(ROOT / "dev", "package")
    return ROOT / "packages"
