# SPDX-License-Identifier: Apache-2.0
"""The folder for services that are large or slow to start, and for libraries that `./dev test heavy` installs.

`./dev test heavy` and `.ci/run` run this folder; `./dev test` leaves it out. All its tests together take at most 25
minutes. A test skips, and names the program, where that program cannot be installed.
"""
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from tests.support.browser_fixtures import chromium_fixture, daemons_fixture, open_page_fixture  # noqa: E402, F401
from tests.support.python_fixtures import place, start_place  # noqa: E402, F401
from tests.support.ray_place import ray_cluster_fixture, rays_fixture  # noqa: E402, F401
from tests.support.real_engine import RealEngine, need  # noqa: E402
from tests.support.slurm_jobs import cluster_fixture, slurm_cluster_fixture  # noqa: E402, F401


@pytest.fixture(name="engine", scope="module")
def engine_fixture():
    need()
    engine = RealEngine().start().import_image()
    yield engine
    engine.close()
