# SPDX-License-Identifier: Apache-2.0
"""Tenants of users and groups by the configuration, with several real users."""
import json

import pytest

from tests.e2e.test_accounts import Database
from tests.e2e.test_keeper_service import detach, reaches
from tests.e2e.test_metrics import scrape
from tests.support.contract import ROOT
from tests.support.stacks import place, two  # noqa: F401
from tests.support.sublet import GIB, Api, wait_until
from tests.support.system import ADMINS, CAROL, DAVE, GROUP, System
from tests.support.tcp import TcpApi, free_port

ANA = 54331  # an id without an account
LAB, STAFF = 64910, 64911
CONFIG = """
[[tenants.user]]
name = "carol"
tenant = "vision"
[[tenants.group]]
name = "lab"
tenant = "speech"
[[tenants.group]]
name = "staff"
tenant = "house"
[[tenants.group]]
name = "no-such-group"
tenant = "nobody"
"""


@pytest.fixture
def system():
    made = System(config=f'[api]\ntcp = "127.0.0.1:{(port := free_port())}"\n{CONFIG}')
    made.port = port
    with open(made.home / "group", "a") as groups:  # the account database
        groups.write(f"lab:x:{LAB}:dave\nstaff:x:{STAFF}:carol\n")
    yield made
    made.close()


def charged(system, uid, tag, *more, groups=(GROUP,)):
    """Returns the tenant of a lease that this user gets."""
    system.cli(uid, "run", "--vram", "64MiB", "--tag", tag, *more, "--", "true", groups=groups, check=0)
    return system.lease(tag)["tenant"]


def test_a_lease_is_charged_to_the_tenant_of_its_user_or_group(system):
    system.start()
    in_lab, in_both, admin = (GROUP, LAB), (GROUP, STAFF, LAB), (GROUP, ADMINS)
    for number, (uid, groups, asked, tenant) in enumerate((
            (DAVE, (GROUP,), (), "dave"),
            (DAVE, in_lab, (), "speech"),
            (DAVE, in_both, (), "speech"),  # the first in the configuration
            (DAVE, (GROUP, STAFF), (), "house"),
            (DAVE, in_lab, ("--tenant", "dave"), "dave"),
            (DAVE, in_both, ("--tenant", "house"), "house"),
            (CAROL, (GROUP,), (), "vision"),
            (CAROL, in_lab, (), "vision"),  # the user's entry decides
            (CAROL, in_lab, ("--tenant", "speech"), "speech"),
            (CAROL, admin, ("--tenant", "elsewhere"), "elsewhere"),
            (ANA, in_lab, (), "speech"),
            (ANA, (GROUP,), (), str(ANA)))):
        assert charged(system, uid, f"run-{number}", *asked, groups=groups) == tenant, (uid, groups, asked)
    for uid, groups, asked, names in ((DAVE, in_lab, "house", "dave, speech"), (DAVE, (GROUP,), "speech", "dave"),
                                      (CAROL, in_both, "dave", "carol, vision, speech, house")):
        refused = system.cli(uid, "run", "--vram", "64MiB", "--tenant", asked, "--", "true", groups=groups)
        assert refused.returncode == 77 and f"not allowed to charge tenant {asked}" in refused.stderr, refused.stderr
        assert f": {names}; an admin may charge any" in refused.stderr, refused.stderr


def test_every_kind_of_lease_has_the_same_tenant(system):
    system.start_keeper_service().start()
    in_lab = (GROUP, LAB)
    freed = system.cli(DAVE, "free", "256MiB", "--json", groups=in_lab, check=0)
    assert json.loads(freed.stdout)["tenant"] == "speech"
    detach(system, "sleep", "600")  # its keeper has the groups of the account
    lease = system.lease(reaches(system, "running")["lease"])
    assert (lease["tenant"], lease["user"]) == ("speech", "dave")
    token = system.cli(DAVE, "token", "create", "--scope", "submit", check=0).stdout.strip()
    ask = {"vram_bytes": GIB // 16, "ttl_seconds": 600}
    remote = TcpApi(system.port, token)
    assert remote.post("/v1/leases", ask)["tenant"] == "speech"
    assert remote.post("/v1/leases", dict(ask, tenant="dave"))["tenant"] == "dave"
    assert remote.post("/v1/leases", dict(ask, tenant="vision")).status == 403
    assert remote.post("/v1/free", {"vram_bytes": GIB // 16})["tenant"] == "speech"
    system.cli(DAVE, "stop", "serve", check=0)


def test_the_tenant_is_shown_everywhere(system):
    system.start()
    for number in range(2):  # the card has 4 GiB, so the second waits
        system.run(DAVE, f"held-{number}", "sleep", "600", vram="2500MiB", more=("--tenant", "dave"))
        system.until(f"held-{number}", ("active", "queued")[number])
    system.run(CAROL, "small", "sleep", "600", vram="64MiB")
    system.until("small", "active")
    rows = json.loads(system.cli(CAROL, "ps", "--json", check=0).stdout)["leases"]
    assert {row["tag"]: row["tenant"] for row in rows} == {"held-0": "dave", "held-1": "dave", "small": "vision"}
    assert "vision" in system.cli(CAROL, "ps", "-o", "tag,tenant", check=0).stdout
    assert "dave" in system.cli(CAROL, "queue", "-o", "tag,tenant", check=0).stdout
    assert json.loads(system.cli(CAROL, "why", "small", "--json", check=0).stdout)["lease"]["tenant"] == "vision"
    report = json.loads(system.cli(CAROL, "report", "--by", "tenant", "--json", check=0).stdout)
    assert "vision" in json.dumps(report)
    api = Api(system.home / "run/sublet/sublet.sock")
    found = scrape(api)
    assert found["sublet_tenant_leases"] == {'{tenant="dave",state="active"}': 1, '{tenant="dave",state="queued"}': 1,
                                             '{tenant="vision",state="active"}': 1}
    assert found["sublet_tenant_queue_wait_seconds_count"] == {'{tenant="dave"}': 1, '{tenant="vision"}': 1}
    assert {key.split(",")[0] for key in found["sublet_tenant_memory_bytes"]} == {'{tenant="dave"',
                                                                                  '{tenant="vision"'}
    assert any('tenant="vision"' in key for key in found["sublet_usage_byte_seconds_total"])
    api.close()


def test_a_stack_is_charged_to_the_tenant_of_its_user(place):  # noqa: F811
    place.more += '[[tenants.group]]\nname = "root"\ntenant = "house"\n'
    stacks = two(place)
    leases = stacks.api
    assert leases.get(f"/v1/leases/{stacks.ready('chat')['lease']}")["tenant"] == "house"


def test_a_hanging_account_database_refuses_only_where_a_group_decides(tmp_path, monkeypatch, start_daemon):
    database = Database(tmp_path, monkeypatch)
    database.hang.touch()
    daemon = start_daemon(config='[[tenants.group]]\nname = "root"\ntenant = "house"\n')
    api, ask = daemon.api(), {"vram_bytes": GIB // 16, "ttl_seconds": 600}
    refused = api.post("/v1/leases", ask)
    assert refused.status == 503 and "account database does not answer" in refused["detail"], refused
    assert api.post("/v1/leases", dict(ask, tenant="vision"))["tenant"] == "vision"
    database.hang.unlink()
    wait_until(lambda: api.post("/v1/leases", ask).body.get("tenant") == "house", "the database is back")


@pytest.mark.parametrize("text, said", [
    ('[[tenants.user]]\nname = "ana"\n', "2:1: tenants.user.tenant: is missing in this table"),
    ('[tenants]\nuser = ["ana=vision"]\n', "tenants.user: has text in the list"),
    ('[[tenants.user]]\nname = "a"\ntenant = "b"\n[[tenants.user]]\nname = "a"\ntenant = "c"\n',
     '"a" is also the name of the table on line'),
])
def test_a_wrong_entry_is_an_error_with_its_line(tmp_path, shared_daemon, text, said):
    (tmp_path / "sublet.toml").write_text(f"# SPDX\n{text}")
    done = shared_daemon.cli("config", "check", "--file", str(tmp_path / "sublet.toml"))
    assert done.returncode == 78 and said in done.stdout + done.stderr, done


def test_the_example_of_the_documentation_is_read(tmp_path, shared_daemon):
    text = (ROOT / "docs/tenants.md").read_text()
    example = text.split("```toml\n")[1].split("```")[0]
    (tmp_path / "sublet.toml").write_text(example)
    done = shared_daemon.cli("config", "show", "--json", "--file", str(tmp_path / "sublet.toml"))
    shown = json.loads(done.stdout)["values"]
    assert [row["tenant"] for row in shown["tenants.user"]["value"]] == ["vision"]
    assert len(shown["tenants.group"]["value"]) == 2
