# SPDX-License-Identifier: Apache-2.0
"""The tree of tenants: applied from a file, read, changed and kept; what a change means for running leases."""
import datetime
import json
import re

import pytest

from tests.e2e.test_metrics import scrape
from tests.support.sublet import GIB, ROOT, wait_until
from tests.support.system import ADMINS, CAROL, DAVE, GROUP, System

TREE = """
[[tenant]]
name = "lab"
quota = "2GiB"
limit = "3GiB"

[[tenant]]
name = "vision"
parent = "lab"
quota = "1GiB"
weight = 2

[[tenant]]
name = "house"
tiers = ["batch", "spot"]
on_limit = "refuse"
live_leases = 2
longest_lease = "2h"
"""
KEYS = {"name", "parent", "quota", "quota_devices", "limit", "limit_devices", "live_leases", "queued_leases",
        "longest_lease", "on_limit", "weight", "tiers", "highest_priority", "park_share"}
ASK = {"vram_bytes": GIB, "ttl_seconds": 600}
ADMIN = (GROUP, ADMINS)


def write(place, text, name="tenants.toml"):
    (place / name).write_text(text)
    return str(place / name)


def rows(daemon):
    return {row["name"]: row for row in daemon.get("/v1/tenants")["tenants"]}


def moment(text):
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def events(daemon):
    shown = daemon.cli("events", "--type", "tenants", "--since", "0", "--no-follow", "--json", check=0).stdout
    return [json.loads(line) for line in shown.splitlines()]


def test_a_file_is_applied_at_once_and_kept(start_daemon, tmp_path):
    daemon = start_daemon("1x4GiB")
    file = write(tmp_path, TREE)
    dry = daemon.cli("tenant", "apply", file, "--dry-run", check=0)
    assert "+ lab: quota = 2GiB; limit = 3GiB" in dry.stdout, dry.stdout
    assert "+ vision: parent = lab; quota = 1GiB; weight = 2" in dry.stdout
    assert "nothing was changed" in dry.stderr and rows(daemon) == {} and events(daemon) == []
    done = daemon.cli("tenant", "apply", file, check=0)
    assert "3 added, 0 changed, 0 removed" in done.stderr and done.stdout == dry.stdout
    assert "nothing changes" in daemon.cli("tenant", "apply", file, check=0).stderr
    listed = daemon.cli("tenant", "ls", check=0).stdout.splitlines()
    assert [line.split()[0] for line in listed] == ["TENANT", "house", "lab", "vision"], listed
    assert listed[3].startswith("  vision") and "1.0 GiB" in listed[3]
    told = daemon.cli("tenant", "show", "house", check=0).stdout
    for words in ("at most 2", "2 h", "requests are refused", "batch", "0 B", "in the last 2 h"):
        assert words in told, (words, told)
    before = rows(daemon)
    assert before["lab"]["quota_bytes"] == 2 * GIB and before["vision"]["weight"] == 2
    daemon.restart()
    assert rows(daemon) == before
    assert [(event["by"], event["added"], event["added_count"]) for event in events(daemon)] == [
        ("root", ["house", "lab", "vision"], 3)]


def test_one_tenant_is_changed_and_removed(start_daemon, tmp_path):
    daemon = start_daemon("1x4GiB")
    daemon.cli("tenant", "apply", write(tmp_path, TREE), check=0)
    done = daemon.cli("tenant", "set", "vision", "quota=512MiB", "weight=", "tiers=batch,spot", check=0)
    assert "~ vision: quota: 1GiB -> 512MiB; tiers = spot, batch; weight: 2 -> none" in done.stdout, done.stdout
    assert rows(daemon)["vision"]["weight"] == 1 and rows(daemon)["vision"]["tiers"] == ["spot", "batch"]
    daemon.cli("tenant", "set", "speech", "parent=lab", "limit_devices=0.5", check=0)
    assert rows(daemon)["speech"]["limit_devices"] == 0.5
    for words, code, said in ((("set", "vision", "quota=3GiB"), 2, "the quotas below tenant lab add up to 3.0 GiB"),
                              (("set", "vision", "quote=3GiB"), 2, "no key of a tenant – did you mean 'quota'"),
                              (("set", "vision", "weight=none"), 2, "weight: "),
                              (("set", "vision", "parent=vision"), 2, "are a cycle: vision -> vision"),
                              (("show", "visoin"), 4, "did you mean 'vision'"),
                              (("rm", "nobody"), 4, "there is no tenant 'nobody'"),
                              (("rm", "lab"), 1, "tenant lab has 2 tenants below it, for example speech")):
        refused = daemon.cli("tenant", *words)
        assert refused.returncode == code and said in refused.stderr, (words, refused.stderr)
    assert "- lab" in daemon.cli("tenant", "rm", "lab", "--recursive", "--dry-run", check=0).stdout
    lease = daemon.api().post("/v1/leases", dict(ASK, tenant="vision", tier="batch"))
    assert lease.status == 201, lease
    assert rows(daemon)["lab"]["held_bytes"] == rows(daemon)["vision"]["held_bytes"] == GIB
    gone = daemon.cli("tenant", "rm", "lab", "--recursive", check=0)
    assert "0 added, 0 changed, 3 removed" in gone.stderr
    assert f"! {lease['id']} (root) is without an entry: tenant vision has no entry" in gone.stdout, gone.stdout
    assert list(rows(daemon)) == ["house", "vision"] and rows(daemon)["vision"]["entry"] is False
    assert daemon.get(f"/v1/leases/{lease['id']}")["state"] == "active"


@pytest.mark.parametrize("text, line, said, hint", [
    ('[[tenant]]\nname = "a"\nqouta = "1GiB"\n', 3, "tenant.qouta: unknown key – did you mean 'quota'?", "the keys of"),
    ('[[tenant]]\nname = "a"\nquota = 4\n', 3, "tenant.quota: 4 has no unit", "MiB"),
    ('[[tenant]]\nname = "a"\nweight = 0\n', 3, "0 is not between 0.001 and", ""),
    ('[[tenant]]\nquota = "1GiB"\n', 1, "tenant.name: is missing in this table", "write name"),
    ('[[tenant]]\nname = "a"\n\n[[tenant]]\nname = "a"\n', 5, '"a" is also the name of the table on line 2', ""),
    ('[[tenant]]\nname = "a"\n[[tenant]]\nname = "b"\nparent = "aa"\n', 3,
     "the parent of tenant b, aa, has no entry", "give the parent an entry"),
    ('[[tenant]]\nname = "a"\nparent = "b"\n[[tenant]]\nname = "b"\nparent = "a"\n', 1,
     "the parents of tenant a are a cycle: a -> b -> a", "leave one"),
    ('[[tenant]]\nname = "a"\nquota = "2GiB"\n[[tenant]]\nname = "b"\nparent = "a"\nquota = "1GiB"\n'
     '[[tenant]]\nname = "c"\nparent = "a"\nquota = "1536MiB"\n', 1,
     "the quotas below tenant a add up to 2.5 GiB (b, c), and its quota is 2.0 GiB", "raise the quota of a to 2.5 GiB"),
    ('[[tenant]]\nname = "a b"\n', 1, "name is", ""),
    ('[tenants]\nname = "a"\n', 1, "tenants: unknown table – did you mean 'tenant'?", ""),
    ('[[tenant]\nname = "a"\n', 1, "", ""),
    ("[[tenant]]\nname = 'a'\ntiers = ['fast']\n", 3, "fast is none of: critical, interactive", ""),
])
def test_a_bad_file_is_refused_with_its_line(shared_daemon, tmp_path, text, line, said, hint):
    before = shared_daemon.get("/v1/tenants").body
    file = write(tmp_path, text)
    refused = shared_daemon.cli("tenant", "apply", file)
    assert refused.returncode in (2, 78), refused
    assert f"{file}:{line}" in refused.stderr and said in refused.stderr and hint in refused.stderr, refused.stderr
    assert shared_daemon.get("/v1/tenants").body == before


def test_a_file_without_tenants_leaves_the_tree(start_daemon, tmp_path):
    daemon = start_daemon()
    daemon.cli("tenant", "apply", write(tmp_path, TREE), check=0)
    before = daemon.get("/v1/tenants").body
    refused = daemon.cli("tenant", "apply", write(tmp_path, "# moved\n", "empty.toml"))
    assert refused.returncode == 2 and "empty.toml describes no tenant" in refused.stderr, refused
    assert "sublet tenant rm NAME" in refused.stderr
    assert daemon.get("/v1/tenants").body == before


def test_quotas_beyond_the_cards_are_refused_with_their_sum(start_daemon, tmp_path):
    daemon = start_daemon("2x2GiB")
    file = write(tmp_path, '[[tenant]]\nname = "a"\nquota = "3GiB"\n[[tenant]]\nname = "b"\nquota = "2GiB"\n')
    refused = daemon.cli("tenant", "apply", file)
    assert refused.returncode == 2 and "the quotas add up to 5.0 GiB, and the devices have " in refused.stderr
    assert rows(daemon) == {}
    answer = daemon.api().post("/v1/tenants", {"tenants": [{"name": "a", "quota_devices": 2.5}]})
    assert answer.status == 400 and "2.5 devices" in answer["detail"]


def test_a_dry_run_names_the_leases_that_a_change_concerns(start_daemon, tmp_path):
    daemon = start_daemon("1x4GiB")
    api = daemon.api()
    ours, theirs = (api.post("/v1/leases", dict(ASK, tenant=name, tag=name))["id"] for name in ("vision", "house"))
    file = write(tmp_path, '[[tenant]]\nname = "vision"\nquota = "512MiB"\n'
                           '[[tenant]]\nname = "house"\nlimit = "1MiB"\n')
    said = daemon.cli("tenant", "apply", file, "--dry-run", check=0).stdout
    assert (f"! {ours} (vision, root) is borrowed: tenant vision holds 1.0 GiB, 512 MiB above its quota of 512 MiB"
            in said), said
    assert f"! {theirs} (house, root) is borrowed: tenant house has no quota" in said
    assert f"! {theirs} (house, root) is over its limit: tenant house holds 1.0 GiB, 1023 MiB above" in said
    answer = json.loads(daemon.cli("tenant", "apply", file, "--json", check=0).stdout)
    assert {(row["lease"], row["effect"]) for row in answer["effects"]} == {
        (ours, "borrowed"), (theirs, "borrowed"), (theirs, "over_limit")}
    assert [api.get(f"/v1/leases/{lease}")["state"] for lease in (ours, theirs)] == ["active"] * 2, "they go on"
    assert rows(daemon)["vision"]["borrowed_bytes"] == GIB // 2
    assert "vision 1.0 GiB of 512 MiB (512 MiB borrowed)" in daemon.cli("status", check=0).stdout
    found = scrape(api)
    assert found["sublet_tenant_borrowed_bytes"] == {'{tenant="house"}': GIB, '{tenant="vision"}': GIB // 2}
    assert found["sublet_tenant_quota_bytes"] == {'{tenant="vision"}': GIB // 2}


def test_the_use_of_a_tenant_outlives_a_restart(start_daemon):
    daemon = start_daemon("1x4GiB")
    api = daemon.api()
    api.post("/v1/tenants/vision", {"weight": 1})
    lease = api.post("/v1/leases", dict(ASK, tenant="vision"))["id"]
    wait_until(lambda: rows(daemon)["vision"]["used_byte_seconds"] > GIB, "it has held a GiB for a second")
    api.post(f"/v1/leases/{lease}/release", {})
    wait_until(lambda: rows(daemon)["vision"]["held_bytes"] == 0, "it holds nothing")
    used = rows(daemon)["vision"]["used_byte_seconds"]
    daemon.restart()
    assert rows(daemon)["vision"]["used_byte_seconds"] == used > GIB
    granted = daemon.api().post("/v1/leases", dict(ASK, tenant="vision"))["granted_at"]
    daemon.restart()
    row = rows(daemon)["vision"]
    held = daemon.get("/v1/status")["daemon"]["since"]
    assert row["held_bytes"] == GIB and row["used_byte_seconds"] >= used + GIB * (moment(held) - moment(granted)) - 1


def test_a_lost_card_cuts_the_quotas(start_daemon):
    daemon = start_daemon("2x2GiB", config='[gpu]\ninterval_idle = "300ms"\ninterval_busy = "100ms"\n')
    api = daemon.api()
    tree = [{"name": "a", "quota_devices": 1.5}, {"name": "b", "quota_devices": 0.5}]
    assert api.post("/v1/tenants", {"tenants": tree}).status == 200
    daemon.ctl("fault", "device-lost", "--device", 1)
    told = wait_until(lambda: [w for w in api.get("/v1/status")["warnings"] if w["code"] == "quotas-cut"], "it is told")
    assert "add up to 2 devices, and the present devices have 1 device" in told[0]["text"]
    assert [rows(daemon)[name]["served_quota_devices"] for name in "ab"] == [0.75, 0.25]
    assert [rows(daemon)[name]["quota_devices"] for name in "ab"] == [1.5, 0.5]
    assert "1.5 devices (now 0.75 devices: a device is lost)" in daemon.cli("tenant", "show", "a", check=0).stdout
    daemon.ctl("clear")
    wait_until(lambda: rows(daemon)["a"]["served_quota_devices"] == 1.5, "the quotas are whole again")


def test_ten_thousand_tenants_are_applied_and_listed(start_daemon, tmp_path):
    daemon = start_daemon("1x4GiB")
    text = "".join(f'[[tenant]]\nname = "t{number}"\nweight = {number % 7 + 1}\n' for number in range(10_000))
    done = daemon.cli("tenant", "apply", write(tmp_path, text), check=0)
    assert "10000 added" in done.stderr
    assert len(events(daemon)[0]["added"]) == 20 and events(daemon)[0]["added_count"] == 10_000
    assert len(rows(daemon)) == 10_000
    daemon.restart()
    assert len(rows(daemon)) == 10_000


def test_only_admins_change_tenants_and_users_see_their_own(tmp_path):
    system = System(config='[[tenants.user]]\nname = "dave"\ntenant = "vision"\n')
    try:
        system.start()
        file = write(system.home, TREE)
        for words in (("apply", file), ("apply", file, "--dry-run"), ("set", "vision", "weight=9"), ("rm", "vision")):
            refused = system.cli(DAVE, "tenant", *words)
            assert refused.returncode == 77 and "only an admin can do this" in refused.stderr, refused
        system.cli(CAROL, "tenant", "apply", file, check=0, groups=ADMIN)
        seen = {uid: [row["name"] for row in json.loads(system.cli(uid, "tenant", "ls", "--json", check=0,
                                                                   groups=groups).stdout)["tenants"]]
                for uid, groups in ((DAVE, (GROUP,)), (CAROL, ADMIN))}
        assert seen[DAVE] == ["lab", "vision", "dave"] and seen[CAROL] == ["house", "lab", "vision"], seen
        assert "vision" in system.cli(DAVE, "tenant", "show", "lab", check=0).stdout
        assert system.cli(DAVE, "tenant", "show", "house").returncode == 4
    finally:
        system.close()


def test_the_commands_of_the_documentation_work(start_daemon, tmp_path):
    daemon = start_daemon("2x4GiB")
    text = (ROOT / "docs/tenants.md").read_text()
    file = write(tmp_path, text.split("```toml\n# tenants.toml\n")[1].split("```")[0])
    blocks = [block.split("```")[0] for block in text.split("```sh\n")[1:]]
    commands = [line.split("#")[0].split()[1:] for block in blocks for line in block.splitlines()]
    assert len(commands) > 8
    for words in commands:
        daemon.cli(*[file if word == "tenants.toml" else word for word in words], check=0)
    assert list(rows(daemon)) == ["house"], "what the commands leave"
    keys = set(re.findall(r"^\| `([^|]*) \|", text, re.M))
    assert {word for key in keys for word in re.findall(r"[a-z_]+", key)} == KEYS
