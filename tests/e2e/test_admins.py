# SPDX-License-Identifier: Apache-2.0
"""Members of the group sublet-admin, with the daemon and the actor of the system. The daemon knows members by the
socket's credentials, the actor by the accounts of the machine.
"""
import json
import signal

import pytest

from tests.support.sublet import living, wait_until
from tests.support.system import ADMINS, CAROL, DAVE, GROUP, System
from tests.support.tcp import TcpApi, free_port

ANA, BEN, MALLORY = 54331, 54332, 54391  # an id without an account
ADMIN = (GROUP, ADMINS)


@pytest.fixture
def system():
    made = System(config='[lease]\ngrace = "10s"\n')
    yield made.start()
    made.close()


def test_only_an_admin_ends_another_users_program(system):
    program = system.load(ANA, "hers")
    hers = system.lease("hers")["id"]
    unknown = system.cli(BEN, "why", "hers")
    assert "you have no lease with the tag 'hers'" in unknown.stderr and hers in unknown.stderr, unknown.stderr
    refused = system.cli(BEN, "stop", system.lease("hers")["id"])
    assert refused.returncode == 77 and "or an admin" in refused.stderr, refused.stderr
    assert system.lease("hers")["state"] == "active"
    system.cli(CAROL, "stop", system.lease("hers")["id"], groups=ADMIN, check=0)
    assert program.wait(60) == 128 + signal.SIGTERM, program.communicate()
    assert system.until("hers", "ended")["end_reason"] in ("revoked", "released")


def test_without_its_keeper_the_actor_signals_for_an_admin(system):
    program = system.load(ANA, "hers")
    pid = system.lease("hers")["owner"]["pid"]
    program.kill()
    program.wait()
    wait_until(lambda: not living(program.pid), "its keeper is gone")
    assert living(pid)
    system.cli(CAROL, "stop", system.lease("hers")["id"], groups=ADMIN, check=0)
    wait_until(lambda: not living(pid), "it was signalled")
    system.until("hers", "ended")


def test_the_actor_believes_the_accounts_and_not_the_daemon(system):
    """A caller with the group's number but no account in the group is an admin for the daemon alone: no program is
    signalled.
    """
    program = system.load(ANA, "hers", more=["--keep-running"])
    pid = system.lease("hers")["owner"]["pid"]
    program.kill()
    program.wait()
    system.begin(MALLORY, "stop", system.lease("hers")["id"], groups=ADMIN)
    wait_until(lambda: "cannot end its program" in system.log(), "the actor refuses")
    assert living(pid), "only an account in the group may"


def test_an_admin_token_ends_any_program(system):
    port = free_port()
    with open(system.home / "sublet.toml", "a") as config:
        config.write(f'[api]\ntcp = "127.0.0.1:{port}"\n')
    system.process.terminate()
    system.process.wait(30)
    system.start_daemon()
    program = system.load(ANA, "hers")
    denied = system.cli(BEN, "token", "create", "--scope", "admin")
    assert denied.returncode == 77 and "not an admin" in denied.stderr, denied.stderr
    theirs = system.cli(BEN, "token", "create", "--scope", "submit", check=0).stdout.strip()
    token = system.cli(CAROL, "token", "create", "--scope", "admin", groups=ADMIN, check=0).stdout.strip()
    stop = f"/v1/leases/{system.lease('hers')['id']}/release"
    assert TcpApi(port, theirs).post(stop, {"stop": True}).status == 403
    assert system.lease("hers")["state"] == "active"
    assert TcpApi(port, token).post(stop, {"stop": True}).status == 200
    assert program.wait(60) == 128 + signal.SIGTERM


def test_no_admin_takes_the_lease_of_another_users_session(system):
    opened = json.loads(system.cli(DAVE, "session", "open", "--json", "--vram", "1GiB", check=0).stdout)["id"]
    system.cli(CAROL, "session", "close", opened, groups=ADMIN, check=0)
    refused = system.cli(CAROL, "session", "resume", opened, groups=ADMIN)
    assert refused.returncode == 77 and "only its user" in refused.stderr, refused.stderr
    again = json.loads(system.cli(DAVE, "session", "resume", opened, "--json", check=0).stdout)
    assert (again["state"], again["uid"]) == ("active", DAVE)
