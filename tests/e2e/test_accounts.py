# SPDX-License-Identifier: Apache-2.0
"""A remote account database that hangs or fails. Neither the daemon nor the actor hangs, and no user loses a right
because of it.
"""
import os
import pwd
import subprocess

import pytest

from tests.support.preload import preload, shared_library
from tests.support.sublet import GIB, living, wait_until
from tests.support.system import ADMINS, CAROL, GROUP, System

ANA, STRANGER = 54331, 54399  # an id without an account
PRELOADED = ("LD_PRELOAD", "ASAN_OPTIONS", "ACCOUNTS_HANG", "ACCOUNTS_FAIL", "ACCOUNTS_ASKED")

# The account functions of libc. They hang while a file exists, and fail while another exists. A third file gets the uid
# of each lookup.
DATABASE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static int there(const char *name) { return getenv(name) && access(getenv(name), F_OK) == 0; }
static int answers(void) {
  while (there("ACCOUNTS_HANG")) usleep(10000);
  return !there("ACCOUNTS_FAIL");
}
int getpwuid_r(uid_t uid, struct passwd *entry, char *memory, size_t size, struct passwd **found) {
  int (*real)(uid_t, struct passwd *, char *, size_t, struct passwd **) = dlsym(RTLD_NEXT, "getpwuid_r");
  FILE *asked = fopen(getenv("ACCOUNTS_ASKED"), "a");
  if (asked) fprintf(asked, "%u\n", uid), fclose(asked);
  *found = NULL;
  return answers() ? real(uid, entry, memory, size, found) : ECONNREFUSED;
}
int getgrnam_r(const char *name, struct group *entry, char *memory, size_t size, struct group **found) {
  int (*real)(const char *, struct group *, char *, size_t, struct group **) = dlsym(RTLD_NEXT, "getgrnam_r");
  *found = NULL;
  return answers() ? real(name, entry, memory, size, found) : ECONNREFUSED;
}
"""


class Database:
    def __init__(self, folder, monkeypatch):
        source = folder / "database.c"
        source.write_text(DATABASE)
        preload(monkeypatch, shared_library(folder / "database.so", source))
        self.hang, self.fail, self.asked = folder / "hang", folder / "fail", folder / "asked"
        for name in ("hang", "fail", "asked"):
            monkeypatch.setenv(f"ACCOUNTS_{name.upper()}", str(folder / name))
        self.asked.touch()
        self.asked.chmod(0o666)


@pytest.fixture
def system(monkeypatch):
    made = System(config='[lease]\ngrace = "500ms"\n')
    made.database = Database(made.home, monkeypatch)
    made.services = {name: value for name, value in os.environ.items() if name in PRELOADED}
    yield made
    for file in (made.database.hang, made.database.fail):
        file.unlink(missing_ok=True)
    made.close()


# A connection that repeats a call until the daemon accepts it, and prints each answer.
ASKS = """
import http.client, json, socket, sys
connection = http.client.HTTPConnection("localhost")
connection.sock = socket.socket(socket.AF_UNIX)
connection.sock.connect("/run/sublet/sublet.sock")
while True:
    connection.request("GET", "/v1/status")
    answer = connection.getresponse()
    print(answer.status, json.loads(answer.read()).get("code"), flush=True)
    if answer.status == 200 or not sys.stdin.readline():
        break
"""


def test_while_the_account_database_hangs_leases_are_granted_all_the_same(tmp_path, monkeypatch, start_daemon):
    database = Database(tmp_path, monkeypatch)
    database.hang.touch()
    uid = os.geteuid()
    daemon = start_daemon()
    ask = {"vram_bytes": GIB, "ttl_seconds": 600}
    lease = daemon.api().post("/v1/leases", ask)
    assert (lease["state"], lease["user"]) == ("active", str(uid))
    database.hang.unlink()
    name = pwd.getpwuid(uid).pw_name
    wait_until(lambda: daemon.api().post("/v1/leases", dict(ask, vram_bytes=1 << 20))["user"] == name, "it is back")


@pytest.mark.parametrize("trouble", ["hang", "fail"])
def test_an_unknown_user_retries_and_is_accepted(system, trouble):
    file = getattr(system.database, trouble)
    file.touch()
    system.start()
    asks = subprocess.Popen(system.inside(ANA, "/usr/bin/python3", "-c", ASKS), env={}, text=True,
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    system.children.append(asks)
    assert asks.stdout.readline() == "503 Unavailable\n"
    file.unlink()

    def is_let_in():
        asks.stdin.write("\n")
        asks.stdin.flush()
        said = asks.stdout.readline()
        assert said in ("503 Unavailable\n", "200 None\n"), said
        return said.startswith("200")
    wait_until(is_let_in, "they are let in, on the same connection")
    stranger = system.cli(ANA, "status", groups=())
    assert stranger.returncode == 77 and "/healthz" in stranger.stderr


def test_unknown_uids_are_not_looked_up(system):
    system.start()
    denied = system.cli(STRANGER, "status", groups=())
    assert denied.returncode == 77 and f"user {STRANGER} may only" in denied.stderr
    system.cli(ANA, "status", check=0)
    asked = system.database.asked.read_text().split()
    assert str(ANA) in asked and str(STRANGER) not in asked


def test_a_hanging_account_database_does_not_stop_the_actor(system):
    system.start()
    pids = {}
    for tag in ("first", "second"):
        keeper = system.load(ANA, tag, alloc="256MiB", vram="1GiB", more=("--keep-running",))
        pids[tag] = system.lease(tag)["owner"]["pid"]
        keeper.kill()
        keeper.wait()
    system.database.hang.touch()
    system.begin(CAROL, "stop", system.lease("first")["id"], groups=(GROUP, ADMINS))
    wait_until(lambda: "cannot end its program" in system.log(), "nobody knows that she is an admin")
    assert living(pids["first"])
    system.cli(ANA, "stop", system.lease("second")["id"], check=0)
    wait_until(lambda: not living(pids["second"]), "its owner needs no answer")
    assert system.database.hang.exists() and living(pids["first"])
    system.database.hang.unlink()
    wait_until(lambda: not living(pids["first"]), "the admin's order is repeated")
