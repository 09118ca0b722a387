# SPDX-License-Identifier: Apache-2.0
import pathlib
import signal
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from tests.support.sublet import Daemon, lent  # noqa: E402

# A shell that starts the tests in the background makes them ignore these signals, and nohup does so with the last.
# Programs that the tests start would inherit that. (A signal with a handler is not ignored in them; this handler lets
# the tests themselves outlive the terminal.)
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)
if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)


@pytest.fixture
def start_daemon():
    """Starts private daemons. All end with the test, and their logs are shown if it fails."""
    daemons = []

    def start(*arguments, **options):
        launch = {name: options.pop(name) for name in ("expect_ready", "wait_for_cards", "extra") if name in options}
        daemon = Daemon(*arguments, **options)
        daemons.append(daemon)
        return daemon.start(**launch)

    yield start
    for daemon in daemons:
        print(f"--- log of {daemon.dir}\n{daemon.log()}")
        daemon.close()


@pytest.fixture
def daemon(start_daemon):
    return start_daemon("1x4GiB")


@pytest.fixture(scope="module")
def one_daemon():
    """The daemon behind `shared_daemon`."""
    daemon = Daemon("1x4GiB", config='[lease]\ngrace = "1s"\nlinger = "1s"\n[gpu]\ninterval_idle = "1s"\n')
    try:
        yield daemon.start()
    finally:
        daemon.close()


@pytest.fixture
def shared_daemon(one_daemon):
    """A daemon that tests of a file share, for tests that only look at it, or leave nothing but ended leases behind."""
    with lent(one_daemon):
        yield one_daemon
