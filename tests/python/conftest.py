# SPDX-License-Identifier: Apache-2.0
"""Private daemons for the Python package."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from tests.support.python_fixtures import environment_returns, place, start_place  # noqa: E402, F401
