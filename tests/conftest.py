# SPDX-License-Identifier: Apache-2.0
"""Sorts the tests into groups before they run."""
import pathlib

import pytest

TESTS = pathlib.Path(__file__).resolve().parent


def shares_a_fixture(item):
    """Tells whether the test uses a fixture that the tests of its file share."""
    return any(fixtures[-1].scope == "module" for fixtures in item._fixtureinfo.name2fixturedefs.values())


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Marks all tests of tests/heavy and of tests/cluster. One worker runs all tests that share a fixture, and they
    start first: together they take long.
    """
    for item in items:
        for name in ("heavy", "cluster"):
            if TESTS / name in item.path.parents:
                item.add_marker(name)
        if shares_a_fixture(item):
            item.add_marker(pytest.mark.xdist_group(item.path.stem))
    items.sort(key=lambda item: item.get_closest_marker("xdist_group") is None)
