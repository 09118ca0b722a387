# SPDX-License-Identifier: Apache-2.0
"""Tests under leases: `@pytest.mark.sublet("2GiB")`. pytest loads the plugin by its entry point.

Each test takes its lease before its fixtures and gives it back after them. A process holds one lease at a time, so
workers of xdist wait for each other in the queue and cannot block each other.
"""
from __future__ import annotations

from typing import Any, Iterator, List, Optional

import pytest

from ._lease import Lease
from ._make import lease as make_lease
from ._wait import Waiting, printable
from .errors import DaemonUnavailable, Disconnected

CHOICES = ("skip", "fail", "run")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the ini option."""
    parser.addini("sublet_if_absent", "tests marked with sublet when no daemon answers: skip (default), fail, or run "
                  "without a lease", default="skip")


def pytest_configure(config: pytest.Config) -> None:
    """Registers the mark and checks the ini option."""
    config.addinivalue_line("markers", "sublet(vram, **options): run the test under a lease, with the options of "
                            "sublet.lease; the fixture sublet_lease is the lease")
    if _if_absent(config) not in CHOICES:
        raise pytest.UsageError(f"sublet_if_absent is '{_if_absent(config)}', and may be skip, fail or run")


def _if_absent(config: pytest.Config) -> str:
    return str(config.getini("sublet_if_absent"))


def pytest_collection_modifyitems(items: List[pytest.Item]) -> None:
    """Has each marked test take its lease first, before other fixtures use the card."""
    for item in items:
        names: Optional[List[str]] = getattr(item, "fixturenames", None)
        if names is not None and item.get_closest_marker("sublet") is not None:
            if "sublet_lease" in names:
                names.remove("sublet_lease")
            names.insert(0, "sublet_lease")


@pytest.fixture
def sublet_lease(request: pytest.FixtureRequest) -> Iterator[Optional[Lease]]:
    """The lease of the test, by `@pytest.mark.sublet(SIZE)`. None without a daemon if the ini option says `run`."""
    mark = request.node.get_closest_marker("sublet")
    if mark is None or (not mark.args and "vram" not in mark.kwargs):
        pytest.fail(f"{request.node.nodeid} has no size for its lease: mark it with @pytest.mark.sublet(\"2GiB\")",
                    pytrace=False)
    options = {"name": request.node.nodeid[-64:], "on_wait": _Progress(request).show, **mark.kwargs}
    lease = make_lease(*mark.args, **options)
    try:
        lease.acquire()
    except DaemonUnavailable as problem:
        if isinstance(problem, Disconnected) or not _may_run_without(request.config, problem):
            raise
        yield None
        return
    try:
        yield lease
    finally:
        lease.release()


def _may_run_without(config: pytest.Config, problem: DaemonUnavailable) -> bool:
    wanted = _if_absent(config)
    if wanted == "skip":
        pytest.skip(f"no lease: {problem.message}")
    if wanted == "fail":
        pytest.fail(f"no lease: {problem}", pytrace=False)
    return True


class _Progress:
    """Tells on the terminal that a test waits. Workers of xdist have no terminal."""

    def __init__(self, request: Any) -> None:
        self._reporter = request.config.pluginmanager.get_plugin("terminalreporter")
        self._test = request.node.nodeid
        self._place: Any = None

    def show(self, waiting: Waiting) -> None:
        place = (waiting.place, waiting.short_bytes)
        if self._reporter is not None and place != self._place:
            self._reporter.ensure_newline()
            self._reporter.write_line(printable(f"{self._test}: {waiting}"))
        self._place = place
