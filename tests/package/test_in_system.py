# SPDX-License-Identifier: Apache-2.0
"""The packages as an administrator sees them, in a new system (in_system.sh). Takes minutes, and needs root."""
import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_install_use_upgrade_remove_purge():
    if os.environ.get("SUBLET_PACKAGE_TEST") != "1":
        pytest.skip("takes minutes and builds the release: SUBLET_PACKAGE_TEST=1, or ./dev test-package")
    if os.geteuid() != 0:
        pytest.skip("only root can make a new system")
    done = subprocess.run([ROOT / "dev", "test-package"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)
    said = done.stdout.splitlines()
    if done.returncode == 77:
        pytest.skip(said[-1])
    assert done.returncode == 0, "\n".join(said[-60:])
    assert any(line.endswith("checks passed") for line in said), said[-5:]
