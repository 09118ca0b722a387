# SPDX-License-Identifier: Apache-2.0
"""Process accounting of the kernel names parents that were dead before the daemon started."""
import ctypes
import os
import pathlib
import signal
import subprocess

import pytest

from tests.support.sublet import BIN, Daemon, wait_until

LOAD = f"{BIN}/simgpu-load --alloc 256MiB --seconds 600"


@pytest.fixture
def accounting(tmp_path):
    """A file that the kernel writes to. There is one such file on a machine, so another's is left in place."""
    if os.geteuid() != 0:
        pytest.skip("only root can turn accounting on")
    if any(pathlib.Path(place).exists() for place in ("/var/log/account/pacct", "/var/account/pacct")):
        pytest.skip("this machine has accounting of its own")
    libc, path = ctypes.CDLL(None, use_errno=True), tmp_path / "pacct"
    path.touch(0o640)
    if libc.acct(str(path).encode()) != 0:
        pytest.skip(f"accounting cannot be turned on: {os.strerror(ctypes.get_errno())}")
    yield path
    libc.acct(None)


def test_parents_that_were_dead_before_the_daemon(accounting, tmp_path):
    daemon = Daemon("1x4GiB", config=f'[enforcer]\ninterval = "1s"\naccounting = "{accounting}"\n'
                                     '[gpu]\ninterval_idle = "1s"\n')
    outsider = None
    try:
        daemon.start()
        daemon.kill()  # the cards are there now
        pids = tmp_path / "pids"
        command = (f"exec -a launcher bash -c 'echo $$ > {pids}; setsid bash -c \"echo \\$\\$ >> {pids}; {LOAD} & "
                   f"echo \\$! >> {pids}\"; true'")
        subprocess.run(["bash", "-c", command], env=daemon.env(), check=True, stdin=subprocess.DEVNULL,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        launcher, session, outsider = map(int, pids.read_text().split())
        daemon.start()
        row = wait_until(lambda: next((row for row in daemon.get("/v1/verdicts")["verdicts"]
                                       if row["pid"] == outsider), None), "it is found")

        def ancestry():
            found = daemon.get(f"/v1/verdicts/{row['id']}")["ancestry"]
            return {each["pid"]: each for each in found} if any(each["ended"] for each in found) else None
        found = wait_until(ancestry, "its dead parents are known")
        assert found[session]["ended"] and found[session]["name"] == "bash" and found[session]["source"] == "leader"
        assert found[launcher]["ended"] and found[launcher]["source"] == "accounting"
        assert not found[launcher]["certain"] and found[os.getpid()]["source"] == "accounting"
        [source] = [each for each in daemon.get("/v1/enforcer")["sources"] if each["name"] == "accounting"]
        assert source["works"] and source["text"].startswith("the last record is of ")
        assert "likely, by accounting" in daemon.cli("why", f"pid:{outsider}", check=0).stdout
    finally:
        if outsider:
            os.kill(outsider, signal.SIGKILL)
        daemon.close()
