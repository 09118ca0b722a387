# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the tests with a real browser."""
import pytest

from . import browser
from .browser import Reader
from .sublet import Daemon
from .web import Web

QUICK = '[gpu]\ninterval_idle = "300ms"\ninterval_busy = "200ms"\n'


@pytest.fixture(name="chromium", scope="module")
def chromium_fixture():
    browser.need()
    with browser.browser() as started:
        yield started


@pytest.fixture(name="daemons")
def daemons_fixture():
    """Starts private daemons that end with the test."""
    started = []

    def start(config="", sim="1x4GiB", quick=QUICK):
        started.append(Daemon(sim, quick + config))
        return started[-1].start()

    yield start
    for daemon in started:
        print(daemon.log())
        daemon.close()


@pytest.fixture(name="open_page")
def open_page_fixture(chromium):
    """Opens the page of `sublet web` in a new browser context."""
    contexts = []

    def opened(daemon, cwd=None, **options):
        reader = Reader(chromium, Web(daemon, cwd=cwd).address, **options)
        contexts.append(reader.context)
        return reader.goes_live()

    yield opened
    for context in contexts:
        context.close()
