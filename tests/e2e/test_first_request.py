# SPDX-License-Identifier: Apache-2.0
"""A daemon that is killed or restarting at the first request of `sublet run`: the request is repeated, and nothing is
made twice.
"""
import contextlib
import pathlib
import socket

import pytest

from tests.support.sublet import wait_until

PROGRAM = ("run", "--vram", "1GiB", "--name", "mine", "--", "sh", "-c", "echo ran; exit 7")


def asks(daemon, *arguments):
    return daemon.spawn("sublet", *(arguments or PROGRAM))


def ended_well(daemon, keeper):
    out, err = keeper.communicate(timeout=120)
    assert (keeper.returncode, out) == (7, "ran\n"), err
    [lease] = daemon.leases(all=True)
    assert (lease["consumer"], lease["end_reason"], lease["exit_status"]) == ("mine", "released", 7)
    return err


@pytest.mark.parametrize("failpoint", ["granted.decided=kill", "granted.writing=kill", "granted.committed=kill",
                                       "granted.told=kill"])
def test_a_daemon_killed_during_the_request_for_a_lease(start_daemon, failpoint):
    daemon = start_daemon()
    daemon.restart(extra=["--failpoint", failpoint])
    keeper = asks(daemon)
    daemon.process.wait(60)
    daemon.start()
    ended_well(daemon, keeper)


@contextlib.contextmanager
def somebody_who_hangs_up(path):
    """A socket in the daemon's place that never answers; `heard` yields the connections in order."""
    pathlib.Path(path).unlink()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen(8)
        listener.settimeout(60)

        def heard():
            connection, _ = listener.accept()
            with connection:
                connection.settimeout(60)
                return connection.recv(65536).split(b"\r\n")[0].decode()
        yield heard


def test_a_daemon_killed_at_the_first_request(start_daemon):
    daemon = start_daemon()
    daemon.kill()
    with somebody_who_hangs_up(daemon.socket) as heard:
        keeper = asks(daemon)
        assert heard() == "GET /v1/status HTTP/1.1"
    daemon.start()
    assert "in case the daemon restarts" in ended_well(daemon, keeper)


def test_a_daemon_killed_before_the_first_request(start_daemon):
    daemon = start_daemon()
    daemon.kill()  # its socket stays
    keeper = asks(daemon)
    assert "in case the daemon restarts" in keeper.stderr.readline()
    assert keeper.poll() is None
    daemon.start()
    ended_well(daemon, keeper)


def test_hold_waits_for_it_too(start_daemon):
    daemon = start_daemon()
    daemon.kill()
    holder = asks(daemon, "hold", "--vram", "1GiB", "--json")
    daemon.start()
    lease = wait_until(lambda: next((now for now in daemon.leases() if now["state"] == "active"), None), "a lease")
    first = holder.stdout.readline()
    holder.terminate()
    out, err = holder.communicate(timeout=60)
    assert lease["id"] in first + out and "in case" not in err, "for machines it says nothing beside its JSON"


def test_without_a_daemon_ever_there_is_no_wait(start_daemon, tmp_path):
    daemon = start_daemon()
    done = daemon.cli("--host", f"unix://{tmp_path}/none", *PROGRAM)
    assert done.returncode == 69 and "in case the daemon restarts" not in done.stderr
    daemon.process.terminate()
    daemon.process.wait(60)  # an orderly end: it takes its socket along
    assert daemon.cli(*PROGRAM).returncode == 69
