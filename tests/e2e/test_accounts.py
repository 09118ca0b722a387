# SPDX-License-Identifier: Apache-2.0
"""An account database behind the network that hangs: the daemon does not."""
import os
import pwd

import pytest

from tests.support.preload import preload, shared_library
from tests.support.sublet import GIB, wait_until

# getpwuid_r() of the daemon, which hangs for as long as a file is there.
HANGS = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pwd.h>
#include <stdlib.h>
#include <unistd.h>
int getpwuid_r(uid_t uid, struct passwd *entry, char *memory, size_t size, struct passwd **found) {
  int (*real)(uid_t, struct passwd *, char *, size_t, struct passwd **) = dlsym(RTLD_NEXT, "getpwuid_r");
  while (getenv("ACCOUNTS_HANG") && access(getenv("ACCOUNTS_HANG"), F_OK) == 0) usleep(10000);
  return real(uid, entry, memory, size, found);
}
"""


@pytest.fixture
def hanging(tmp_path, monkeypatch):
    """The file; while it is there no account is told."""
    source, file = tmp_path / "hangs.c", tmp_path / "hang"
    source.write_text(HANGS)
    preload(monkeypatch, shared_library(tmp_path / "hangs.so", source))
    file.touch()
    monkeypatch.setenv("ACCOUNTS_HANG", str(file))
    return file


def test_while_the_account_database_hangs_leases_are_granted_all_the_same(hanging, start_daemon):
    uid = os.geteuid()
    daemon = start_daemon()
    ask = {"vram_bytes": GIB, "ttl_seconds": 600}
    lease = daemon.api().post("/v1/leases", ask)
    assert (lease["state"], lease["user"]) == ("active", str(uid))
    hanging.unlink()
    name = pwd.getpwuid(uid).pw_name
    wait_until(lambda: daemon.api().post("/v1/leases", dict(ask, vram_bytes=1 << 20))["user"] == name, "it is back")
